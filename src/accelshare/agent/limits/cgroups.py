"""The host's cgroup v2 tree: where a container's cgroup is, reading and writing its files, and a cgroup of our own for probes.

Belongs here: paths and files. Never: what the files mean.
"""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

SCRATCH: Final = PurePosixPath("accelshare-probe")
_CONTROLLERS: Final = "cgroup.controllers"
_SLICE: Final = ".slice"
_LONGEST_FILE: Final = 1 << 20


class CgroupError(Exception):
    """A cgroup cannot be used; the message names it."""


def container_group(cgroups_path: str) -> PurePosixPath:
    """Where the container's cgroup is below the tree's root; `cgroups_path` as the runtime gives it.

    With systemd it is slice:prefix:name, a scope in a slice whose name has those of all slices above it; else a path.
    """
    parts = cgroups_path.split(":")
    if len(parts) == 3:
        parent, prefix, name = parts
        unit = name if name.endswith(_SLICE) else f"{prefix}-{name}.scope"
        return _checked(pod_group(parent or "system.slice") / unit, cgroups_path)
    if len(parts) != 1:
        raise CgroupError(f"cgroup {cgroups_path!r} is neither slice:prefix:name nor a path")
    return _checked(PurePosixPath(cgroups_path), cgroups_path)


def pod_group(cgroup_parent: str) -> PurePosixPath:
    """Where a pod's cgroup is below the tree's root; `cgroup_parent` is a path, or with systemd the name of a slice."""
    if "/" in cgroup_parent or not cgroup_parent.endswith(_SLICE):
        return _checked(PurePosixPath(cgroup_parent), cgroup_parent)
    words = cgroup_parent.removesuffix(_SLICE).split("-")
    if words == ["", ""]:  # -.slice is the root
        return PurePosixPath()
    if not all(words):
        raise CgroupError(f"{cgroup_parent!r} is not the name of a slice")
    names = ("-".join(words[: count + 1]) + _SLICE for count in range(len(words)))
    return _checked(PurePosixPath(*names), cgroup_parent)


def _checked(path: PurePosixPath, text: str) -> PurePosixPath:
    relative = PurePosixPath(*path.parts[1:]) if path.is_absolute() else path
    if relative == PurePosixPath() or ".." in relative.parts or "\0" in text or "\n" in text:
        raise CgroupError(f"cgroup {text!r} is not a path below the root of all cgroups")
    return relative


class CgroupTree:
    """The tree that is mounted at `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._scratch_lock = threading.Lock()  # each vendor is probed on a thread of its own

    def path(self, group: PurePosixPath) -> Path:
        return self._root / group

    def has(self, group: PurePosixPath) -> bool:
        return self.path(group).is_dir()

    @property
    def is_v2(self) -> bool:
        return (self._root / _CONTROLLERS).exists()

    def require_v2(self) -> None:
        if not self.is_v2:
            raise CgroupError(f"cgroup v2 is needed, and {self._root / _CONTROLLERS} is not there")

    def enable(self, controller: str) -> None:
        """Give groups below the root this controller, as runc does for every container."""
        if controller not in self.read(PurePosixPath(), _CONTROLLERS).split():
            raise CgroupError(f"the kernel's controller {controller} is not in {self._root / _CONTROLLERS}")
        if controller not in self.read(PurePosixPath(), "cgroup.subtree_control").split():
            self.write(PurePosixPath(), "cgroup.subtree_control", f"+{controller}")

    def read(self, group: PurePosixPath, file: str) -> str:
        path = self.path(group) / file
        try:
            with path.open(encoding="utf-8", errors="replace") as opened:
                return opened.read(_LONGEST_FILE)
        except OSError as error:
            raise CgroupError(f"{path} cannot be read: {error.strerror}") from error

    def write(self, group: PurePosixPath, file: str, text: str) -> None:
        """One write, as the kernel wants it. A file is never created: the kernel makes those of the controllers it has."""
        path = self.path(group) / file
        try:
            opened = os.open(path, os.O_WRONLY | os.O_TRUNC)
            try:
                os.write(opened, text.encode())
            finally:
                os.close(opened)
        except OSError as error:
            raise CgroupError(f"{text!r} cannot be written to {path}: {error.strerror}") from error

    @contextlib.contextmanager
    def scratch(self) -> Iterator[PurePosixPath]:
        """A group of our own, without processes. It is removed at the end; one that was left by a killed agent is used again."""
        self.require_v2()
        with self._scratch_lock:
            path = self.path(SCRATCH)
            try:
                path.mkdir(exist_ok=True)
            except OSError as error:
                raise CgroupError(f"{path} cannot be created: {error.strerror}") from error
            try:
                yield SCRATCH
            finally:
                with contextlib.suppress(OSError):
                    path.rmdir()
