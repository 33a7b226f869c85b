"""`accelshare preflight`: the flags.

Belongs here: from argv to findings, printed. Never: a check.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click

from accelshare.vendors.command import profiles_option

_file = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(short_help="Look whether a cluster is ready for accelshare.")
@click.option("-n", "--namespace", default="kube-system", show_default=True, help="Where accelshare would be installed.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="How to write it.")
@click.option("--kubeconfig", type=_file, help="How to reach the API server. Default: $KUBECONFIG, ~/.kube/config.")
@click.option("--context", metavar="NAME", help="The kubeconfig's context to use.")
@profiles_option
def preflight(namespace: str, output: str, kubeconfig: Path | None, context: str | None, directories: Sequence[Path]) -> None:
    """Look at a cluster before an install: versions, runtimes, rights, kube-scheduler, labels, ports, other systems, pods.

    Nothing is written. Exit code 1 if something has to be solved first, or if the cluster cannot be asked.
    """
    from accelshare import __version__
    from accelshare.kube import config
    from accelshare.kube.client import Client
    from accelshare.kube.errors import KubeError
    from accelshare.preflight import printing, reading
    from accelshare.preflight.checks import findings, permissions
    from accelshare.preflight.snapshot import Snapshot
    from accelshare.vendors import catalog

    profiles = catalog.load(directories)

    async def look() -> Snapshot:
        cluster = config.load(kubeconfig, context=context)
        async with Client(cluster, user_agent=f"accelshare-preflight/{__version__}") as client:
            return await reading.read(client, permissions.needed(namespace))

    try:
        snapshot = asyncio.run(look())
    except KubeError as error:
        raise click.ClickException(f"the cluster cannot be looked at: {error}") from error
    found = findings(snapshot, profiles)
    click.echo(printing.as_json(found) if output == "json" else printing.as_text(found), nl=False)
    if not printing.ready(found):
        raise click.exceptions.Exit(1)
