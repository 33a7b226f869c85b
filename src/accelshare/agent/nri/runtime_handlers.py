"""Whether the runtime handler of a pod will do what the profile's variables say.

Belongs here: the decision and its words. Never: reading the runtime's files (runtimes/handlers.py).

A container whose handler does not know the vendor's variables runs without a card, and nobody says so. That is certain only where
the node has a handler that does know them: cards may also come by hooks, or by a plugin of the vendor's that no file here shows.
"""

import time
from collections.abc import Callable
from typing import Final

from accelshare.runtimes.handlers import Handlers
from accelshare.vendors.profile import Profile

READ_S: Final = 10.0  # for how long the runtime's files are believed to be the same
_BY_RUNTIME: Final = frozenset({"envvar", "volume-mounts"})


class RuntimeHandlers:
    def __init__(self, read: Callable[[], Handlers], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._clock = clock
        self._known = Handlers()
        self._known_until = float("-inf")

    def refusal(self, profile: Profile, handler: str) -> str:
        """Why a container of this handler (empty: the default one) must not be made; empty if nothing is known against it."""
        rules = profile.container
        if not rules.runtime_handlers or not _BY_RUNTIME.issuperset(rules.strategy):
            return ""
        known = self._now()
        obeying, used = known.obeying(rules.runtime_handlers), handler or known.default
        if used in obeying or (not obeying and not rules.runtime_handler_required):
            return ""
        which = f"runtime handler {used!r}" + ("" if handler else ", the default one,")
        if not obeying:
            names = ", ".join(rules.runtime_handlers)
            return f"{which} does not hand out cards of {profile.name}, nor does any other of this node; configure one of {names}"
        return (
            f"{which} does not hand out cards of {profile.name}; on this node {', '.join(obeying)} does: "
            "name a RuntimeClass of that handler in spec.runtimeClassName, or make it the runtime's default"
        )

    def has_one(self, profile: Profile) -> bool:
        """Whether some handler of this node hands out these cards: a pod that is refused has then only named the wrong one."""
        return bool(self._now().obeying(profile.container.runtime_handlers))

    def _now(self) -> Handlers:
        if self._clock() >= self._known_until:
            self._known, self._known_until = self._read(), self._clock() + READ_S
        return self._known
