"""The command `accelshare dashboard`: the dashboard from any kubeconfig.

Belongs here: flags, the first message, the end by a signal. Never: serving.
"""

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from accelshare.help_pages import HelpCommand, grouped
from accelshare.inspect_cli.options import cluster_options
from accelshare.ledger.placing import POLICIES
from accelshare.options import FILE, address, default_enforcement_option

if TYPE_CHECKING:
    from accelshare.dashboard.serving import DashboardSettings

DEFAULT: Final = "127.0.0.1:12348"


@click.command(
    cls=HelpCommand,
    short_help="Serve a live web page of every card, who is on it, and what waits.",
    examples=[
        ("", "for this machine, with your kubeconfig"),
        ("--listen 0.0.0.0:12348 --token-file token", "for others who have the token"),
    ],
)
@grouped(
    "Serving",
    click.option(
        "--listen",
        default=DEFAULT,
        show_default=True,
        callback=address,
        metavar="[HOST:]PORT",
        help="Address to serve on; a port alone is on loopback, port 0 is any free one.",
    ),
    click.option("--token-file", type=FILE, metavar="FILE", help="Ask readers for the token in this file."),
    click.option(
        "--api-server-users",
        is_flag=True,
        help="Ask readers for a token of the API server; its user must be allowed to list nodes and pods.",
    ),
    click.option(
        "--host",
        "names",
        multiple=True,
        metavar="NAME",
        help="Name under which browsers address the dashboard, besides localhost and IP addresses; repeatable.",
    ),
)
@grouped(
    "Use of cards",
    click.option(
        "--usage/--no-usage",
        default=True,
        help="Ask the nodes' agents who uses the cards, every 30 s while someone reads. Needs the right to get pods/proxy.",
    ),
)
@grouped(
    "Extender",
    click.option(
        "--policy", type=click.Choice(sorted(POLICIES)), default="binpack", show_default=True, help="The extender's policy."
    ),
    default_enforcement_option,
)
@cluster_options("Count only the pods of this namespace.")
def dashboard(
    listen: tuple[str, int],
    token_file: Path | None,
    api_server_users: bool,
    names: tuple[str, ...],
    usage: bool,
    policy: str,
    default_enforcement: str | None,
    namespace: str | None,
    **where: Any,
) -> None:
    """Serve the dashboard until Ctrl-C: nodes, cards and their pods, what waits and why, quotas, the last hours.

    It reads nodes, pods and ResourceQuotas from the API server, writes nothing, and needs no extender. On another address than
    loopback it needs --token-file or --api-server-users.
    """
    from accelshare import logs
    from accelshare.dashboard.access import AccessError
    from accelshare.dashboard.serving import DashboardSettings
    from accelshare.http.server import ListenError
    from accelshare.inspect_cli.error_messages import errors_for_people

    logs.set_up(level="warning", form="text", file=None, file_mib=0, files=0)
    settings = DashboardSettings(*listen, token_file, api_server_users, names)
    try:
        with errors_for_people():
            asyncio.run(_serve(settings, policy, default_enforcement, namespace or "", usage, where))
    except (AccessError, ListenError) as error:
        raise click.ClickException(str(error)) from error


async def _serve(
    settings: "DashboardSettings",
    policy: str,
    default_enforcement: str | None,
    namespace: str,
    usage: bool,
    where: dict[str, Any],
) -> None:
    from accelshare import __version__
    from accelshare.dashboard.cluster_watch import ClusterWatch
    from accelshare.dashboard.serving import Dashboard
    from accelshare.dashboard.usage_watch import UsageWatch
    from accelshare.inspect_cli.cluster_reader import require_namespace
    from accelshare.inspect_cli.usage_reader import UsageReader
    from accelshare.kube import config
    from accelshare.kube.client import Client
    from accelshare.kube.sync_client import SyncClient
    from accelshare.terminal import echo_line
    from accelshare.vendors.catalog import load
    from accelshare.wire.pods import PodReader, default_limits

    settings.check()
    catalog = load(where["directories"])
    reader = PodReader(catalog, default_limits=default_limits(default_enforcement))
    cluster = config.load(where["kubeconfig"], context=where["context"])
    user_agent = f"accelshare-dashboard/{__version__}"
    # Agents are asked in threads, with credentials of their own.
    of_threads = config.load(where["kubeconfig"], context=where["context"])
    with SyncClient(of_threads, user_agent=user_agent) as blocking:
        async with Client(cluster, user_agent=user_agent) as client:
            asked = UsageWatch(UsageReader(blocking).read) if usage and not namespace else None
            # What the user may not read is an error now, and not an empty page later.
            pods = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
            for path in ("/api/v1/nodes", pods):
                await client.request("GET", path, params={"limit": "1"})
            if namespace:
                require_namespace(blocking, namespace)
            # Until here a signal ends the command at once, also if the API server does not answer.
            stopping = asyncio.Event()
            for received in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(received, stopping.set)
            watch = ClusterWatch(client, catalog, reader, policy=POLICIES[policy], namespace=namespace)
            async with Dashboard(settings, client, watch, catalog, reader, usage=asked) as served:
                host = f"[{settings.host}]" if ":" in settings.host else settings.host
                echo_line(f"dashboard of {cluster.server} at http://{host}:{served.port}/ (Ctrl-C ends it)")
                await stopping.wait()
