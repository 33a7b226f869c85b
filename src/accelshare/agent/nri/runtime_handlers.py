"""Checks whether a pod's runtime handler reads the variables by which the profile names cards.

Belongs here: the check and its message. Never: reading the runtime's files (runtimes/handlers.py).

A handler that ignores the vendor's variables starts the container without a card and without an error. That is certain only where
the node has another handler that reads them: cards may also come by hooks, or by a vendor's plugin that no file here shows.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

from accelshare.runtimes.handlers import Handlers
from accelshare.vendors.profile import Profile

CACHE_S: Final = 10.0  # how long the content of the runtime's files is cached
_BY_RUNTIME: Final = frozenset({"envvar", "volume-mounts"})


class RuntimeHandlers:
    def __init__(self, read: Callable[[], Handlers], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()  # both the main loop and the runtime's thread check
        self._known = Handlers()
        self._known_until = float("-inf")

    def refusal(self, profile: Profile, handler: str) -> str:
        """Why a container of this handler (empty: the default one) must not be created; empty if it may."""
        rules = profile.container
        if not rules.runtime_handlers or not _BY_RUNTIME.issuperset(rules.strategy):
            return ""
        known = self._read_cached()
        obeying, used = known.obeying(rules.runtime_handlers), handler or known.default
        if used in obeying or (not obeying and not rules.runtime_handler_required):
            return ""
        which = f"runtime handler {used!r}" + ("" if handler else ", the default one,")
        if not obeying:
            names = ", ".join(rules.runtime_handlers)
            return f"{which} does not give containers cards of {profile.name}, nor does any other here; configure one of {names}"
        return (
            f"{which} does not give containers cards of {profile.name}; on this node {', '.join(obeying)} does: "
            "name a RuntimeClass of that handler in spec.runtimeClassName, or make it the runtime's default"
        )

    def has_one(self, profile: Profile) -> bool:
        """Whether some handler of this node gives containers these cards: a refused pod then only names the wrong handler."""
        return bool(self._read_cached().obeying(profile.container.runtime_handlers))

    def _read_cached(self) -> Handlers:
        with self._lock:
            if self._clock() >= self._known_until:
                self._known, self._known_until = self._read(), self._clock() + CACHE_S
            return self._known
