"""Connected to the container runtime, and what that makes of this node's deliveries.

Belongs here: the connection's life, judging what the runtime promises each time that it comes, and what we wish to be asked by
such a runtime. Never: answers.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from accelshare.agent.device_plugin.leftovers import PluginLeftovers
from accelshare.agent.discovery.device_inventory import DeviceInventory
from accelshare.agent.nri.answers import Answers
from accelshare.agent.nri.protocol import connection
from accelshare.agent.nri.protocol.lock import only_one
from accelshare.agent.nri.protocol.nri_pb2 import Event
from accelshare.agent.nri.repairs import Repairs
from accelshare.agent.pinned_records import PinnedRecords
from accelshare.runtimes.validator_status import Files, Standing, Verdict, judge
from accelshare.runtimes.versions import asks_validators, takes_cdi
from accelshare.wire.assignment import PLUGIN

log = logging.getLogger(__name__)
INDEX: Final = 10  # among other plugins; who comes later sees what we did
LOCK: Final = "accelshare.lock"
LOOK_S: Final = 1.0


class NriDelivery:
    """Delivery through the container runtime's plugin interface."""

    name = "nri"

    def __init__(
        self,
        devices: DeviceInventory,
        answers: Answers,
        repairs: Repairs,
        *,
        socket: Path,
        files: Files,
        kubelet: PluginLeftovers,
        pins: PinnedRecords,
        on_verdict: Callable[[Verdict], None],
    ) -> None:
        self._devices = devices
        self._answers = answers
        self._repairs = repairs
        self._socket = socket
        self._files = files
        self._kubelet = kubelet
        self._pins = pins
        self._on_verdict = on_verdict
        self._on_state: Callable[[str, bool], None] = lambda _kind, _delivers: None
        self._said: set[str] = set()
        self.connected = asyncio.Event()
        self.verdict = self._judged = Verdict(Standing.UNKNOWN, f"no container runtime has answered at {socket}")

    async def connect(self) -> None:
        """Be there for the runtime, until cancelled: as whatever `answers.manner` says."""
        self._answers.tell = partial(connection.tell_soon, asyncio.get_running_loop())
        async with only_one(self._socket.parent / LOCK):
            await connection.serve(
                self._socket,
                PLUGIN,
                INDEX,
                self._answers,
                wants=self._wants,
                on_connected=self._is_connected,
                on_disconnected=self._is_away,
            )

    async def run(self, on_state: Callable[[str, bool], None]) -> None:
        """Say of which kinds cards can be handed out, until cancelled."""
        self._on_state = on_state
        while True:
            await self._kubelet.let_go(
                [resource for kind in self._devices.kinds.values() for resource, _ in self._devices.resources(kind.profile)]
            )
            self.show()
            await asyncio.sleep(LOOK_S)

    def show(self) -> None:
        if self._answers.manner != "delivers":
            return
        for name, kind in self._devices.kinds.items():
            still = [resource for resource, _ in self._devices.resources(kind.profile) if self._kubelet.refuses(resource)]
            if still and name not in self._said:
                self._said.add(name)
                served = self._kubelet.served(still)
                while_ = f"while these pods live: {', '.join(served)}" if served else "and forgets them 5 minutes after its end"
                problem = f"kubelet still takes them for a device plugin's {while_}"
                log.warning("moving kind=%s resources=%s problem=%r", name, ",".join(still), problem)
            elif not still and name in self._said:
                self._said.discard(name)
                log.info("moved kind=%s", name)
            self._on_state(name, self.connected.is_set() and not still)

    def look_back(self) -> None:
        """What there was before us: pods whose cards nobody has written down as given, and containers without theirs."""
        for pod in self._answers.given_before():
            self._repairs.delivered(pod)
        for found in self._answers.bare():
            self._repairs.bare(found)

    def report(self) -> None:
        """Containers that have cards without being entitled to them. They run, so they are told of, and not ended."""
        for found in self._answers.intruders():
            self._answers.guarded(found)

    def _wants(self, runtime: str, version: str) -> list[Event]:
        """The runtime's first word, on the thread that answers it: no container is asked about before this has returned."""
        self._answers.takes_cdi = takes_cdi(runtime, version)
        self._judged = judge(runtime, version, files=self._files, socket=self._socket)
        wanted = [Event.CREATE_CONTAINER]
        if asks_validators(runtime, version):
            # Whoever dies or is late while a container is made cannot be asked at the end of it, and so it is not made.
            wanted.append(Event.VALIDATE_CONTAINER_ADJUSTMENT)
        if not self._judged.insists:
            wanted.append(Event.START_CONTAINER)  # it may have been made while we were away
        return wanted

    def _is_connected(self, runtime: str, version: str) -> None:
        self.verdict = self._judged
        log.info("nri runtime=%s version=%s insists=%s why=%r", runtime, version, self.verdict.insists, self.verdict.why)
        self._pins.check(self._answers.delivered_before())
        self.connected.set()
        self._on_verdict(self.verdict)
        if self._answers.manner != "starting":
            self.report()
        if self._answers.manner == "delivers":
            self.look_back()
        self.show()

    def _is_away(self) -> None:
        self.connected.clear()
        self.show()
