"""A cgroup of our own in every hierarchy, by which all processes of the cluster are found and ended; nodes have theirs in it."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cluster.errors import ClusterError
from cluster.local import processes
from cluster.local.layout import CGROUP, Layout
from cluster.local.processes import Identity

_MOUNTS: Final = Path("/proc/self/mounts")
_PROCESSES: Final = "cgroup.procs"
_OPTIONS_OF_ANY_MOUNT: Final = frozenset({"rw", "ro", "nosuid", "nodev", "noexec", "noatime", "relatime", "seclabel"})
_REMOVE_LIMIT_S: Final = 120.0
# To the kernel a cgroup is as one process. Beside busy tests, a cluster with the share of one starves, and Leases in it expire.
_CPU_SHARES: Final = {"cpu.shares": "16384", "cpu.weight": "1600"}  # v1 and v2; the defaults are 1024 and 100
DAEMONS: Final = "daemons"  # beside kubelet's pods, so that no limit of a pod ever reaches the daemons


def hierarchies(mounts: Path = _MOUNTS) -> list[Path]:
    """The mount points of cgroup v1 controllers and of cgroup v2; on a hybrid machine both."""
    return [place for place, _, _ in _mounted(mounts)]


def make(layout: Layout) -> None:
    """The node's in every hierarchy. cpuset begins without a CPU on v1, controllers are off on v2; kubelet wants both there."""
    for hierarchy in hierarchies():
        own = hierarchy / layout.cgroup
        _offer_controllers(hierarchy, own.parent)
        for group in (own, own / DAEMONS):
            group.mkdir(exist_ok=True)
            for setting in ("cpuset.cpus", "cpuset.mems"):
                file = group / setting
                if file.exists() and not file.read_text().strip() and (value := (group.parent / setting).read_text().strip()):
                    file.write_text(value)
    for hierarchy in hierarchies():
        for setting, value in _CPU_SHARES.items():
            if (file := hierarchy / CGROUP / setting).exists():
                file.write_text(value)


def daemons(layout: Layout) -> str:
    """The directories that a daemon joins, in the form of launch.py."""
    return ":".join(str(hierarchy / layout.cgroup / DAEMONS) for hierarchy in hierarchies())


def join(layout: Layout, group: str = "") -> list[str]:
    """Shell commands with which a shell joins the node's cgroup, or this one below it."""
    return [f"echo 0 > {shlex.quote(str(hierarchy / layout.cgroup / group / _PROCESSES))}" for hierarchy in hierarchies()]


def mount_again(mounts: Path = _MOUNTS) -> list[str]:
    """Shell commands that mount each hierarchy again: in a new cgroup namespace, with that namespace's root as the root."""
    commands = []
    for place, kind, options in _mounted(mounts):
        own = [option for option in options if option not in _OPTIONS_OF_ANY_MOUNT]
        named = ["none"] if any(option.startswith("name=") for option in own) else []
        chosen = ["-o", ",".join([*named, *own])] if kind == "cgroup" else []
        commands += [shlex.join(["umount", str(place)]), shlex.join(["mount", "-t", kind, *chosen, kind, str(place)])]
    return commands


def members() -> list[Identity]:
    """Every process in ours, containers included."""
    pids = {int(pid) for group in _ours() for pid in _read(group / _PROCESSES).split() if pid != "0"}
    return processes.alive(sorted(pids))


def exist() -> bool:
    return any((hierarchy / CGROUP).exists() for hierarchy in hierarchies())


def remove() -> None:
    """All of ours, from the leaves; the kernel needs a moment after the last process."""
    deadline = time.monotonic() + _REMOVE_LIMIT_S
    while left := list(_ours()):
        for group in left:
            try:
                group.rmdir()
            except OSError as error:
                if time.monotonic() > deadline:
                    raise ClusterError(f"the cgroup {group} cannot be removed: {error}") from error
        time.sleep(0.02)


def _ours() -> Iterator[Path]:
    """From the leaves to the top."""
    for hierarchy in hierarchies():
        for directory, _, _ in os.walk(hierarchy / CGROUP, topdown=False):
            yield Path(directory)


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # kubelet removed the group in between
        return ""


def _mounted(mounts: Path) -> list[tuple[Path, str, list[str]]]:
    """Mount point, cgroup or cgroup2, and options of each hierarchy."""
    found: dict[Path, tuple[str, list[str]]] = {}
    for line in mounts.read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if kind in ("cgroup", "cgroup2"):
            found.setdefault(Path(where), (kind, options.split(",")))
    return [(place, kind, options) for place, (kind, options) in found.items()]


def _offer_controllers(hierarchy: Path, parent: Path) -> None:
    """To the groups below this one; only where v2 is all there is: on a hybrid machine kubelet uses v1."""
    controllers = parent / "cgroup.controllers"
    if hierarchy.name == "unified" or not controllers.exists():
        return
    for name in controllers.read_text().split():
        try:
            (parent / "cgroup.subtree_control").write_text(f"+{name}")
        except OSError:
            continue  # not ours to delegate; kubelet reports what it misses
