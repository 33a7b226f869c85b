"""The command `accelshare agent`: its flags, read into settings."""

import asyncio
from functools import partial
from pathlib import Path

import click

from accelshare.help_pages import HelpCommand, grouped
from accelshare.options import FloatRange, kubeconfig_options, log_file_options, log_options, profiles_option

_repeatable = partial(click.option, multiple=True)
_shown = partial(click.option, show_default=True)
_file = partial(_shown, type=click.Path(dir_okay=False, path_type=Path))
_directory = partial(_shown, type=click.Path(file_okay=False, path_type=Path))


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


@click.command(
    cls=HelpCommand,
    examples=[
        ("--node-name worker-0 --vendor acme --port 12347", "serve one vendor's cards"),
        ("--delivery device-plugin --no-guard", "without the container runtime's help"),
    ],
)
@kubeconfig_options
@grouped(
    "Node",
    click.option(
        "--node-name", help="Name of this node. Default: $NODE_NAME, then the node of the pod this runs in, then the host's name."
    ),
)
@grouped(
    "Cards",
    _repeatable("--vendor", "vendors", help="Serve only this profile; repeatable. Default: all with a driver."),
    _repeatable(
        "--memory-unit", "units", callback=_units, metavar="[VENDOR=]UNIT", help="Count memory in this unit; repeatable."
    ),
    _repeatable(
        "--card-memory-mib",
        callback=_card_memory,
        metavar="VENDOR=MIB",
        help="The memory of this vendor's cards that do not report it, such as cards that share the host's memory; repeatable.",
    ),
    _shown("--health-check/--no-health-check", default=True, help="Watch the cards' health."),
)
@grouped(
    "Delivery",
    _shown(
        "--delivery",
        type=click.Choice(["auto", "nri", "device-plugin"]),
        default="auto",
        help="Who gives containers their cards: the container runtime (nri), device plugins, or the safer one of both (auto).",
    ),
    _shown("--guard/--no-guard", default=True, help="With NRI: containers that request no card get none, and may not bring one."),
    _shown(
        "--exempt-namespace",
        "exempt_namespaces",
        multiple=True,
        default=("kube-system",),
        metavar="NAMESPACE",
        help="The guard ignores containers of this namespace; repeatable. The agent's own namespace is always exempt.",
    ),
    _shown(
        "--limits/--no-limits",
        default=True,
        help="With NRI and cgroup v2: set memory limits on the cgroups of containers, where driver or kernel can hold them.",
    ),
    _shown(
        "--resize/--no-resize",
        default=False,
        help="Resize living slices. Only where an admission policy lets nobody but the extender write the grants.",
    ),
    _file("--nri-socket", default=Path("/var/run/nri/nri.sock"), help="The container runtime's NRI socket."),
    _file(
        "--containerd-config",
        default=Path("/etc/containerd/config.toml"),
        help="Read, with its imports, to find out whether containerd's validator requires the agent's plugin.",
    ),
    _file(
        "--crio-config", default=Path("/etc/crio/crio.conf"), help="Read, with its .d directory, to find out the same for CRI-O."
    ),
    _directory("--cdi-directory", default=Path("/var/run/cdi"), help="Directory for CDI files of profiles that use CDI."),
)
@grouped(
    "Host",
    _directory("--kubelet-root", default=Path("/var/lib/kubelet"), help="kubelet's root directory."),
    _directory("--dev-root", default=Path("/dev"), help="Where the host's /dev is seen from here."),
    _directory("--proc-root", default=Path("/proc"), help="Where the host's /proc is seen from here."),
    _directory("--sys-root", default=Path("/sys"), help="Where the host's /sys is seen from here."),
    _directory(
        "--host-root",
        default=Path("/"),
        help="Where the host's root is seen from here; vendors' libraries and tools are looked up below it.",
    ),
    _directory("--cgroup-root", default=Path("/sys/fs/cgroup"), help="Where the host's cgroup tree is seen from here."),
)
@grouped(
    "Serving",
    _shown("--port", type=click.IntRange(0, 65535), default=0, help="Port for probes, metrics and usage; 0: none."),
)
@grouped(
    "Usage",
    _shown(
        "--usage/--no-usage",
        default=False,
        help="Sample which pods use which cards, and how much. The agent must see the host's processes (hostPID).",
    ),
    _shown(
        "--usage-every",
        type=FloatRange(0.1, 3600),
        default=15.0,
        metavar="SECONDS",
        help="Interval of the samples of --usage.",
    ),
    _shown(
        "--evict-over-use-after",
        type=FloatRange(0, 86400 * 365),
        default=0.0,
        metavar="SECONDS",
        help="Evict a pod that uses more memory of a card than it holds for so long; 0: only report it. Needs --usage.",
    ),
)
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
    limits: bool,
    resize: bool,
    nri_socket: Path,
    containerd_config: Path,
    crio_config: Path,
    cdi_directory: Path,
    kubelet_root: Path,
    dev_root: Path,
    proc_root: Path,
    sys_root: Path,
    host_root: Path,
    cgroup_root: Path,
    port: int,
    usage: bool,
    usage_every: float,
    evict_over_use_after: float,
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

    if evict_over_use_after and not usage:
        raise click.UsageError("--evict-over-use-after needs --usage: without samples nobody knows who uses too much")
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
        limits=limits,
        resizes=resize,
        cgroup_root=cgroup_root,
        usage_every_s=usage_every if usage else 0.0,
        evict_over_use_after_s=evict_over_use_after,
    )
    try:
        asyncio.run(serve(settings, catalog, broken))
    except (KubeError, UnknownNodeError, RuntimeChangedError) as error:
        raise click.ClickException(str(error)) from error
