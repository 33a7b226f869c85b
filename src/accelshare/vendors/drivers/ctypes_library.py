"""Loads a vendor's C library, binds its functions, and turns its return codes into errors.

Belongs here: what several such libraries need. Never: a function or a structure of only one of them.
"""

import ctypes
from collections.abc import Callable
from ctypes import POINTER, byref, c_char_p, c_int, c_uint, c_uint64, create_string_buffer
from typing import Any, Final, TypeVar

from accelshare.vendors.drivers.driver import HostCard, NotInstalled, QueryFailed, SkippedDevice
from accelshare.vendors.drivers.library_errors import SUCCESS, library_error

# No text of a card or of an error is longer.
_TEXT_BYTES: Final = 256

S = TypeVar("S")


class NvmlMemory(ctypes.Structure):
    """Bytes of a card's memory, as NVML and the newer EFML write them."""

    _fields_ = (("total", c_uint64), ("free", c_uint64), ("used", c_uint64))
    total: int
    used: int


class Library:
    """A loaded library; `error_text` returns the meaning of a return code, if the library has a text for it."""

    def __init__(self, name: str) -> None:
        try:
            self._library = ctypes.CDLL(name)
        except OSError as error:
            # The loader has no code for it. A dependency that is missing reads the same, with another name.
            missing = str(error).startswith(f"{name}: cannot open shared object file: No such file")
            raise (NotInstalled if missing else QueryFailed)(f"cannot be loaded: {error}") from error
        self.error_text: Callable[[int], str] = lambda code: ""

    def has(self, function: str) -> bool:
        return hasattr(self._library, function)

    def require(self, *functions: str) -> None:
        """QueryFailed if the library lacks one of these functions; several names are versions of one function."""
        for names in functions:
            self.bind(names)

    def read_error_texts(self, function: str) -> None:
        """Adds to errors the texts that this function returns, if the library has it."""
        if self.has(function):
            text = self.raw(function, c_int, restype=c_char_p)
            self.error_text = lambda code: (text(code) or b"").decode("utf-8", "replace")

    def raw(self, name: str, *argtypes: Any, restype: Any = ctypes.c_int) -> Callable[..., Any]:
        """The function as it is; QueryFailed if the library has none of that name."""
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise QueryFailed(f"has no function {name}") from None
        function.argtypes = argtypes
        function.restype = restype
        return function  # type: ignore[no-any-return]

    def bind(self, names: str, *argtypes: Any) -> Callable[..., None]:
        """The first of these functions that the library has, newest first; a call that does not succeed raises LibraryError."""
        choices = names.split()
        name = next((name for name in choices if self.has(name)), None)
        if name is None:
            raise QueryFailed(f"has no function {' or '.join(choices)}")
        function = self.raw(name, *argtypes)

        def call(*arguments: Any) -> None:
            code = function(*arguments)
            if code != SUCCESS:
                raise library_error(name, code, self.error_text(code))

        return call

    def read(self, names: str, kind: type[S], *arguments: Any) -> S:
        """The value that a function writes through the pointer behind these arguments."""
        value: Any = kind()
        self.bind(names, *map(type, arguments), POINTER(type(value)))(*arguments, byref(value))
        return value  # type: ignore[no-any-return]

    def read_text(self, names: str, device: Any, *length: c_uint) -> str:
        """The text that a function writes for a device; `length` is its parameter for the buffer's size, if it has one."""
        text = create_string_buffer(_TEXT_BYTES)
        self.bind(names, type(device), c_char_p, *map(type, length))(device, text, *length)
        return text_of(text)


def list_devices(count: int, card: Callable[[int], HostCard]) -> tuple[list[HostCard], list[SkippedDevice]]:
    """The card of each index, and the devices whose query failed."""
    cards: list[HostCard] = []
    skipped: list[SkippedDevice] = []
    for index in range(count):
        try:
            cards.append(card(index))
        except QueryFailed as error:
            skipped.append(SkippedDevice(index, str(error)))
    return cards, skipped


def text_of(buffer: "ctypes.Array[ctypes.c_char]") -> str:
    """A C string as text, also if it is not valid UTF-8."""
    return buffer.value.decode("utf-8", "replace").strip()


def optional(call: Callable[[], S]) -> S | None:
    """What the call returns, or None where the library or the card does not offer it."""
    try:
        return call()
    except QueryFailed:
        return None
