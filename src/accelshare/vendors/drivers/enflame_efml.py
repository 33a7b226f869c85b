"""EFML through ctypes: the cards that libefml.so lists, by its first API (Efml…) or by the newer one (efml…).

Belongs here: the functions and structures of the library, as its headers have them. Never: the tool, sysfs.

A library may have both APIs. The first is tried first, because only it reports whether a card is healthy.
"""

import ctypes
from ctypes import c_bool, c_char, c_char_p, c_int, c_uint, c_uint32, c_uint64, c_void_p, create_string_buffer
from typing import Final

from accelshare.vendors.drivers import pci
from accelshare.vendors.drivers.ctypes_library import Library, NvmlMemory, list_devices, optional, text_of
from accelshare.vendors.drivers.driver import HostCard, Listing, listing
from accelshare.vendors.drivers.enflame_efsmi import card_id, with_distinct_ids

LIBRARIES: Final = ("libefml.so.1", "libefml.so", "libefml.so.2")
FOLDERS: Final = ("/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/local/efsmi", "/usr/local/lib")
NOT_HEALTHY: Final = "the driver reports it as not healthy"

# Names of one function in different versions of the library, newest first.
_HEALTH: Final = "EfmlGetDevIsHealth EfmlGetDevHealth"
_HANDLE: Final = "efmlDeviceGetHandleByIndex_v2 efmlDeviceGetHandleByIndex"
_PCI_INFO: Final = "efmlDeviceGetPciInfo_v3 efmlDeviceGetPciInfo_v2 efmlDeviceGetPciInfo"


class FirstEfml:
    """The API that counts devices by number: EfmlGetDev…(index, …)."""

    def __init__(self, name: str) -> None:
        self._library = library = Library(name)
        if library.has("EfmlErrorString"):
            library.error_text = self._error_text
        library.require("EfmlGetDevMem", _HEALTH)
        self._shutdown = library.raw("EfmlShutdown", restype=None)
        library.bind("EfmlInit", c_bool)(False)

    def close(self) -> None:
        self._shutdown()

    def listing(self) -> Listing:
        cards, skipped = list_devices(self._library.read("EfmlGetDevCount", c_uint32).value, self._card)
        return listing(with_distinct_ids(cards), skipped)

    def _card(self, index: int) -> HostCard:
        read, read_text, device = self._library.read, self._library.read_text, c_uint32(index)
        memory = read("EfmlGetDevMem", _FirstMemory, device)
        healthy = read(_HEALTH, c_bool, device).value
        info = optional(lambda: read("EfmlGetDevInfo", _FirstInfo, device))
        place = pci.format_address(info.domain, info.bus, info.device, info.function) if info else ""
        name = optional(lambda: read_text("EfmlGetDevName", device)) or ""
        uuid = optional(lambda: read_text("EfmlGetDevUuid", device)) or ""
        serial = optional(lambda: read_text("EfmlGetDevSn", device)) or ""
        return HostCard(
            index=index,
            id=card_id(uuid, serial, place, index),
            memory_mib=memory.total >> 20,
            used_mib=memory.used_mib,
            model=name or (info.name.decode("utf-8", "replace") if info else ""),
            pci=place,
            healthy=healthy,
            problem="" if healthy else NOT_HEALTHY,
        )

    def _error_text(self, code: int) -> str:
        text = create_string_buffer(256)
        self._library.raw("EfmlErrorString", c_int, c_char_p)(code, text)
        return text_of(text)


class NewerEfml:
    """The API modelled on NVML: efmlDevice…(handle, …). It has no call for health: a card that answers is healthy."""

    def __init__(self, name: str) -> None:
        self._library = library = Library(name)
        library.read_error_texts("efmlErrorString")
        library.require(_HANDLE, "efmlDeviceGetMemoryInfo")
        self._shutdown = library.bind("efmlShutdown")
        library.bind("efmlInit_v2 efmlInit")()

    def close(self) -> None:
        optional(self._shutdown)

    def listing(self) -> Listing:
        count = self._library.read("efmlDeviceGetCount_v2 efmlDeviceGetCount", c_uint).value
        cards, skipped = list_devices(count, self._card)
        return listing(with_distinct_ids(cards), skipped)

    def _card(self, index: int) -> HostCard:
        device = self._library.read(_HANDLE, c_void_p, c_uint(index))
        memory = self._library.read("efmlDeviceGetMemoryInfo", NvmlMemory, device)
        place = optional(lambda: self._place(device)) or ""
        uuid = optional(lambda: self._text("efmlDeviceGetUUID", device)) or ""
        serial = optional(lambda: self._text("efmlDeviceGetSerial", device)) or ""
        return HostCard(
            index=index,
            id=card_id(uuid, serial, place, index),
            memory_mib=memory.total >> 20,
            used_mib=memory.used >> 20,
            model=optional(lambda: self._text("efmlDeviceGetName", device)) or "",
            pci=place,
        )

    def _text(self, function: str, device: c_void_p) -> str:
        return self._library.read_text(function, device, c_uint(96))

    def _place(self, device: c_void_p) -> str:
        # Public headers disagree on the order of the fields, all have the address as text among them.
        info = self._library.read(_PCI_INFO, c_char * 256, device)
        return pci.address(info.raw.replace(b"\0", b" ").decode("ascii", "replace"))


class _FirstInfo(ctypes.Structure):
    _fields_ = (
        ("name", c_char * 128),
        ("vendor_id", c_uint32),
        ("device_id", c_uint32),
        ("domain", c_uint32),
        ("bus", c_uint32),
        ("device", c_uint32),
        ("function", c_uint32),
        ("logic", c_uint32),
    )
    name: bytes
    domain: int
    bus: int
    device: int
    function: int


class _FirstMemory(ctypes.Structure):
    """Bytes in all, MiB in use."""

    _fields_ = (("total", c_uint64), ("used_mib", c_uint32))
    total: int
    used_mib: int
