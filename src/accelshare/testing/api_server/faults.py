"""Injected faults: requests that a test makes the fake API server fail, delay or drop.

Belongs here: which request fails, and how. Never: what the server does without a fault.
"""

import re
from dataclasses import dataclass, field
from enum import Enum, unique


@unique
class Drop(Enum):
    """When the connection is closed: before the request is handled, or after, so that only its response is lost."""

    NEVER = "never"
    BEFORE = "before"
    AFTER = "after"


@dataclass(slots=True)
class Fault:
    """What happens to the next `times` requests that match, and how many have matched.

    `path` is a pattern, searched for in path and query: `/binding$`, or `/pods\\?.*watch=`.
    """

    method: str = ""
    path: str = ""
    times: int = 1
    delay_s: float = 0.0
    code: int = 0
    retry_after_s: int = 0
    drop: Drop = Drop.NEVER
    hits: int = field(default=0, init=False)

    def matches(self, method: str, path: str) -> bool:
        if self.hits >= self.times or self.method not in ("", method):
            return False
        return re.search(self.path, path) is not None


class Faults:
    """The faults in the order of their injection: a request gets the first that matches."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def answer(self, code: int, *, method: str = "", path: str = "", times: int = 1, retry_after_s: int = 0) -> Fault:
        """ApiResponse with this code, without handling the request."""
        return self._add(Fault(method, path, times, code=code, retry_after_s=retry_after_s))

    def drop_before(self, *, method: str = "", path: str = "", times: int = 1) -> Fault:
        """Close the connection without handling the request."""
        return self._add(Fault(method, path, times, drop=Drop.BEFORE))

    def drop_after(self, *, method: str = "", path: str = "", times: int = 1) -> Fault:
        """Handle the request, and close the connection without a response."""
        return self._add(Fault(method, path, times, drop=Drop.AFTER))

    def delay(self, delay_s: float, *, method: str = "", path: str = "", times: int = 1) -> Fault:
        """Handle the request late."""
        return self._add(Fault(method, path, times, delay_s=delay_s))

    def clear(self) -> None:
        self._faults.clear()

    def meet(self, method: str, path: str) -> Fault | None:
        """The fault for this request, counted as a hit."""
        for fault in self._faults:
            if fault.matches(method, path):
                fault.hits += 1
                return fault
        return None

    def _add(self, fault: Fault) -> Fault:
        self._faults.append(fault)
        return fault
