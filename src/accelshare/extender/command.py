"""The command `accelshare extender` and its flags.

Belongs here: settings from flags. Never: serving.
"""

import asyncio
import sys
from pathlib import Path

import click

from accelshare.help_pages import HelpCommand, grouped
from accelshare.ledger.placing import POLICIES
from accelshare.options import (
    FILE,
    address,
    default_enforcement_option,
    kubeconfig_options,
    log_file_options,
    log_options,
    profiles_option,
)


def _listen(_context: click.Context, _parameter: click.Parameter, value: str) -> tuple[str, int]:
    host, _, port = value.rpartition(":")
    if ":" not in value or not port.isdigit() or int(port) > 65535:
        raise click.BadParameter(f"{value!r} is not HOST:PORT, such as 10.0.0.1:12345 or [fd00::1]:12345, nor :PORT")
    return host.strip("[]"), int(port)


def _pod(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[str, str] | None:
    if value is None:
        return None
    namespace, _, name = value.partition("/")
    if not (namespace and name):
        raise click.BadParameter(f"{value!r} is not NAMESPACE/NAME")
    return namespace, name


@click.command(
    cls=HelpCommand,
    examples=[
        ("--kubeconfig ~/.kube/config --listen 127.0.0.1:12345", "plain HTTP for this machine"),
        ("--tls-cert tls.crt --tls-key tls.key --client-ca ca.crt", "mutual TLS"),
    ],
)
@kubeconfig_options
@grouped(
    "Placement",
    click.option(
        "--policy", type=click.Choice(sorted(POLICIES)), default="binpack", show_default=True, help="Card placement policy."
    ),
    click.option(
        "--shortlist",
        type=click.IntRange(0, 5000),
        default=1,
        show_default=True,
        help="Number of nodes that filter returns for a pod without preferences of its own; 0 returns all that fit.",
    ),
    click.option(
        "--promises",
        type=click.IntRange(0, 100_000),
        default=0,
        show_default=True,
        metavar="PODS",
        help="Plan ahead of kube-scheduler while this many pods wait: nominate a node for each. 0: never. Since Kubernetes 1.22.",
    ),
    click.option(
        "--promises-from-nodes",
        type=click.IntRange(0, 1_000_000),
        default=1000,
        show_default=True,
        metavar="NODES",
        help="Plan ahead only in a cluster of this many nodes; in a smaller one kube-scheduler alone is faster.",
    ),
    default_enforcement_option,
    click.option(
        "--resize/--no-resize",
        default=False,
        show_default=True,
        help="Resize living slices. Only where an admission policy lets nobody but this extender write the grants.",
    ),
)
@profiles_option
@grouped(
    "Serving",
    click.option(
        "--listen",
        default=":12345",
        show_default=True,
        callback=_listen,
        help="Address to serve on, HOST:PORT; without HOST, all addresses.",
    ),
    click.option("--tls-cert", type=FILE, help="Serve HTTPS with this certificate chain (PEM)."),
    click.option("--tls-key", type=FILE, help="Private key of the certificate (PEM)."),
    click.option("--client-ca", type=FILE, help="Require client certificates signed by this CA (PEM)."),
    click.option(
        "--http2/--no-http2",
        default=False,
        show_default=True,
        help="Offer HTTP/2 with TLS. Only if kube-scheduler gives up dead connections soon: HTTP2_READ_IDLE_TIMEOUT_SECONDS.",
    ),
    click.option(
        "--probe-port",
        type=click.IntRange(0, 65535),
        default=0,
        show_default=True,
        help="Port that also serves health and metrics over plain HTTP; 0 means none.",
    ),
    click.option(
        "--max-body-mib", type=click.IntRange(1, 1024), default=64, show_default=True, help="Largest request body in MiB."
    ),
)
@grouped(
    "Agents",
    click.option(
        "--agent-namespace",
        default="kube-system",
        show_default=True,
        help="Namespace of the agents' pods; others are ignored.",
    ),
    click.option(
        "--agent-service-account",
        default="accelshare-agent",
        show_default=True,
        help="Service account of the agents' pods; others are ignored.",
    ),
)
@grouped(
    "Several extenders",
    click.option(
        "--lease",
        metavar="NAME",
        help="One of several extenders: only the holder of this Lease decides, the others stand by. Needs --pod.",
    ),
    click.option(
        "--pod",
        metavar="NAMESPACE/NAME",
        callback=_pod,
        help="With --lease: this extender's own pod; Lease and Service are in its namespace.",
    ),
    click.option(
        "--service",
        metavar="NAME",
        help="With --lease: the Service that leads to the holder, by EndpointSlices that the holder writes.",
    ),
)
@grouped(
    "Dashboard",
    click.option(
        "--dashboard",
        metavar="[HOST:]PORT",
        callback=address,
        help="Serve the dashboard here; a port alone is on loopback. With --tls-cert, HTTPS elsewhere. Default: not served.",
    ),
    click.option(
        "--dashboard-token-file", type=FILE, metavar="FILE", help="Ask the dashboard's readers for the token in this file."
    ),
    click.option(
        "--dashboard-api-server-users",
        is_flag=True,
        help="Ask the dashboard's readers for a token of the API server; its user must be allowed to list nodes and pods.",
    ),
    click.option(
        "--dashboard-host",
        "dashboard_names",
        multiple=True,
        metavar="NAME",
        help="Name under which browsers address the dashboard, besides localhost and IP addresses; repeatable.",
    ),
)
@log_options
@log_file_options
def extender(
    kubeconfig: Path | None,
    context: str | None,
    listen: tuple[str, int],
    policy: str,
    shortlist: int,
    promises: int,
    promises_from_nodes: int,
    default_enforcement: str | None,
    directories: tuple[Path, ...],
    tls_cert: Path | None,
    tls_key: Path | None,
    client_ca: Path | None,
    http2: bool,
    probe_port: int,
    agent_namespace: str,
    agent_service_account: str,
    resize: bool,
    lease: str | None,
    pod: tuple[str, str] | None,
    service: str | None,
    dashboard: tuple[str, int] | None,
    dashboard_token_file: Path | None,
    dashboard_api_server_users: bool,
    dashboard_names: tuple[str, ...],
    max_body_mib: int,
    log_level: str,
    log_format: str,
    log_file: Path | None,
    log_file_mib: int,
    log_files: int,
) -> None:
    """Serve kube-scheduler: filter, prioritize, preempt and bind for every vendor's pods."""
    from accelshare import logs
    from accelshare.dashboard.access import AccessError
    from accelshare.extender.feed import HistoryWentBackError
    from accelshare.extender.leadership import LeaseLostError
    from accelshare.extender.serving import ExtenderSettings, ReplicaSettings, serve
    from accelshare.extender.tls import ServerTlsFiles, TlsError
    from accelshare.http.server import ListenError
    from accelshare.kube.errors import ConfigError
    from accelshare.vendors.catalog import load
    from accelshare.wire.pods import AgentIdentity, default_limits

    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key must be set together")
    if client_ca is not None and tls_cert is None:
        raise click.UsageError("--client-ca needs --tls-cert and --tls-key: without TLS there are no client certificates")
    if http2 and tls_cert is None:
        raise click.UsageError("--http2 needs --tls-cert and --tls-key: kube-scheduler agrees on HTTP/2 only over TLS")
    if lease and not pod:
        raise click.UsageError("--lease needs --pod: the extender's own pod names it, and shows how far its watch has come")
    if (service or pod) and not lease:
        raise click.UsageError("--service and --pod need --lease: without one, this is the only extender")
    tls = ServerTlsFiles(tls_cert, tls_key, client_ca, http2) if tls_cert is not None and tls_key is not None else None
    logs.set_up(level=log_level, form=log_format, file=log_file, file_mib=log_file_mib, files=log_files)
    agents = AgentIdentity(agent_namespace, agent_service_account)
    limits = default_limits(default_enforcement)
    page = None
    if dashboard is not None:
        from accelshare.dashboard.serving import DashboardSettings

        page = DashboardSettings(*dashboard, dashboard_token_file, dashboard_api_server_users, dashboard_names)
    elif dashboard_token_file is not None or dashboard_api_server_users or dashboard_names:
        raise click.UsageError("--dashboard-token-file, --dashboard-api-server-users and --dashboard-host need --dashboard")
    replica = ReplicaSettings(lease, *pod, service or "") if lease and pod else None
    settings = ExtenderSettings(
        *(*listen, kubeconfig, context, policy, shortlist, max_body_mib, tls, probe_port, agents, limits),
        replica=replica,
        resizes=resize,
        dashboard=page,
        promises=promises,
        promises_from_nodes=promises_from_nodes,
    )
    catalog = load(directories)
    try:
        with asyncio.Runner(loop_factory=_fast_loop) as runner:
            runner.run(serve(settings, catalog))
    except (AccessError, ConfigError, ListenError, TlsError, HistoryWentBackError, LeaseLostError) as error:
        raise click.ClickException(str(error)) from error


def _fast_loop() -> asyncio.AbstractEventLoop:
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()
