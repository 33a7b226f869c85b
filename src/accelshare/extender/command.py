"""The command `accelshare extender` and its flags.

Belongs here: settings from flags. Never: serving.
"""

import asyncio
import sys
from pathlib import Path

import click

from accelshare.ledger.placing import POLICIES
from accelshare.options import (
    FILE,
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


@click.command()
@kubeconfig_options
@click.option(
    "--listen",
    default=":12345",
    show_default=True,
    callback=_listen,
    help="Address to serve on, HOST:PORT; without HOST, all addresses.",
)
@click.option(
    "--policy", type=click.Choice(sorted(POLICIES)), default="binpack", show_default=True, help="Card placement policy."
)
@click.option(
    "--shortlist",
    type=click.IntRange(0, 5000),
    default=1,
    show_default=True,
    help="Number of nodes that filter returns for a pod without preferences of its own; 0 returns all that fit.",
)
@default_enforcement_option
@profiles_option
@click.option("--tls-cert", type=FILE, help="Serve HTTPS with this certificate chain (PEM).")
@click.option("--tls-key", type=FILE, help="Private key of the certificate (PEM).")
@click.option("--client-ca", type=FILE, help="Require client certificates signed by this CA (PEM).")
@click.option(
    "--probe-port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="Port that also serves health and metrics over plain HTTP; 0 means none.",
)
@click.option(
    "--agent-namespace",
    default="kube-system",
    show_default=True,
    help="Namespace of the agents' pods; others are ignored.",
)
@click.option(
    "--agent-service-account",
    default="accelshare-agent",
    show_default=True,
    help="Service account of the agents' pods; others are ignored.",
)
@click.option("--max-body-mib", type=click.IntRange(1, 1024), default=64, show_default=True, help="Largest request body in MiB.")
@log_options
@log_file_options
def extender(
    kubeconfig: Path | None,
    context: str | None,
    listen: tuple[str, int],
    policy: str,
    shortlist: int,
    default_enforcement: str | None,
    directories: tuple[Path, ...],
    tls_cert: Path | None,
    tls_key: Path | None,
    client_ca: Path | None,
    probe_port: int,
    agent_namespace: str,
    agent_service_account: str,
    max_body_mib: int,
    log_level: str,
    log_format: str,
    log_file: Path | None,
    log_file_mib: int,
    log_files: int,
) -> None:
    """Serve kube-scheduler: filter, prioritize, preempt and bind for every vendor's pods."""
    from accelshare import logs
    from accelshare.extender.feed import HistoryWentBackError
    from accelshare.extender.serving import ExtenderSettings, serve
    from accelshare.extender.tls import ServerTlsFiles, TlsError
    from accelshare.http.server import ListenError
    from accelshare.kube.errors import ConfigError
    from accelshare.vendors.catalog import load
    from accelshare.wire.pods import AgentIdentity, default_limits

    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key must be set together")
    if client_ca is not None and tls_cert is None:
        raise click.UsageError("--client-ca needs --tls-cert and --tls-key: without TLS there are no client certificates")
    tls = ServerTlsFiles(tls_cert, tls_key, client_ca) if tls_cert is not None and tls_key is not None else None
    logs.set_up(level=log_level, form=log_format, file=log_file, file_mib=log_file_mib, files=log_files)
    agents = AgentIdentity(agent_namespace, agent_service_account)
    limits = default_limits(default_enforcement)
    settings = ExtenderSettings(*listen, kubeconfig, context, policy, shortlist, max_body_mib, tls, probe_port, agents, limits)
    catalog = load(directories)
    try:
        with asyncio.Runner(loop_factory=_fast_loop) as runner:
            runner.run(serve(settings, catalog))
    except (ConfigError, ListenError, TlsError, HistoryWentBackError) as error:
        raise click.ClickException(str(error)) from error


def _fast_loop() -> asyncio.AbstractEventLoop:
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()
