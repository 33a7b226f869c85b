"""Faults on order: a server that fails exactly when a test says so.

Belongs here: which request fails, and how. Never: what the server does when nothing fails.
"""

import re
from dataclasses import dataclass, field
from enum import Enum, unique


@unique
class Drop(Enum):
    """When the connection breaks: before the request is carried out, or after, so that only its answer is lost."""

    NEVER = "never"
    BEFORE = "before"
    AFTER = "after"


@dataclass(slots=True)
class Fault:
    """What happens to the next `times` requests that match, and how many there were.

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

    def concerns(self, method: str, path: str) -> bool:
        if self.hits >= self.times or self.method not in ("", method):
            return False
        return re.search(self.path, path) is not None


class Faults:
    """The faults in the order of their ordering: each request meets the first that is about it."""

    def __init__(self) -> None:
        self._ordered: list[Fault] = []

    def answer(self, code: int, *, method: str = "", path: str = "", times: int = 1, retry_after_s: int = 0) -> Fault:
        """Answer with this code and do nothing."""
        return self._order(Fault(method, path, times, code=code, retry_after_s=retry_after_s))

    def drop_before(self, *, method: str = "", path: str = "", times: int = 1) -> Fault:
        """Break the connection and do nothing."""
        return self._order(Fault(method, path, times, drop=Drop.BEFORE))

    def drop_after(self, *, method: str = "", path: str = "", times: int = 1) -> Fault:
        """Do it, and break the connection instead of saying so."""
        return self._order(Fault(method, path, times, drop=Drop.AFTER))

    def delay(self, delay_s: float, *, method: str = "", path: str = "", times: int = 1) -> Fault:
        """Do it, but late."""
        return self._order(Fault(method, path, times, delay_s=delay_s))

    def clear(self) -> None:
        self._ordered.clear()

    def meet(self, method: str, path: str) -> Fault | None:
        """The fault that this request meets, counted as used."""
        for fault in self._ordered:
            if fault.concerns(method, path):
                fault.hits += 1
                return fault
        return None

    def _order(self, fault: Fault) -> Fault:
        self._ordered.append(fault)
        return fault
