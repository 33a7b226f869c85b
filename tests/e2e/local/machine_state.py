"""The state of this machine that a cluster can change; must be equal before and after."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cluster.local import cgroups, processes
from cluster.local.layout import COVERED, KERNEL_SETTINGS, Layout

OURS = {"kubelet", "kube-proxy", "containerd", "containerd-shim", "runc", "busybox"}
WORKER = "PYTEST_XDIST_WORKER"


@dataclass(frozen=True)
class MachineState:
    """One look."""

    processes: tuple[str, ...]
    mounts: tuple[str, ...]
    links: tuple[str, ...]
    routes: tuple[str, ...]
    nft: str
    device_nodes: tuple[str, ...]
    cgroups: tuple[str, ...]
    directories: tuple[str, ...]
    kernel_settings: tuple[tuple[str, str], ...]


def machine_state() -> MachineState:
    return MachineState(
        processes=tuple(sorted(_processes())),
        mounts=tuple(Path("/proc/self/mounts").read_text().splitlines()),
        links=tuple(sorted(path.name for path in Path("/sys/class/net").iterdir())),
        routes=tuple(sorted(_run("ip", "route", "show", "table", "all").splitlines())),
        nft=_run("nft", "list", "ruleset"),
        device_nodes=tuple(sorted(path.name for path in Path("/dev").iterdir())),
        cgroups=tuple(str(group) for hierarchy in cgroups.hierarchies() for group in hierarchy.glob("accelshare*")),
        directories=tuple(path for path in (*COVERED, "/opt/containerd", "/opt/cni", str(Layout().state)) if Path(path).exists()),
        kernel_settings=tuple((name, (Path("/proc/sys") / name).read_text()) for name in KERNEL_SETTINGS if _readable(name)),
    )


def _processes() -> set[str]:
    """By name and state directory: whatever else this machine does comes and goes."""
    return {
        f"{pid} {name}"
        for pid in processes.everyone()
        if processes.identity(pid)
        and not _of_another_worker(pid)
        and ((name := processes.name(pid)[:15]) in {each[:15] for each in OURS} or _mentions_state(pid))
    }


def _of_another_worker(pid: int) -> bool:
    """Tests that run beside these start containerd too, to have it read its configuration."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    workers = [variable for variable in variables if variable.startswith(WORKER.encode() + b"=")]
    return workers != [] and workers != [f"{WORKER}={os.environ.get(WORKER)}".encode()]


def _mentions_state(pid: int) -> bool:
    try:
        return str(Layout().state).encode() in Path(f"/proc/{pid}/cmdline").read_bytes() and pid != os.getpid()
    except OSError:
        return False


def _readable(setting: str) -> bool:
    return (Path("/proc/sys") / setting).exists()


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
