"""The command `accelshare agent`: its flags, read into settings."""

import asyncio
from pathlib import Path

import click

from accelshare.options import kubeconfig_options, log_file_options, log_options, profiles_option

_directory = click.Path(file_okay=False, path_type=Path)


def _units(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """`GiB` for every vendor that knows it, or `vendor=GiB` for one."""
    pairs = [value.rpartition("=") for value in values]
    return {vendor: unit for vendor, _, unit in pairs}


def _card_memory(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    """`vendor=131072`."""
    memory: dict[str, int] = {}
    for value in values:
        vendor, _, mib = value.partition("=")
        if not vendor or not (mib.isascii() and mib.isdecimal()) or not 1 <= int(mib) <= 2**24:
            raise click.BadParameter(f"{value[:80]!r} must be VENDOR=MIB, a whole number from 1 to {2**24}, such as acme=131072")
        memory[vendor] = int(mib)
    return memory


@click.command()
@kubeconfig_options
@click.option(
    "--node-name", help="Name of this node. Default: $NODE_NAME, then the node of the pod this runs in, then the host's name."
)
@click.option("--vendor", "vendors", multiple=True, help="Serve only this profile; repeatable. Default: all with a driver.")
@click.option(
    "--memory-unit",
    "units",
    multiple=True,
    callback=_units,
    metavar="[VENDOR=]UNIT",
    help="Count memory in this unit; repeatable.",
)
@click.option(
    "--card-memory-mib",
    "card_memory_mib",
    multiple=True,
    callback=_card_memory,
    metavar="VENDOR=MIB",
    help="The memory of this vendor's cards that do not report it, such as cards that share the host's memory; repeatable.",
)
@click.option("--health-check/--no-health-check", default=True, show_default=True, help="Watch the cards' health.")
@click.option(
    "--delivery",
    type=click.Choice(["auto", "nri", "device-plugin"]),
    default="auto",
    show_default=True,
    help="Who gives containers their cards: the container runtime (nri), device plugins, or the safer one of both (auto).",
)
@click.option(
    "--guard/--no-guard",
    default=True,
    show_default=True,
    help="With NRI: containers that request no card get none, and may not bring one.",
)
@click.option(
    "--exempt-namespace",
    "exempt_namespaces",
    multiple=True,
    default=("kube-system",),
    show_default=True,
    metavar="NAMESPACE",
    help="The guard ignores containers of this namespace; repeatable. The agent's own namespace is always exempt.",
)
@click.option(
    "--nri-socket",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("/var/run/nri/nri.sock"),
    show_default=True,
    help="The container runtime's NRI socket.",
)
@click.option(
    "--containerd-config",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("/etc/containerd/config.toml"),
    show_default=True,
    help="Read, with its imports, to find out whether containerd's validator requires the agent's plugin.",
)
@click.option(
    "--crio-config",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("/etc/crio/crio.conf"),
    show_default=True,
    help="The same for CRI-O, with its .d directory.",
)
@click.option(
    "--cdi-directory",
    type=_directory,
    default=Path("/var/run/cdi"),
    show_default=True,
    help="Directory for CDI files of profiles that use CDI.",
)
@click.option("--kubelet-root", type=_directory, default=Path("/var/lib/kubelet"), show_default=True, help="kubelet's directory.")
@click.option("--dev-root", type=_directory, default=Path("/dev"), show_default=True)
@click.option("--proc-root", type=_directory, default=Path("/proc"), show_default=True)
@click.option("--sys-root", type=_directory, default=Path("/sys"), show_default=True)
@click.option(
    "--host-root",
    type=_directory,
    default=Path("/"),
    show_default=True,
    help="Where the host's root is seen from here; vendors' libraries and tools are looked up below it.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="Port for probes and metrics; 0: none.")
@profiles_option
@log_options
@log_file_options
def agent(
    kubeconfig: Path | None,
    context: str | None,
    node_name: str | None,
    vendors: tuple[str, ...],
    units: dict[str, str],
    card_memory_mib: dict[str, int],
    health_check: bool,
    delivery: str,
    guard: bool,
    exempt_namespaces: tuple[str, ...],
    nri_socket: Path,
    containerd_config: Path,
    crio_config: Path,
    cdi_directory: Path,
    kubelet_root: Path,
    dev_root: Path,
    proc_root: Path,
    sys_root: Path,
    host_root: Path,
    port: int,
    directories: tuple[Path, ...],
    log_level: str,
    log_format: str,
    log_file: Path | None,
    log_file_mib: int,
    log_files: int,
) -> None:
    """Deliver this node's cards: discover them, publish them on the Node, and give each container its own."""
    from accelshare import logs
    from accelshare.agent.delivery import RuntimeChangedError
    from accelshare.agent.serving import serve
    from accelshare.agent.settings import AgentSettings, UnknownNodeError, own_namespace
    from accelshare.kube.errors import KubeError
    from accelshare.runtimes.validator_status import Files
    from accelshare.vendors.catalog import load_usable
    from accelshare.vendors.drivers.driver import Roots

    logs.set_up(level=log_level, form=log_format, file=log_file, file_mib=log_file_mib, files=log_files)
    catalog, broken = load_usable(directories)
    roots = Roots(dev=dev_root, proc=proc_root, sys=sys_root)
    settings = AgentSettings(
        kubeconfig=kubeconfig,
        context=context,
        node=node_name,
        vendors=vendors,
        units=units,
        card_memory_mib=card_memory_mib,
        kubelet=kubelet_root,
        roots=roots,
        host_root=host_root,
        port=port,
        watch_health=health_check,
        delivery=delivery,
        guard=guard,
        exempt_namespaces=(*exempt_namespaces, *filter(None, [own_namespace()])),
        cdi=cdi_directory,
        nri_socket=nri_socket,
        runtime_files=Files(containerd_config, crio_config),
    )
    try:
        asyncio.run(serve(settings, catalog, broken))
    except (KubeError, UnknownNodeError, RuntimeChangedError) as error:
        raise click.ClickException(str(error)) from error
