"""A cgroup of our own in every hierarchy, by which all processes of the cluster are found and ended."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cluster.errors import ClusterError
from cluster.local import processes
from cluster.local.layout import CGROUP
from cluster.local.processes import Identity

_REMOVE_LIMIT_S: Final = 120.0
DAEMONS: Final = "daemons"  # beside kubelet's pods, so that no limit of a pod ever reaches the daemons


def hierarchies(mounts: Path = Path("/proc/self/mounts")) -> list[Path]:
    """The mount points of cgroup v1 controllers and of cgroup v2; on a hybrid machine both."""
    found = []
    for line in mounts.read_text().splitlines():
        _, where, kind, *_ = line.split()
        if kind in ("cgroup", "cgroup2") and Path(where) not in found:
            found.append(Path(where))
    return found


def make() -> None:
    """Ours in every hierarchy. cpuset begins without a CPU on v1 and controllers are off on v2; kubelet wants both there."""
    for hierarchy in hierarchies():
        _offer_controllers(hierarchy)
        for group in (hierarchy / CGROUP, hierarchy / CGROUP / DAEMONS):
            group.mkdir(exist_ok=True)
            for setting in ("cpuset.cpus", "cpuset.mems"):
                file = group / setting
                if file.exists() and not file.read_text().strip() and (value := (group.parent / setting).read_text().strip()):
                    file.write_text(value)


def daemons() -> str:
    """The directories that a daemon joins, in the form of launch.py."""
    return ":".join(str(hierarchy / CGROUP / DAEMONS) for hierarchy in hierarchies())


def members() -> list[Identity]:
    """Every process in ours, containers included."""
    pids = {int(pid) for group in _ours() for pid in _read(group / "cgroup.procs").split() if pid != "0"}
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


def _offer_controllers(hierarchy: Path) -> None:
    """Only where v2 is all there is: on a hybrid machine kubelet uses v1."""
    controllers = hierarchy / "cgroup.controllers"
    if hierarchy.name == "unified" or not controllers.exists():
        return
    for name in controllers.read_text().split():
        try:
            (hierarchy / "cgroup.subtree_control").write_text(f"+{name}")
        except OSError:
            continue  # not ours to delegate; kubelet reports what it misses
