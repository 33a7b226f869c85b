"""Waiting for a condition, never for a time: look often, give up in words."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from cluster.errors import ClusterError

T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str, limit_s: float = 60.0, every_s: float = 0.05) -> T:
    """The condition's first true answer; an exception of the condition ends the wait at once."""
    end = time.monotonic() + limit_s
    while not (answer := condition()):
        if time.monotonic() >= end:
            raise ClusterError(f"not within {limit_s:g} s: {what}")
        time.sleep(every_s)
    return answer
