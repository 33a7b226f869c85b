"""XPUML through ctypes: the cards that libxpuml.so lists, with their state.

Belongs here: the functions and structures of the library, as its header has them. Never: the tool, /proc.
"""

import ctypes
from collections.abc import Mapping
from ctypes import c_char, c_int, c_uint, c_uint64, c_void_p
from typing import Final

from accelshare.vendors.drivers import pci
from accelshare.vendors.drivers.ctypes_library import Library, list_devices, optional
from accelshare.vendors.drivers.driver import HostCard, Listing, QueryFailed, listing
from accelshare.vendors.drivers.kunlun_smi import PF_IS_NO_CARD, board_id, with_distinct_ids

LIBRARIES: Final = ("libxpuml.so.1", "libxpuml.so")
FOLDERS: Final = ("/usr/local/xpu/lib64", "/usr/local/xpu/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib")

# xpumlDeviceState_t; a card in use is RUNNING, an idle one UNUSED.
GOOD_STATES: Final = frozenset({0, 201})
STATES: Final[Mapping[int, str]] = {0: "UNUSED", 201: "RUNNING", 205: "IN_RESET", 207: "ERROR", 208: "IN_EXCEPTION"}

# xpumlDeviceModel_t
PF_MODEL: Final = 200
MODELS: Final[Mapping[int, str]] = {
    0: "K200",
    1: "K100",
    2: "R200",
    3: "R300",
    4: "R200-8F",
    PF_MODEL: "R200-PF",
    201: "R200-VF-16G",
    202: "R200-VF-8G",
    203: "R200-VF-5G",
}
_SRIOV_ON = 2


class Xpuml:
    """XPUML, initialised until `close`."""

    def __init__(self, name: str) -> None:
        self._library = library = Library(name)
        library.read_error_texts("xpumlErrorString")
        library.require("xpumlDeviceGetCount", "xpumlDeviceGetHandleByIndex", "xpumlDeviceGetMemoryInfo", "xpumlDeviceGetState")
        self._shutdown = library.bind("xpumlShutdown")
        library.bind("xpumlInit")()

    def close(self) -> None:
        optional(self._shutdown)

    def listing(self) -> Listing:
        """All cards, without physical functions that only carry virtual ones, and without those that do not answer."""
        cards, skipped = list_devices(self._library.read("xpumlDeviceGetCount", c_uint).value, self._card)
        return listing(with_distinct_ids(cards), skipped)

    def _card(self, index: int) -> HostCard:
        read = self._library.read
        device = read("xpumlDeviceGetHandleByIndex", _Device, c_uint(index))
        state = read("xpumlDeviceGetState", c_int, device).value
        attributes = optional(lambda: read("xpumlDeviceGetAttributes", _Attributes, device))
        sriov_mode = optional(lambda: read("xpumlDeviceGetHostVxpuMode", c_int, device).value)
        if (attributes and attributes.model == PF_MODEL) or sriov_mode == _SRIOV_ON:
            raise QueryFailed(PF_IS_NO_CARD)
        memory = read("xpumlDeviceGetMemoryInfo", _Memory, device)
        info = optional(lambda: read("xpumlDeviceGetPciInfo", _PciInfo, device))
        place = pci.format_address(info.domain, info.bus, info.device, info.function) if info else ""
        serial = optional(lambda: self._library.read_text("xpumlDeviceGetSerial", device, c_uint(128))) or ""
        minor = optional(lambda: read("xpumlDeviceGetMinorNumber", c_uint, device).value)
        minor = index if minor is None else minor  # an older library does not report it; its index is the kernel's number
        healthy = state in GOOD_STATES
        return HostCard(
            index=index,
            id=board_id(serial, place, minor),
            memory_mib=memory.total_global >> 20,
            used_mib=memory.used_global >> 20,
            minor=minor,
            model=MODELS.get(attributes.model, "") if attributes else "",
            pci=place,
            healthy=healthy,
            problem="" if healthy else f"state {STATES.get(state, state)}",
        )


class _Device(ctypes.Structure):
    """A handle: a structure of one pointer, passed by value."""

    _fields_ = (("handle", c_void_p),)


# Each of these is 128 bytes or a little more in the header; the tail keeps a newer library from writing past the end.
class _Memory(ctypes.Structure):
    _fields_ = (
        ("page_global", c_uint64),
        ("total_global", c_uint64),
        ("free_global", c_uint64),
        ("used_global", c_uint64),
        ("reserved", c_uint64 * 28),
    )
    total_global: int
    used_global: int


class _PciInfo(ctypes.Structure):
    _fields_ = (
        ("domain", c_uint),
        ("bus", c_uint),
        ("device", c_uint),
        ("function", c_uint),
        ("pci_device_id", c_uint),
        ("pci_subsystem_id", c_uint),
        ("bus_id", c_char * 32),
        ("reserved", c_uint64 * 25),
    )
    domain: int
    bus: int
    device: int
    function: int


class _Attributes(ctypes.Structure):
    _fields_ = (("arch", c_int), ("board", c_int), ("model", c_int), ("reserved", c_uint64 * 30))
    model: int
