"""`accelshare agent`: the flags.

Belongs here: from argv to settings. Never: anything that runs.
"""

import asyncio
from pathlib import Path

import click

from accelshare.vendors.command import profiles_option

_directory = click.Path(file_okay=False, path_type=Path)


def _units(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """`GiB` for every vendor that knows it, or `vendor=GiB` for one."""
    pairs = [value.rpartition("=") for value in values]
    return {vendor: unit for vendor, _, unit in pairs}


@click.command()
@click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="How to reach the API server.")
@click.option("--context", help="The kubeconfig's context to use.")
@click.option("--node-name", help="This node. Default: $NODE_NAME, the pod this runs in, the host's name.")
@click.option("--vendor", "vendors", multiple=True, help="Serve only this profile; repeatable. Default: all that have a driver.")
@click.option(
    "--memory-unit",
    "units",
    multiple=True,
    callback=_units,
    metavar="[VENDOR=]UNIT",
    help="Count memory in this unit; repeatable.",
)
@click.option("--health-check/--no-health-check", default=True, show_default=True, help="Watch the cards' health.")
@click.option("--kubelet-root", type=_directory, default=Path("/var/lib/kubelet"), show_default=True, help="kubelet's directory.")
@click.option("--dev-root", type=_directory, default=Path("/dev"), show_default=True)
@click.option("--proc-root", type=_directory, default=Path("/proc"), show_default=True)
@click.option("--sys-root", type=_directory, default=Path("/sys"), show_default=True)
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="Serve probes and metrics; 0: do not.")
@profiles_option
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--log-file", type=click.Path(dir_okay=False, path_type=Path), help="Log here, not to standard error.")
@click.option("--log-file-mib", type=click.IntRange(1, 4096), default=32, show_default=True, help="Rotate it at this size.")
@click.option("--log-files", type=click.IntRange(1, 100), default=5, show_default=True, help="How many rotated files to keep.")
def agent(
    kubeconfig: Path | None,
    context: str | None,
    node_name: str | None,
    vendors: tuple[str, ...],
    units: dict[str, str],
    health_check: bool,
    kubelet_root: Path,
    dev_root: Path,
    proc_root: Path,
    sys_root: Path,
    port: int,
    directories: tuple[Path, ...],
    log_level: str,
    log_format: str,
    log_file: Path | None,
    log_file_mib: int,
    log_files: int,
) -> None:
    """Hand out this node's cards: find them, tell the cluster, give each container its own."""
    from accelshare import logs
    from accelshare.agent.identity import UnknownNodeError
    from accelshare.agent.serving import Settings, serve
    from accelshare.agent.units import UnitError
    from accelshare.kube.errors import KubeError
    from accelshare.vendors.catalog import load
    from accelshare.vendors.drivers.driver import Roots

    logs.set_up(level=log_level, form=log_format, file=log_file, file_mib=log_file_mib, files=log_files)
    catalog = load(directories)
    roots = Roots(dev=dev_root, proc=proc_root, sys=sys_root)
    settings = Settings(
        kubeconfig=kubeconfig,
        context=context,
        node=node_name,
        vendors=vendors,
        units=units,
        kubelet=kubelet_root,
        roots=roots,
        port=port,
        watch_health=health_check,
    )
    try:
        asyncio.run(serve(settings, catalog))
    except (KubeError, UnknownNodeError, UnitError) as error:
        raise click.ClickException(str(error)) from error
