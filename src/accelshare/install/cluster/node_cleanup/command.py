"""`accelshare node-cleanup`: the flags.

Belongs here: from argv to values, and printing. Never: rules.
"""

import asyncio
from pathlib import Path

import click

from accelshare.terminal import echo_line
from accelshare.vendors.command import profiles_option


@click.group(no_args_is_help=True)
def node_cleanup() -> None:
    """Take away what agents wrote on their nodes."""


@node_cleanup.command(short_help="Take away what agents wrote on nodes.")
@click.option("-n", "--namespace", default="kube-system", show_default=True, help="Where the agents are.")
@click.option("--daemonset", "daemon_set", metavar="NAME", help="Delete this DaemonSet of agents first.")
@click.option(
    "--wait-s", type=click.FloatRange(0, 3600), default=120.0, show_default=True, help="How long to wait for agents to end."
)
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="How to reach the API server. Default: as for the extender.",
)
@click.option("--context", help="The kubeconfig's context to use.")
@profiles_option
def remove(
    namespace: str,
    daemon_set: str | None,
    wait_s: float,
    kubeconfig: Path | None,
    context: str | None,
    directories: tuple[Path, ...],
) -> None:
    """Wait until no agent runs, then take inventory and amounts from every node; for the end of an installation. Pods and their
    records stay as they are.
    """
    from accelshare.install.cluster.node_cleanup import finding, removing
    from accelshare.kube import config
    from accelshare.kube.client import Client
    from accelshare.kube.errors import KubeError
    from accelshare.vendors.catalog import load

    known = finding.resources(load(directories))

    async def run() -> None:
        async with Client(config.load(kubeconfig, context=context), user_agent="accelshare-node-cleanup") as client:
            await removing.remove(client, known, namespace=namespace, daemon_set=daemon_set, wait_s=wait_s, say=echo_line)

    try:
        asyncio.run(run())
    except KubeError as error:
        raise click.ClickException(str(error)) from error
