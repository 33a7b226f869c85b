"""Bounds how many pods are bound to a node before its kubelet has acknowledged them, where kubelet's device plugins deliver.

Belongs here: waiting for a place, and pausing a node whose kubelet has rejected a pod of ours. Never: binding, choosing cards.

kubelet rejects for good every pod that it admits while no device plugin serves it. The cluster learns of a dead agent a second
later or more, and in that time a rush would bind dozens of pods to the node. A pod that kubelet has acknowledged (it has a
startTime) has been admitted, so only the few that are not are at risk. The first rejection pauses the node until its agent has
restarted.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from accelshare.ledger.facts import Fact, PodGone, PodSeen
from accelshare.ledger.ledger import Ledger

log = logging.getLogger(__name__)
PLACES: Final = 4
WAIT_S: Final = 3.0  # kube-scheduler's default timeout of a bind is 5 s
# A running kubelet acknowledges a pod within seconds. A pod that it never acknowledges (a mirror pod without its static pod, kept
# by a finalizer) must not take a place for ever.
ACKNOWLEDGED_WITHIN_S: Final = 30.0
MAX_PAUSE_S: Final = 300.0  # of a node whose agent runs and has not restarted: then one pod is tried


@dataclass(slots=True)
class _Occupant:
    """A pod that kubelet has not acknowledged."""

    bound: bool  # by a scheduler: the pod did not name its node itself
    timer: asyncio.TimerHandle
    overdue: bool = False  # it takes no place any more


@dataclass(slots=True)
class _Window:
    """One node's pods that kubelet has not acknowledged."""

    occupants: dict[str, _Occupant] = field(default_factory=dict)  # by uid
    waiting: deque[tuple[str, asyncio.Future[bool]]] = field(default_factory=deque)
    paused: asyncio.TimerHandle | None = None
    agent_was_away: bool = False  # since the pause began
    cautious: bool = False  # it is unknown whether the node admits pods again: one at a time

    @property
    def full(self) -> bool:
        taken = sum(not occupant.overdue for occupant in self.occupants.values())
        return taken >= (1 if self.cautious else PLACES)


class Admissions:
    def __init__(
        self,
        ledger: Ledger,
        *,
        on_free_capacity: Callable[[str], None],
        wait_s: float = WAIT_S,
        acknowledged_within_s: float = ACKNOWLEDGED_WITHIN_S,
    ) -> None:
        """`on_free_capacity` is called with each node that takes pods again."""
        self._ledger = ledger
        self._on_free_capacity = on_free_capacity
        self._wait_s = wait_s
        self._acknowledged_within_s = acknowledged_within_s
        self._windows: dict[str, _Window] = {}
        self._node_of: dict[str, str] = {}  # of each occupant
        self._paused: set[str] = set()

    async def enter(self, node: str, uid: str) -> bool:
        """Wait, in the order of the calls, until this pod may be bound to the node; False if that takes too long."""
        if not self._by_device_plugin(node, uid):
            return True
        window = self._windows.setdefault(node, _Window())
        if uid in window.occupants:
            return True
        if window.paused is not None:
            return False
        if not window.full and not window.waiting:
            self._occupy(node, window, uid, bound=True)
            return True
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        window.waiting.append((uid, turn))
        try:
            async with asyncio.timeout(self._wait_s):
                return await turn
        except TimeoutError:
            return False
        finally:
            if (uid, turn) in window.waiting:
                window.waiting.remove((uid, turn))
            self._forget_empty(node)

    def leave(self, uid: str) -> None:
        """The pod was not bound, or kubelet has acknowledged it, or it is gone."""
        node = self._node_of.pop(uid, "")
        window = self._windows.get(node)
        if window is None:
            return
        if (occupant := window.occupants.pop(uid, None)) is not None:
            occupant.timer.cancel()
        self._admit_next(node, window)
        self._forget_empty(node)

    def seen(self, fact: Fact) -> None:
        """A fact that the ledger has applied."""
        match fact:
            case PodSeen():
                if fact.rejected:
                    self._rejected(fact)
                self._pod_seen(fact.uid)
            case PodGone():
                self.leave(fact.uid)
        if self._paused:
            for node in list(self._paused):
                self._check_agent(node, self._windows[node])

    def stop(self) -> None:
        for window in self._windows.values():
            if window.paused is not None:
                window.paused.cancel()
            for occupant in window.occupants.values():
                occupant.timer.cancel()

    def _rejected(self, pod: PodSeen) -> None:
        window = self._windows.get(pod.node)
        occupant = window.occupants.get(pod.uid) if window is not None else None
        if occupant is not None and occupant.bound:
            self._pause(pod.node, pod)

    def _pod_seen(self, uid: str) -> None:
        pod = self._ledger.pod(uid)
        if pod is None or pod.seen.started:
            if pod is not None and (window := self._windows.get(self._node_of.get(uid, ""))) is not None:
                window.cautious = False
            self.leave(uid)
        elif pod.seen.node and uid not in self._node_of and self._by_device_plugin(pod.seen.node, uid):
            # Bound before this process started, or by another scheduler, or it names its node itself.
            window = self._windows.setdefault(pod.seen.node, _Window())
            self._occupy(pod.seen.node, window, uid, bound=pod.seen.scheduled)

    def _by_device_plugin(self, node: str, uid: str) -> bool:
        node_ledger, pod = self._ledger.node(node), self._ledger.pod(uid)
        if node_ledger is None or node_ledger.fact is None or not node_ledger.fact.by_device_plugin or pod is None:
            return False
        return any(ask.kind in node_ledger.fact.by_device_plugin for ask in pod.seen.request)

    def _occupy(self, node: str, window: _Window, uid: str, *, bound: bool) -> None:
        timer = asyncio.get_running_loop().call_later(self._acknowledged_within_s, self._overdue, node, uid)
        window.occupants[uid] = _Occupant(bound, timer)
        self._node_of[uid] = node

    def _overdue(self, node: str, uid: str) -> None:
        window = self._windows.get(node)
        if window is not None and uid in window.occupants:
            log.warning("unacknowledged node=%s uid=%s within_s=%.0f", node, uid, self._acknowledged_within_s)
            window.occupants[uid].overdue = True
            self._admit_next(node, window)

    def _admit_next(self, node: str, window: _Window) -> None:
        while window.waiting and not window.full and window.paused is None:
            uid, turn = window.waiting.popleft()
            if not turn.done():
                self._occupy(node, window, uid, bound=True)
                turn.set_result(True)

    def _pause(self, node: str, rejected: PodSeen) -> None:
        window = self._windows[node]
        if window.paused is not None:
            return
        log.warning("paused node=%s why=%r", node, f"kubelet rejected pod {rejected.namespace}/{rejected.name}")
        window.paused = asyncio.get_running_loop().call_later(MAX_PAUSE_S, self._resume, node, "the pause timed out", True)
        window.agent_was_away = False
        self._paused.add(node)
        self._ledger.set_rejecting(node, True)
        while window.waiting:
            _, turn = window.waiting.popleft()
            if not turn.done():
                turn.set_result(False)

    def _check_agent(self, node: str, window: _Window) -> None:
        """End the pause when the agent was away and is back: it has registered with kubelet again."""
        node_ledger = self._ledger.node(node)
        if node_ledger is None or node_ledger.fact is None:
            self._resume(node, "the node is gone", False)
        elif node_ledger.away or node_ledger.fact.paused & node_ledger.fact.by_device_plugin:
            window.agent_was_away = True
        elif window.agent_was_away:
            self._resume(node, "its agent has restarted", False)

    def _resume(self, node: str, why: str, cautious: bool) -> None:
        window = self._windows.get(node)
        if window is None or window.paused is None:
            return
        log.info("resumed node=%s why=%r", node, why)
        window.paused.cancel()
        window.paused = None
        self._paused.discard(node)
        window.cautious = cautious
        self._ledger.set_rejecting(node, False)
        self._forget_empty(node)
        self._on_free_capacity(node)

    def _forget_empty(self, node: str) -> None:
        window = self._windows.get(node)
        if window is not None and not (window.occupants or window.waiting or window.paused is not None or window.cautious):
            del self._windows[node]
