"""Connected to the container runtime, and what that makes of this node's deliveries.

Belongs here: the connection's life, and judging what the runtime promises each time that it comes. Never: answers.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from accelshare.agent import kubelet_checkpoint
from accelshare.agent.nri import connection
from accelshare.agent.nri.lock import only_one
from accelshare.agent.nri_way.answers import Answers
from accelshare.agent.nri_way.repairs import Repairs
from accelshare.agent.shelf import Shelf
from accelshare.runtimes.insistence import Files, Standing, Verdict, judge
from accelshare.runtimes.versions import takes_cdi
from accelshare.wire.assignment import PLUGIN

log = logging.getLogger(__name__)
INDEX: Final = 10  # among other plugins; who comes later sees what we did
LOCK: Final = "accelshare.lock"
LOOK_S: Final = 1.0


class NriWay:
    """Delivery through the container runtime's plugin interface."""

    name = "nri"

    def __init__(
        self,
        shelf: Shelf,
        answers: Answers,
        repairs: Repairs,
        *,
        socket: Path,
        files: Files,
        device_plugins: Path,
        on_verdict: Callable[[Verdict], None],
    ) -> None:
        self._shelf = shelf
        self._answers = answers
        self._repairs = repairs
        self._socket = socket
        self._files = files
        self._device_plugins = device_plugins
        self._on_verdict = on_verdict
        self._on_state: Callable[[str, bool], None] = lambda _kind, _delivers: None
        self._said: set[str] = set()
        self.connected = asyncio.Event()
        self.verdict = Verdict(Standing.UNKNOWN, f"no container runtime has answered at {socket}")

    async def connect(self) -> None:
        """Be there for the runtime, until cancelled: as whatever `answers.manner` says."""
        async with only_one(self._socket.parent / LOCK):
            await connection.serve(
                self._socket,
                PLUGIN,
                INDEX,
                self._answers,
                on_connected=self._is_connected,
                on_disconnected=self._is_away,
            )

    async def run(self, on_state: Callable[[str, bool], None]) -> None:
        """Say of which kinds cards can be handed out, until cancelled."""
        self._on_state = on_state
        while True:
            self.show()
            await asyncio.sleep(LOOK_S)

    def show(self) -> None:
        held = kubelet_checkpoint.registered(self._device_plugins) if self._shelf.kinds else set()
        for name, kind in self._shelf.kinds.items():
            still = sorted(held & {kind.profile.resources.memory, kind.profile.resources.whole})
            if still and name not in self._said:
                self._said.add(name)
                log.warning(
                    "moving kind=%s resources=%s problem=%r",
                    name,
                    ",".join(still),
                    "kubelet still takes them for a device plugin's; it forgets them 5 minutes after the plugin's end",
                )
            elif not still and name in self._said:
                self._said.discard(name)
                log.info("moved kind=%s", name)
            self._on_state(name, self.connected.is_set() and not still)

    def look_for_bare(self) -> None:
        """Containers that were started while we were away, and without their cards."""
        for found in self._answers.bare():
            self._repairs.bare(found)

    def _is_connected(self, runtime: str, version: str) -> None:
        self.verdict = judge(runtime, version, files=self._files, socket=self._socket)
        self._answers.takes_cdi = takes_cdi(runtime, version)
        log.info("nri runtime=%s version=%s insists=%s why=%r", runtime, version, self.verdict.insists, self.verdict.why)
        self.connected.set()
        self._on_verdict(self.verdict)
        if self._answers.manner == "delivers":
            self.look_for_bare()
        self.show()

    def _is_away(self) -> None:
        self.connected.clear()
        self.show()
