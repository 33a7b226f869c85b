"""The clock beside a thread that answers: a call that it comes to no answer for is answered with an error, in time.

Belongs here: one more thread for each connection, which looks at the open call now and then. Never: what is answered.

A handler is asked on the thread that reads the socket, so that no container waits for threads to find each other. While it
thinks, that thread can do nothing else; should it think for too long, this one speaks for it, and its own answer is dropped.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

LOOK_S: Final = 0.2  # far less than what is left of a runtime's patience


class Deadline:
    """Minds one call after the other: the answering thread calls `begin` and `end`, the clock's thread `send`."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._lock = threading.Lock()  # whoever has it decides who answers
        self._open: tuple[float, Callable[[], bytes]] | None = None  # until when, and what is said then
        self._spoken = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="nri-deadline", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Not waited for: there is no open call that it could still speak of."""
        self._over.set()

    def begin(self, limit_s: float, refusal: Callable[[], bytes]) -> None:
        """A call is open from now on."""
        self._open = (time.monotonic() + limit_s, refusal)

    def end(self) -> bool:
        """The call is not open any more; whether its answer is still wanted."""
        with self._lock:
            self._open = None
            spoken, self._spoken = self._spoken, False
            return not spoken

    def _watch(self) -> None:
        while not self._over.wait(LOOK_S):
            with self._lock:
                if self._open is not None and time.monotonic() >= self._open[0]:
                    _, refusal = self._open
                    self._open, self._spoken = None, True
                    self._send(refusal())
