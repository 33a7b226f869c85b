"""The return codes of vendors' C libraries, and the error of a call that did not succeed.

Belongs here: what the agent and the helper process both know of such a call. Never: ctypes, because only the helper loads
libraries.
"""

from typing import Final

from accelshare.vendors.drivers.driver import QueryFailed

# NVML's return codes; XPUML and the newer EFML have the same.
SUCCESS: Final = 0
UNINITIALIZED: Final = 1
NOT_SUPPORTED: Final = 3
NOT_FOUND: Final = 6
INSUFFICIENT_SIZE: Final = 7
DRIVER_NOT_LOADED: Final = 9
TIMEOUT: Final = 10
LOST: Final = 15
DRIVER_MISMATCH: Final = 18
GPU_NOT_FOUND: Final = 28


class LibraryError(QueryFailed):
    """A function of the library did not succeed; the text has its name and return code."""

    def __init__(self, text: str, code: int) -> None:
        self.code = code
        super().__init__(text)


def library_error(function: str, code: int, text: str) -> LibraryError:
    """The error of a function that returned this code."""
    return LibraryError(f"{function} returned {code} ({text})" if text else f"{function} returned {code}", code)
