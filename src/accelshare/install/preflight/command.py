"""`accelshare preflight`: the flags.

Belongs here: from argv to findings, printed. Never: a check.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click

from accelshare.install.preflight.checks import NAMES
from accelshare.options import kubeconfig_options, output_option, profiles_option
from accelshare.terminal import echo


def _units(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    for value in values:
        if not value.partition("=")[1]:
            raise click.BadParameter(f"{value!r} is not VENDOR=UNIT, such as the one that an agent is told")
    return dict(value.split("=", 1) for value in values)


@click.command(short_help="Look whether a cluster is ready for accelshare.")
@click.option("-n", "--namespace", default="kube-system", show_default=True, help="Where accelshare would be installed.")
@output_option
@kubeconfig_options
@click.option("--only", type=click.Choice(NAMES), multiple=True, help="Only this check; repeatable. Default: all.")
@click.option(
    "--memory-unit",
    "units",
    multiple=True,
    callback=_units,
    metavar="VENDOR=UNIT",
    help="The memory unit that you want, refused while pods of another one live; repeatable. Empty: the profile's.",
)
@profiles_option
def preflight(
    namespace: str,
    output: str,
    kubeconfig: Path | None,
    context: str | None,
    only: Sequence[str],
    units: dict[str, str],
    directories: Sequence[Path],
) -> None:
    """Look at a cluster before an install: versions, runtimes, rights, kube-scheduler, labels, ports, other systems, pods.

    Nothing is written. Exit code 1 if something has to be solved first, or if the cluster cannot be asked.
    """
    from accelshare import __version__
    from accelshare.install.preflight import printing, reading
    from accelshare.install.preflight.checks import chosen, findings, parts, permissions
    from accelshare.install.preflight.snapshot import Snapshot
    from accelshare.kube import config
    from accelshare.kube.client import Client
    from accelshare.kube.errors import KubeError
    from accelshare.vendors import catalog

    if "memory-units" in only and not units:
        raise click.UsageError("--only memory-units has nothing to look for without --memory-unit VENDOR=UNIT")
    profiles = catalog.load(directories)
    checks = chosen(only, units)

    async def look() -> Snapshot:
        cluster = config.load(kubeconfig, context=context)
        async with Client(cluster, user_agent=f"accelshare-preflight/{__version__}") as client:
            return await reading.read(client, parts(checks), permissions.needed(namespace))

    try:
        snapshot = asyncio.run(look())
    except KubeError as error:
        raise click.ClickException(f"the cluster cannot be looked at: {error}") from error
    found = findings(checks, snapshot, profiles)
    echo(printing.as_json(found) if output == "json" else printing.as_text(found), nl=False)
    if not printing.ready(found):
        raise click.exceptions.Exit(1)
