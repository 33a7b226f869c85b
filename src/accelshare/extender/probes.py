"""A second, plain port for those who have no client certificate: kubelet's probes and Prometheus.

Belongs here: which pages may be seen there. Never: a verb of the scheduler's, or anything that changes something.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import orjson

from accelshare.extender.routes import Answer

PAGES: Final = ("/healthz", "/livez", "/readyz", "/metrics")


class Probes:
    """The same answers as on the first port, for these pages only."""

    def __init__(self, answer: Callable[[str, str, bytes], Answer | Awaitable[Answer]]) -> None:
        self._answer = answer

    def answer(self, method: str, path: str, body: bytes) -> Answer | Awaitable[Answer]:
        if path in PAGES:
            return self._answer(method, path, body)
        said = f"there is nothing at {path[:200]!r}; this port has {', '.join(PAGES)}"
        return Answer(404, orjson.dumps({"error": said}))
