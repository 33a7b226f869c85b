"""XPUML through ctypes: the cards that libxpuml.so lists, with their state.

Belongs here: the functions and structures of the library, as its header has them. Never: the tool, /proc.
"""

import ctypes
from collections.abc import Mapping
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_uint, c_uint64, c_void_p, create_string_buffer
from typing import Final

from accelshare.vendors.drivers import pci
from accelshare.vendors.drivers.ctypes_library import Library, optional, text_of
from accelshare.vendors.drivers.driver import HostCard, Listing, QueryFailed, SkippedDevice, listing
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
        if library.has("xpumlErrorString"):
            words = library.raw("xpumlErrorString", c_int, restype=c_char_p)
            library.words = lambda code: (words(code) or b"").decode("utf-8", "replace")
        self._count = library.bind("xpumlDeviceGetCount", POINTER(c_uint))
        self._by_index = library.bind("xpumlDeviceGetHandleByIndex", c_uint, POINTER(_Device))
        self._memory = library.bind("xpumlDeviceGetMemoryInfo", _Device, POINTER(_Memory))
        self._state = library.bind("xpumlDeviceGetState", _Device, POINTER(c_int))
        self._shutdown = library.bind("xpumlShutdown")
        library.bind("xpumlInit")()

    def close(self) -> None:
        optional(self._shutdown)

    def listing(self) -> Listing:
        """All cards, without physical functions that only carry virtual ones, and without those that do not answer."""
        count = c_uint()
        self._count(byref(count))
        cards: list[HostCard] = []
        skipped: list[SkippedDevice] = []
        for index in range(count.value):
            try:
                cards.append(self._card(index))
            except QueryFailed as error:
                skipped.append(SkippedDevice(index, str(error)))
        return listing(with_distinct_ids(cards), skipped)

    def _card(self, index: int) -> HostCard:
        device = _Device()
        self._by_index(index, byref(device))
        state = c_int()
        self._state(device, byref(state))
        model = optional(lambda: self._model(device))
        if model == PF_MODEL or optional(lambda: self._sriov_mode(device)) == _SRIOV_ON:
            raise QueryFailed(PF_IS_NO_CARD)
        memory = _Memory()
        self._memory(device, byref(memory))
        place = optional(lambda: self._place(device)) or ""
        minor = optional(lambda: self._minor(device))
        minor = index if minor is None else minor  # an older library does not report it; its index is the kernel's number
        healthy = state.value in GOOD_STATES
        return HostCard(
            index=index,
            id=board_id(optional(lambda: self._serial(device)) or "", place, minor),
            memory_mib=memory.total_global >> 20,
            used_mib=memory.used_global >> 20,
            minor=minor,
            model=MODELS.get(-1 if model is None else model, ""),
            pci=place,
            healthy=healthy,
            problem="" if healthy else f"state {STATES.get(state.value, state.value)}",
        )

    def _serial(self, device: "_Device") -> str:
        serial = create_string_buffer(128)
        self._library.bind("xpumlDeviceGetSerial", _Device, c_char_p, c_uint)(device, serial, len(serial))
        return text_of(serial)

    def _minor(self, device: "_Device") -> int:
        minor = c_uint()
        self._library.bind("xpumlDeviceGetMinorNumber", _Device, POINTER(c_uint))(device, byref(minor))
        return minor.value

    def _place(self, device: "_Device") -> str:
        place = _PciInfo()
        self._library.bind("xpumlDeviceGetPciInfo", _Device, POINTER(_PciInfo))(device, byref(place))
        return pci.format_address(place.domain, place.bus, place.device, place.function)

    def _model(self, device: "_Device") -> int:
        attributes = _Attributes()
        self._library.bind("xpumlDeviceGetAttributes", _Device, POINTER(_Attributes))(device, byref(attributes))
        return attributes.model

    def _sriov_mode(self, device: "_Device") -> int:
        mode = c_int()
        self._library.bind("xpumlDeviceGetHostVxpuMode", _Device, POINTER(c_int))(device, byref(mode))
        return mode.value


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
