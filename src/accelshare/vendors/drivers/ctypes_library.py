"""Loads a vendor's C library, binds its functions, and turns its return codes into errors.

Belongs here: what every such library needs. Never: a function or a structure of one of them.
"""

import ctypes
from collections.abc import Callable
from typing import Any, Final, TypeVar

from accelshare.vendors.drivers.driver import NotInstalled, QueryFailed

# NVML's return codes; XPUML and the newer EFML have the same.
SUCCESS: Final = 0
UNINITIALIZED: Final = 1
NOT_SUPPORTED: Final = 3
NOT_FOUND: Final = 6
DRIVER_NOT_LOADED: Final = 9
TIMEOUT: Final = 10
LOST: Final = 15
DRIVER_MISMATCH: Final = 18
GPU_NOT_FOUND: Final = 28

S = TypeVar("S")


class LibraryError(QueryFailed):
    """A function of the library did not succeed; the text has its name and return code."""

    def __init__(self, text: str, code: int) -> None:
        self.code = code
        super().__init__(text)


def failed(function: str, code: int, words: str) -> LibraryError:
    """The error of a function that returned this code."""
    return LibraryError(f"{function} returned {code} ({words})" if words else f"{function} returned {code}", code)


class Library:
    """A loaded library; `words` returns the meaning of a return code, if the library has a text for it."""

    def __init__(self, name: str) -> None:
        try:
            self._library = ctypes.CDLL(name)
        except OSError as error:
            # The loader has no code for it. A dependency that is missing reads the same, with another name.
            missing = str(error).startswith(f"{name}: cannot open shared object file: No such file")
            raise (NotInstalled if missing else QueryFailed)(f"cannot be loaded: {error}") from error
        self.words: Callable[[int], str] = lambda code: ""

    def has(self, function: str) -> bool:
        return hasattr(self._library, function)

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
                raise failed(name, code, self.words(code))

        return call


def text_of(buffer: "ctypes.Array[ctypes.c_char]") -> str:
    """A C string as text, also if it is not valid UTF-8."""
    return buffer.value.decode("utf-8", "replace").strip()


def optional(call: Callable[[], S]) -> S | None:
    """What the call returns, or None where the library or the card does not offer it."""
    try:
        return call()
    except QueryFailed:
        return None
