"""Samples who uses the cards of this node, every few seconds, and keeps the last sample.

Belongs here: the order of one sample, and what happens if a driver fails. Never: what a sample means (joining.py, history.py).
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from msgspec.structs import replace

from accelshare.agent.discovery.device_inventory import DeviceInventory
from accelshare.agent.pod_store import PodStore
from accelshare.agent.usage.cgroups import sees_host_processes, uids_of
from accelshare.agent.usage.history import UsageHistory
from accelshare.agent.usage.joining import join
from accelshare.agent.usage.over_use import OverUse
from accelshare.vendors.drivers.driver import CardProcess, DriverError
from accelshare.wire.usage import CardUse, NodeUse, PodUse

log = logging.getLogger(__name__)
HIDDEN: Final = "the agent does not see the host's processes; its pod needs hostPID: true (chart: agent.usage.enabled)"
NOT_TOLD: Final = "its driver does not tell which processes use a card"


class ProcessSource(Protocol):
    """One vendor's cards, as far as usage asks them."""

    async def processes(self) -> Mapping[str, Sequence[CardProcess]] | None:
        """By card id; None if this vendor does not tell. DriverError if it cannot be asked."""
        ...

    async def close_processes(self) -> None: ...


class UsageSampler:
    def __init__(
        self,
        node: str,
        devices: DeviceInventory,
        pods: PodStore,
        sources: Mapping[str, ProcessSource],
        history: UsageHistory,
        over_use: OverUse,
        *,
        proc: Path,
        every_s: float,
        clock: Callable[[], float],
    ) -> None:
        """`sources`: by kind; they may be added later. `proc`: the host's /proc."""
        self._devices = devices
        self._pods = pods
        self._sources = sources
        self._history = history
        self._over_use = over_use
        self._proc = proc
        self._every_s = every_s
        self._clock = clock
        self._last = NodeUse(node)
        self._taken_at: float | None = None

    def latest(self) -> NodeUse | None:
        """The last sample, with its age; None before the first."""
        return None if self._taken_at is None else replace(self._last, age_s=self._clock() - self._taken_at)

    async def run(self) -> None:
        """Sample until cancelled."""
        try:
            while True:
                await self.sample()
                await asyncio.sleep(self._every_s)
        finally:
            for source in self._sources.values():
                await source.close_processes()

    async def sample(self) -> None:
        processes: dict[str, Mapping[str, Sequence[CardProcess]]] = {}
        problems: dict[str, str] = {}
        kinds = {kind: self._sources[kind] for kind in self._devices.kinds if kind in self._sources}
        if sees_host_processes(self._proc):
            answers = await asyncio.gather(*(_ask(source) for source in kinds.values()))
            for kind, answer in zip(kinds, answers, strict=True):
                if isinstance(answer, str):
                    problems[kind] = answer
                else:
                    processes[kind] = answer
        else:
            problems = dict.fromkeys(kinds, HIDDEN)
        pids = {process.pid for cards in processes.values() for card in cards.values() for process in card}
        # On a thread: the kernel may keep a reader of /proc waiting.
        uids = await asyncio.to_thread(uids_of, pids, self._proc)
        pods, cards = self._join(processes, uids)
        pods = self._history.update(pods, self._pods.snapshot(), self._clock())
        self._log(problems)
        self._last = replace(self._last, pods=tuple(pods), cards=tuple(cards), problems=problems)
        self._taken_at = self._clock()
        await self._over_use.react(pods)

    def _join(
        self, processes: Mapping[str, Mapping[str, Sequence[CardProcess]]], uids: Mapping[int, str]
    ) -> tuple[list[PodUse], list[CardUse]]:
        living = list(self._pods.snapshot().values())
        pods: list[PodUse] = []
        cards: list[CardUse] = []
        for kind, of_cards in processes.items():
            if (vendor := self._devices.kinds.get(kind)) is not None:
                of_pods, of_vendor = join(vendor, of_cards, uids, living)
                pods += of_pods
                cards += of_vendor
        return pods, cards

    def _log(self, problems: Mapping[str, str]) -> None:
        for kind, problem in problems.items():
            if self._last.problems.get(kind) != problem:
                log.warning("usage kind=%s outcome=unknown problem=%r", kind, problem)


async def _ask(source: ProcessSource) -> Mapping[str, Sequence[CardProcess]] | str:
    """The processes by card, or why they are not known."""
    try:
        found = await source.processes()
    except DriverError as error:
        return str(error)
    except Exception as error:  # whatever a driver does, it affects this vendor only
        return f"its driver failed: {type(error).__name__}: {error}"
    return NOT_TOLD if found is None else found
