"""Sets limits on cgroups, reads them back, and proves on a cgroup of our own that they can be set.

Belongs here: the two ways to set a limit, and when a limit that was read is the one that was wanted. Every call takes a bounded
time and may be made on any thread. Never: which limits a container must have (`wanted.py`).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final, Protocol

from accelshare.agent.limits import dmem
from accelshare.agent.limits.cgroups import CgroupError, CgroupTree
from accelshare.agent.limits.wanted import Limit
from accelshare.vendors.drivers.driver import HostCard, QueryFailed
from accelshare.vendors.drivers.library_client import LibraryClient
from accelshare.vendors.enforcement import Enforcement, ProbeResult
from accelshare.vendors.profile import Way
from accelshare.vendors.value_types import LimitSetter

PROBE_BYTES: Final = 1 << 30
PROBE_S: Final = 15.0  # for all cards of a kind; a library may have to be opened first
# A driver may round a limit down to its pages. More than wanted is never accepted.
ROUNDING: Final = 2 << 20


class LimitError(Exception):
    """A limit could not be set, or another one was read back; the message gives both values."""


class Setter(Protocol):
    """One way to set limits. All may raise CgroupError or QueryFailed."""

    def find(self, kind: str, way: Way, card: HostCard) -> Enforcement:
        """How limits of this card are set."""
        ...

    def set(self, group: PurePosixPath, limit: Limit, timeout_s: float) -> int | None:
        """Set this limit for a group, and read it back; None: no limit was read."""
        ...

    def read(self, group: PurePosixPath, limit: Limit, timeout_s: float) -> int | None:
        """The limit that a group has of this card; None: none."""
        ...

    def clear(self, group: PurePosixPath, limit: Limit, timeout_s: float) -> None: ...

    def used(self, group: PurePosixPath, limit: Limit, timeout_s: float) -> int | None:
        """What a group uses of this card; None: that is not known."""
        ...


class DmemSetter:
    """The kernel's controller: files in the group."""

    def __init__(self, tree: CgroupTree) -> None:
        self._tree = tree

    def find(self, kind: str, way: Way, card: HostCard) -> Enforcement:
        self._tree.enable(dmem.CONTROLLER)
        capacity = self._tree.read(PurePosixPath(), dmem.CAPACITY)
        regions = dmem.regions(capacity, card, way.region)
        if not regions:
            names = ", ".join(dmem.values(capacity)) or "none"
            raise CgroupError(f"no region of {dmem.CAPACITY} belongs to card {card.index} (address {card.pci!r}); it has {names}")
        return Enforcement(way.set_by, set_by=way.set_by, regions=regions)

    def set(self, group: PurePosixPath, limit: Limit, timeout_s: float) -> int | None:
        for region, part in dmem.parts(limit.way.regions, limit.bytes).items():  # newer kernels take one region per write
            self._tree.write(group, dmem.MAX, f"{region} {part}")
        return self.read(group, limit, timeout_s)

    def read(self, group: PurePosixPath, limit: Limit, timeout_s: float) -> int | None:
        return dmem.limit_in(self._tree.read(group, dmem.MAX), limit.way.regions)

    def clear(self, group: PurePosixPath, limit: Limit, timeout_s: float) -> None:
        for region in limit.way.regions:
            self._tree.write(group, dmem.MAX, f"{region.name} max")

    def used(self, group: PurePosixPath, limit: Limit, timeout_s: float) -> int | None:
        return dmem.limit_in(self._tree.read(group, dmem.CURRENT), limit.way.regions)


class LibrarySetter:
    """The vendor's driver, through its library."""

    def __init__(self, tree: CgroupTree, libraries: Mapping[str, LibraryClient]) -> None:
        self._tree = tree
        self._libraries = libraries

    def find(self, kind: str, way: Way, card: HostCard) -> Enforcement:
        self._library(kind)
        return Enforcement(way.set_by, set_by=way.set_by)

    def set(self, group: PurePosixPath, limit: Limit, timeout_s: float) -> int | None:
        return self._call("set_memory_limit", group, limit, limit.bytes, timeout_s=timeout_s)

    def read(self, group: PurePosixPath, limit: Limit, timeout_s: float) -> int | None:
        return self._call("memory_limit", group, limit, timeout_s=timeout_s)

    def clear(self, group: PurePosixPath, limit: Limit, timeout_s: float) -> None:
        self._call("set_memory_limit", group, limit, None, timeout_s=timeout_s)

    def used(self, group: PurePosixPath, limit: Limit, timeout_s: float) -> int | None:
        return self._call("memory_used", group, limit, timeout_s=timeout_s)

    def _call(self, what: str, group: PurePosixPath, limit: Limit, *more: int | None, timeout_s: float) -> int | None:
        path = str(self._tree.path(group))
        found: int | None = self._library(limit.kind).call(what, limit.id, path, *more, into=int | None, timeout_s=timeout_s)
        return found

    def _library(self, kind: str) -> LibraryClient:
        library = self._libraries.get(kind)
        if library is None:
            raise QueryFailed(f"the driver of {kind} has no library that sets limits")
        return library


class ContainerLimits:
    """Limits of this node's cards on cgroups."""

    def __init__(
        self,
        tree: CgroupTree,
        libraries: Mapping[str, LibraryClient],
        *,
        unavailable: Callable[[], str] = lambda: "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`unavailable`: why the agent sets no limits at all now; empty if it does. `libraries`: by kind."""
        self._tree = tree
        self._by_kernel: Setter = DmemSetter(tree)
        self._by_driver: Setter = LibrarySetter(tree, libraries)
        self._unavailable = unavailable
        self._clock = clock

    def prove(self, kind: str, card: HostCard, way: Way, *, deadline: float) -> ProbeResult:
        """Whether a limit of this card can be set, read back and cleared, before this moment of the clock."""
        if problem := self._unavailable():
            return ProbeResult(met=False, message=problem)
        setter, timeout_s = self._setter(way.set_by), max(deadline - self._clock(), 0)
        try:
            with self._tree.scratch() as group:
                found_way = setter.find(kind, way, card)
                limit = Limit(kind, card.index, card.id, PROBE_BYTES, found_way)
                found = setter.set(group, limit, timeout_s)
                setter.clear(group, limit, timeout_s)
        except (CgroupError, QueryFailed) as error:
            return ProbeResult(met=False, message=str(error))
        if not is_held(limit, found):
            return ProbeResult(met=False, message=f"a limit of {PROBE_BYTES} bytes was set and {shown(found)} read back")
        return ProbeResult(met=True, message="a limit was set and read back", regions=found_way.regions)

    def hold(self, group: PurePosixPath, limits: Sequence[Limit], *, timeout_s: float) -> None:
        """Set these limits for a group and read them back; LimitError if one is not held in time."""
        deadline = self._clock() + timeout_s
        for limit in limits:
            self._set(group, limit, deadline)

    def ensure(self, group: PurePosixPath, limits: Sequence[Limit], *, timeout_s: float) -> None:
        """Set those of these limits that a group does not have; LimitError if one is not held in time."""
        deadline = self._clock() + timeout_s
        for limit in limits:
            found = self._try(limit, lambda setter: setter.read(group, limit, timeout_s))  # noqa: B023 – called at once
            if not is_held(limit, found):
                self._set(group, limit, deadline)

    def repair(self, group: PurePosixPath, limit: Limit, *, timeout_s: float) -> str:
        """Set a limit that is missing or wrong. Returns what was read before; empty if it was held, or its group is gone."""
        if not self._tree.has(group):
            return ""
        deadline = self._clock() + timeout_s
        found = self._try(limit, lambda setter: setter.read(group, limit, timeout_s))
        # What a driver reads may be the limit of the pod, which does not show the container its own size: it is set in any case.
        if not is_held(limit, found) or limit.way.by_driver:
            self._set(group, limit, deadline)
        return "" if is_held(limit, found) else shown(found)

    def exists(self, group: PurePosixPath) -> bool:
        """Whether the group is there: that of a container that has ended is gone."""
        return self._tree.has(group)

    def used(self, group: PurePosixPath, limit: Limit, *, timeout_s: float) -> int:
        """The bytes of the limit's card that a group uses; LimitError if that cannot be read."""
        found = self._try(limit, lambda setter: setter.used(group, limit, timeout_s))
        if found is None:
            raise LimitError(f"how much of card {limit.card} of {limit.kind} is in use cannot be read by {limit.way.name}")
        return found

    def _set(self, group: PurePosixPath, limit: Limit, deadline: float) -> None:
        found = self._try(limit, lambda setter: setter.set(group, limit, max(deadline - self._clock(), 0)))
        if not is_held(limit, found):
            raise LimitError(f"{limit} is the limit that {limit.way.name} set, and {shown(found)} was read back")

    def _setter(self, set_by: LimitSetter) -> Setter:
        return self._by_kernel if set_by == "dmem" else self._by_driver

    def _try(self, limit: Limit, call: Callable[[Setter], int | None]) -> int | None:
        try:
            return call(self._setter(limit.way.set_by))
        except (CgroupError, QueryFailed) as error:
            raise LimitError(f"the limit of {limit} cannot be set by {limit.way.name}: {error}") from error


def is_held(limit: Limit, found: int | None) -> bool:
    return found is not None and limit.bytes - ROUNDING < found <= limit.bytes


def shown(found: int | None) -> str:
    return "no limit" if found is None else f"{found} bytes"
