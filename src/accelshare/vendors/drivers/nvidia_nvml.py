"""NVML through ctypes: the cards it lists, the status of each, the processes on it, the XIDs it reports, and limits of memory.

Belongs here: the functions and structures of libnvidia-ml. It runs in a helper process (`library_main.py`).
Never: what an XID means for health (`nvidia_xids.py`).

The PyPI package nvidia-ml-py loads libnvidia-ml.so.1 by that name alone and keeps it in module globals; a path of ours and a
second library in one process would mean writing to its private state. It also costs 5 MiB. These are the functions we call.
"""

import ctypes
from collections.abc import Iterable
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_int64, c_uint, c_uint64, c_void_p
from dataclasses import dataclass
from functools import partial
from typing import Final

from accelshare.vendors.drivers import pci
from accelshare.vendors.drivers.ctypes_library import Library, NvmlMemory, list_devices, optional
from accelshare.vendors.drivers.driver import CardProcess, HostCard, Listing, QueryFailed, listing
from accelshare.vendors.drivers.library_errors import (
    DRIVER_MISMATCH,
    DRIVER_NOT_LOADED,
    GPU_NOT_FOUND,
    INSUFFICIENT_SIZE,
    LOST,
    NOT_FOUND,
    NOT_SUPPORTED,
    TIMEOUT,
    UNINITIALIZED,
    LibraryError,
    library_error,
)
from accelshare.vendors.drivers.nvidia_xids import recovery_problem

LIBRARIES: Final = ("libnvidia-ml.so.1", "libnvidia-ml.so")
# Where distributions put it, and where the vendor's operator puts a driver of its own.
FOLDERS: Final = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "/run/nvidia/driver/usr/lib64",
)
MIG_IS_ON: Final = "MIG is on, so its memory belongs to its instances; switch MIG off to share the whole card"

# Names of one function in different versions of the library, newest first.
_COUNT = "nvmlDeviceGetCount_v2 nvmlDeviceGetCount"
_HANDLE = "nvmlDeviceGetHandleByIndex_v2 nvmlDeviceGetHandleByIndex"

# Version 2 first: version 3 has the same structure, except in drivers 535.43 to 535.86, which wrote a larger one under that name.
_PROCESS_LISTS = (
    "nvmlDeviceGetComputeRunningProcesses_v2 nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v2 nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v2 nvmlDeviceGetMPSComputeRunningProcesses_v3",
)
# Before driver 460. Of no other list is an earlier version known.
_FIRST_PROCESS_LIST = "nvmlDeviceGetComputeRunningProcesses"
_UTILISATION = "nvmlDeviceGetProcessUtilization"
_ACCOUNTING_MODE, _ACCOUNTING = "nvmlDeviceGetAccountingMode", "nvmlDeviceGetAccountingStats"
_MOST_PROCESSES = 4096  # of one card; the answer must fit into one line to the agent
_ROOM = 64  # for processes that start between two calls
_NOT_AVAILABLE = 2**64 - 1

_XID_CRITICAL = 0x8
_RECOVERY_ACTION_FIELD = 230
_MOST_EVENTS_AT_ONCE = 256
# Not about a card: NVML itself must be opened again.
_BROKEN = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, DRIVER_MISMATCH})
# No limit is set for a cgroup, nor for one above it.
_WITHOUT_LIMIT = frozenset({NOT_SUPPORTED, NOT_FOUND})
_NO_LIMIT = 2**64 - 1
# The card has disappeared, as during a reset.
_AWAY = frozenset({LOST, NOT_FOUND, GPU_NOT_FOUND})


@dataclass(frozen=True, slots=True)
class NvmlCardStatus:
    """The status of one card in NVML."""

    id: str
    problem: str = ""
    away: bool = False  # it has disappeared
    used_mib: int | None = None
    recovery_action: int | None = None  # 0 for none; None if this driver does not report it
    listening: bool = False  # its XID events are registered


@dataclass(frozen=True, slots=True)
class NvmlProcesses:
    """The processes on one card in NVML, or why it does not tell them."""

    id: str
    processes: tuple[CardProcess, ...] = ()
    problem: str = ""


class Nvml:
    """NVML, initialised until `close`. Every method may raise QueryFailed; LibraryError has NVML's code."""

    def __init__(self, name: str) -> None:
        self._library = library = Library(name)
        library.require("nvmlErrorString", _COUNT, _HANDLE)
        library.require("nvmlDeviceGetHandleByUUID", "nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo")
        library.read_error_texts("nvmlErrorString")
        self._events: c_void_p | None = None
        self._registered: dict[int, str] = {}
        self._silent: set[str] = set()  # cards that report no events: they are only polled
        self._sampled: dict[str, int] = {}  # by card: the time of the latest utilisation that was read
        self._shutdown = library.bind("nvmlShutdown")
        library.bind("nvmlInit_v2 nvmlInit")()

    def close(self) -> None:
        self.stop_listening()
        optional(self._shutdown)

    def listing(self) -> Listing:
        """All cards, without those in MIG mode and those that do not answer."""
        return listing(*list_devices(self._library.read(_COUNT, c_uint).value, self._card))

    def _card(self, index: int) -> HostCard:
        read = self._library.read
        device = read(_HANDLE, c_void_p, c_uint(index))
        uuid = self._text("nvmlDeviceGetUUID", device)
        self._refuse_mig(device)
        memory = self._memory_of(device)
        info = optional(lambda: read("nvmlDeviceGetPciInfo_v3", _PciInfo, device))
        problem = recovery_problem(optional(lambda: self._recovery_action(device)))
        return HostCard(
            index=index,
            id=uuid,
            memory_mib=memory.total >> 20 if memory is not None else 0,
            measured=memory is not None,
            minor=optional(lambda: read("nvmlDeviceGetMinorNumber", c_uint, device).value),
            model=optional(lambda: self._text("nvmlDeviceGetName", device)) or "",
            pci=pci.address(info.bus_id.decode("ascii", "replace")) if info else "",
            healthy=not problem,
            problem=problem,
        )

    def statuses(self, ids: list[str]) -> list[NvmlCardStatus]:
        """The status of these cards. From now on `xid_events` returns the XIDs of those that report any."""
        if not self._registered:
            self.stop_listening()
        return [self._status(id) for id in ids]

    def _status(self, id: str) -> NvmlCardStatus:
        try:
            device = self._library.read("nvmlDeviceGetHandleByUUID", c_void_p, c_char_p(id.encode()))
            self._refuse_mig(device)
            memory = self._memory_of(device)
        except LibraryError as error:
            if error.code in _BROKEN:
                raise
            if error.code in _AWAY:  # its events must be registered again when it is back
                self._registered = {handle: known for handle, known in self._registered.items() if known != id}
            return NvmlCardStatus(id, str(error), away=error.code in _AWAY)
        except QueryFailed as error:
            return NvmlCardStatus(id, str(error))
        if id not in self._registered.values() and id not in self._silent:
            self._listen(id, device)
        action = optional(lambda: self._recovery_action(device))
        used_mib = memory.used >> 20 if memory is not None else None
        return NvmlCardStatus(id, used_mib=used_mib, recovery_action=action, listening=id in self._registered.values())

    def _memory_of(self, device: c_void_p) -> NvmlMemory | None:
        """The memory of a card; None if it has none of its own because it shares the host's."""
        try:
            return self._library.read("nvmlDeviceGetMemoryInfo", NvmlMemory, device)
        except LibraryError as error:
            if error.code == NOT_SUPPORTED:
                return None
            raise

    def _recovery_action(self, device: c_void_p) -> int | None:
        field = _FieldValue(_RECOVERY_ACTION_FIELD)
        query = self._library.bind("nvmlDeviceGetFieldValues", c_void_p, c_int, POINTER(_FieldValue))
        query(device, 1, byref(field))
        return int(field.value & 0xFFFFFFFF) if field.result == 0 else None

    def _listen(self, id: str, device: c_void_p) -> None:
        try:
            if self._events is None:
                self._events = self._library.read("nvmlEventSetCreate", c_void_p)
            supported = self._library.read("nvmlDeviceGetSupportedEventTypes", c_uint64, device).value
            if not supported & _XID_CRITICAL:
                raise library_error("nvmlDeviceGetSupportedEventTypes", NOT_SUPPORTED, "no XID events")
            self._library.bind("nvmlDeviceRegisterEvents", c_void_p, c_uint64, c_void_p)(device, _XID_CRITICAL, self._events)
            self._registered[device.value or 0] = id
        except LibraryError as error:
            if error.code == NOT_SUPPORTED:
                self._silent.add(id)
        except QueryFailed:  # a library without the function
            self._silent.add(id)

    def xid_events(self, wait_s: float) -> list[tuple[str, int]]:
        """The XIDs reported within this time: the card's id, empty if it is not known, and the number."""
        wait = self._library.bind("nvmlEventSetWait_v2 nvmlEventSetWait", c_void_p, POINTER(_EventData), c_uint)
        found: list[tuple[str, int]] = []
        while len(found) < _MOST_EVENTS_AT_ONCE:
            event = _EventData()
            try:
                wait(self._events, byref(event), 0 if found else round(wait_s * 1000))
            except LibraryError as error:
                if error.code == TIMEOUT:
                    break
                raise
            if event.type & _XID_CRITICAL:
                found.append((self._registered.get(event.device or 0, ""), event.data))
        return found

    def processes(self, ids: list[str]) -> list[NvmlProcesses]:
        """The processes on these cards."""
        return [self._processes_of(id) for id in ids]

    def _processes_of(self, id: str) -> NvmlProcesses:
        try:
            device = self._library.read("nvmlDeviceGetHandleByUUID", c_void_p, c_char_p(id.encode()))
            used = self._memory_by_pid(device)
        except LibraryError as error:
            if error.code in _BROKEN:
                raise
            return NvmlProcesses(id, problem=str(error))
        except QueryFailed as error:
            return NvmlProcesses(id, problem=str(error))
        busy = optional(lambda: self._utilisation(id, device))
        if busy is None:
            accounted = optional(lambda: self._accounted(device, used)) or {}
            return NvmlProcesses(id, tuple(CardProcess(pid, used[pid], accounted.get(pid)) for pid in sorted(used)))
        # A process that is not listed with its utilisation had none.
        return NvmlProcesses(id, tuple(CardProcess(pid, used[pid], busy.get(pid, 0.0)) for pid in sorted(used)))

    def _memory_by_pid(self, device: c_void_p) -> dict[int, int | None]:
        """Bytes by process. A process is in several lists if it does several things; it has the same memory in each."""
        compute, *others = _PROCESS_LISTS
        if not any(self._library.has(name) for name in compute.split()):
            return _largest(self._list(_FIRST_PROCESS_LIST, device, _FirstProcessInfo))
        found = list(self._list(compute, device, _ProcessInfo))
        for names in others:
            found += optional(partial(self._list, names, device, _ProcessInfo)) or ()
        return _largest(found)

    def _list(self, names: str, device: c_void_p, kind: "type[_ProcessInfo | _FirstProcessInfo]") -> list[tuple[int, int]]:
        query = self._library.bind(names, c_void_p, POINTER(c_uint), c_void_p)
        count, room = c_uint(0), 0
        while True:
            rows = (kind * room)() if room else None
            try:
                query(device, byref(count), rows)
            except LibraryError as error:
                if error.code != INSUFFICIENT_SIZE or room == _MOST_PROCESSES:
                    raise
                room = min(_MOST_PROCESSES, max(count.value, room) + _ROOM)
                count = c_uint(room)
                continue
            return [(row.pid, row.used) for row in rows[: count.value]] if rows is not None else []

    def _utilisation(self, id: str, device: c_void_p) -> dict[int, float]:
        """The share of the time in which a process ran on the card, since the last call; processes without any are left out."""
        query = self._library.bind(_UTILISATION, c_void_p, c_void_p, POINTER(c_uint), c_uint64)
        since = self._sampled.get(id, 0)
        count, room = c_uint(0), 0
        while True:
            rows = (_UtilisationSample * room)() if room else None
            try:
                query(device, rows, byref(count), since)
            except LibraryError as error:
                if error.code == NOT_FOUND:
                    return {}
                if error.code != INSUFFICIENT_SIZE or room == _MOST_PROCESSES:
                    raise
                room = min(_MOST_PROCESSES, max(count.value, room) + _ROOM)
                count = c_uint(room)
                continue
            samples = rows[: count.value] if rows is not None else []
            self._sampled[id] = max([since, *(sample.timestamp for sample in samples)])
            # Drivers are known to return numbers far above 100 for processes that have ended.
            return {sample.pid: sample.sm / 100 for sample in samples if sample.sm <= 100}

    def _accounted(self, device: c_void_p, pids: Iterable[int]) -> dict[int, float]:
        """The share of its life in which each process ran on the card: for drivers that have no samples, if accounting is on."""
        if not self._library.read(_ACCOUNTING_MODE, c_uint, device).value:
            return {}
        query = self._library.bind(_ACCOUNTING, c_void_p, c_uint, POINTER(_AccountingStats))
        found: dict[int, float] = {}
        for pid in pids:
            stats = _AccountingStats()
            try:
                query(device, pid, byref(stats))
            except LibraryError as error:
                if error.code != NOT_FOUND:  # it has ended, or began before accounting did
                    raise
                continue
            if stats.gpu <= 100:  # all bits are set if it is not available
                found[pid] = stats.gpu / 100
        return found

    def stop_listening(self) -> None:
        events, self._events, self._registered = self._events, None, {}
        if events is not None:
            optional(lambda: self._library.bind("nvmlEventSetFree", c_void_p)(events))

    def set_memory_limit(self, id: str, group: str, limit: int | None) -> int | None:
        """Limit the processes of a cgroup to so many bytes of this card (None: no limit), and read the limit back."""
        device = self._device(id)
        # Soft is what MPS guarantees: 0, because the kernel's sums of soft limits above a cgroup outlive it.
        limits = _SetMemoryLimits(group.encode(), 0, _NO_LIMIT if limit is None else limit)
        self._library.bind("nvmlDeviceSetMemoryLimits_v1", c_void_p, POINTER(_SetMemoryLimits))(device, byref(limits))
        return self._memory_limit(device, group)

    def memory_limit(self, id: str, group: str) -> int | None:
        """The bytes of this card to which processes of a cgroup are limited; None: no limit."""
        return self._memory_limit(self._device(id), group)

    def memory_used(self, id: str, group: str) -> int | None:
        """The bytes of this card that processes of a cgroup with a limit use; None: it has no limit."""
        limits = self._memory_limits(self._device(id), group)
        return None if limits is None else limits.used

    def _device(self, id: str) -> c_void_p:
        device = self._library.read("nvmlDeviceGetHandleByUUID", c_void_p, c_char_p(id.encode()))
        self._refuse_mig(device)
        return device

    def _memory_limit(self, device: c_void_p, group: str) -> int | None:
        limits = self._memory_limits(device, group)
        return None if limits is None or limits.hard == _NO_LIMIT else limits.hard

    def _memory_limits(self, device: c_void_p, group: str) -> "_GetMemoryLimits | None":
        limits = _GetMemoryLimits(group.encode())
        query = self._library.bind("nvmlDeviceGetMemoryLimits_v1", c_void_p, POINTER(_GetMemoryLimits))
        try:
            query(device, byref(limits))
        except LibraryError as error:
            if error.code in _WITHOUT_LIMIT:
                return None
            raise
        return limits

    def _refuse_mig(self, device: c_void_p) -> None:
        current, pending = c_uint(), c_uint()
        query = optional(lambda: self._library.bind("nvmlDeviceGetMigMode", c_void_p, POINTER(c_uint), POINTER(c_uint)))
        if query is None:
            return  # a driver older than MIG
        try:
            query(device, byref(current), byref(pending))
        except LibraryError as error:
            if error.code == NOT_SUPPORTED:
                return
            raise
        if current.value:
            raise QueryFailed(MIG_IS_ON)

    def _text(self, function: str, device: c_void_p) -> str:
        return self._library.read_text(function, device, c_uint(96))


def _largest(rows: list[tuple[int, int]]) -> dict[int, int | None]:
    by_pid: dict[int, int | None] = {}
    for pid, used in rows:
        known = None if used == _NOT_AVAILABLE else used
        before = by_pid.get(pid)
        by_pid[pid] = known if before is None else before if known is None else max(before, known)
    return by_pid


class _FirstProcessInfo(ctypes.Structure):
    _fields_ = (("pid", c_uint), ("used", c_uint64))
    pid: int
    used: int


class _ProcessInfo(ctypes.Structure):
    _fields_ = (("pid", c_uint), ("used", c_uint64), ("gpu_instance", c_uint), ("compute_instance", c_uint))
    pid: int
    used: int


class _UtilisationSample(ctypes.Structure):
    _fields_ = (
        ("pid", c_uint),
        ("timestamp", c_uint64),
        ("sm", c_uint),
        ("memory", c_uint),
        ("encoder", c_uint),
        ("decoder", c_uint),
    )
    pid: int
    timestamp: int
    sm: int


class _AccountingStats(ctypes.Structure):
    _fields_ = (
        ("gpu", c_uint),
        ("memory", c_uint),
        ("most_memory", c_uint64),
        ("time_ms", c_uint64),
        ("started_us", c_uint64),
        ("running", c_uint),
        ("reserved", c_uint * 5),
    )
    gpu: int


class _PciInfo(ctypes.Structure):
    _fields_ = (
        ("legacy_bus_id", c_char * 16),
        ("domain", c_uint),
        ("bus", c_uint),
        ("device", c_uint),
        ("pci_device_id", c_uint),
        ("pci_subsystem_id", c_uint),
        ("bus_id", c_char * 32),
    )
    bus_id: bytes


class _EventData(ctypes.Structure):
    _fields_ = (
        ("device", c_void_p),
        ("type", c_uint64),
        ("data", c_uint64),
        ("gpu_instance", c_uint),
        ("compute_instance", c_uint),
    )
    device: int | None
    type: int
    data: int


class _SetMemoryLimits(ctypes.Structure):
    _fields_ = (("group", c_char_p), ("soft", c_uint64), ("hard", c_uint64))


class _GetMemoryLimits(ctypes.Structure):
    _fields_ = (("group", c_char_p), ("soft", c_uint64), ("hard", c_uint64), ("used", c_uint64))
    hard: int
    used: int


class _FieldValue(ctypes.Structure):
    _fields_ = (
        ("field_id", c_uint),
        ("scope_id", c_uint),
        ("timestamp", c_int64),
        ("latency_us", c_int64),
        ("value_type", c_uint),
        ("result", c_uint),
        ("value", c_uint64),
    )
    result: int
    value: int
