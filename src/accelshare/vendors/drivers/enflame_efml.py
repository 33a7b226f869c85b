"""EFML through ctypes: the cards that libefml.so lists, by its first API (Efml…) or by the newer one (efml…).

Belongs here: the functions and structures of the library, as its headers have them. Never: the tool, sysfs.

A library may have both APIs. The first is asked first, because only it tells whether a card is healthy.
"""

import ctypes
from ctypes import POINTER, byref, c_bool, c_char, c_char_p, c_int, c_uint, c_uint32, c_uint64, c_void_p, create_string_buffer
from typing import Final

from accelshare.vendors.drivers import pci
from accelshare.vendors.drivers.ctypes_library import Library, optional, text_of
from accelshare.vendors.drivers.driver import HostCard, Listing, QueryFailed, SkippedDevice, listing
from accelshare.vendors.drivers.enflame_efsmi import card_id, with_distinct_ids

LIBRARIES: Final = ("libefml.so.1", "libefml.so", "libefml.so.2")
FOLDERS: Final = ("/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/local/efsmi", "/usr/local/lib")
NOT_HEALTHY: Final = "the driver reports it as not healthy"

# The functions that take no length write up to 128 bytes.
_TEXT_BYTES = 256


class _Api:
    """What both APIs share: counting, and leaving out what does not answer."""

    def __init__(self, name: str) -> None:
        self._library = Library(name)

    def listing(self) -> Listing:
        cards: list[HostCard] = []
        skipped: list[SkippedDevice] = []
        for index in range(self._count()):
            try:
                cards.append(self._card(index))
            except QueryFailed as error:
                skipped.append(SkippedDevice(index, str(error)))
        return listing(with_distinct_ids(cards), skipped)

    def _count(self) -> int:
        raise NotImplementedError

    def _card(self, index: int) -> HostCard:
        raise NotImplementedError


class FirstEfml(_Api):
    """The API that counts devices by number: EfmlGetDev…(index, …)."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        library = self._library
        if library.has("EfmlErrorString"):
            library.words = self._words
        self._memory = library.bind("EfmlGetDevMem", c_uint32, POINTER(_FirstMemory))
        self._health = library.bind("EfmlGetDevIsHealth EfmlGetDevHealth", c_uint32, POINTER(c_bool))
        self._shutdown = library.raw("EfmlShutdown", restype=None)
        library.bind("EfmlInit", c_bool)(False)

    def close(self) -> None:
        self._shutdown()

    def _count(self) -> int:
        count = c_uint32()
        self._library.bind("EfmlGetDevCount", POINTER(c_uint32))(byref(count))
        return count.value

    def _card(self, index: int) -> HostCard:
        memory = _FirstMemory()
        self._memory(index, byref(memory))
        healthy = c_bool()
        self._health(index, byref(healthy))
        info = optional(lambda: self._info(index))
        place = pci.format_address(info.domain, info.bus, info.device, info.function) if info else ""
        name = optional(lambda: self._text("EfmlGetDevName", index)) or ""
        uuid = optional(lambda: self._text("EfmlGetDevUuid", index)) or ""
        serial = optional(lambda: self._text("EfmlGetDevSn", index)) or ""
        return HostCard(
            index=index,
            id=card_id(uuid, serial, place, index),
            memory_mib=memory.total >> 20,
            used_mib=memory.used_mib,
            model=name or (info.name.decode("utf-8", "replace") if info else ""),
            pci=place,
            healthy=healthy.value,
            problem="" if healthy.value else NOT_HEALTHY,
        )

    def _info(self, index: int) -> "_FirstInfo":
        info = _FirstInfo()
        self._library.bind("EfmlGetDevInfo", c_uint32, POINTER(_FirstInfo))(index, byref(info))
        return info

    def _text(self, function: str, index: int) -> str:
        text = create_string_buffer(_TEXT_BYTES)
        self._library.bind(function, c_uint32, c_char_p)(index, text)
        return text_of(text)

    def _words(self, code: int) -> str:
        text = create_string_buffer(_TEXT_BYTES)
        self._library.raw("EfmlErrorString", c_int, c_char_p)(code, text)
        return text_of(text)


class NewerEfml(_Api):
    """The API modelled on NVML: efmlDevice…(handle, …). It has no call for health: a card that answers is well."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        library = self._library
        if library.has("efmlErrorString"):
            words = library.raw("efmlErrorString", c_int, restype=c_char_p)
            library.words = lambda code: (words(code) or b"").decode("utf-8", "replace")
        self._by_index = library.bind("efmlDeviceGetHandleByIndex_v2 efmlDeviceGetHandleByIndex", c_uint, POINTER(c_void_p))
        self._memory = library.bind("efmlDeviceGetMemoryInfo", c_void_p, POINTER(_NewerMemory))
        self._shutdown = library.bind("efmlShutdown")
        library.bind("efmlInit_v2 efmlInit")()

    def close(self) -> None:
        optional(self._shutdown)

    def _count(self) -> int:
        count = c_uint()
        self._library.bind("efmlDeviceGetCount_v2 efmlDeviceGetCount", POINTER(c_uint))(byref(count))
        return count.value

    def _card(self, index: int) -> HostCard:
        device = c_void_p()
        self._by_index(index, byref(device))
        memory = _NewerMemory()
        self._memory(device, byref(memory))
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
        text = create_string_buffer(_TEXT_BYTES)
        self._library.bind(function, c_void_p, c_char_p, c_uint)(device, text, 96)
        return text_of(text)

    def _place(self, device: c_void_p) -> str:
        # Public headers disagree on the order of the fields, all have the address as text among them.
        info = create_string_buffer(_TEXT_BYTES)
        self._library.bind("efmlDeviceGetPciInfo_v3 efmlDeviceGetPciInfo_v2 efmlDeviceGetPciInfo", c_void_p, c_void_p)(
            device, info
        )
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


class _NewerMemory(ctypes.Structure):
    _fields_ = (("total", c_uint64), ("free", c_uint64), ("used", c_uint64))
    total: int
    used: int
