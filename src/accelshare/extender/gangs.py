"""Holds cards for members of a gang from filter until bind: kube-scheduler asks for all members before it binds the first one.

Without these holds, each member would be offered the same card, some binds would be refused, and the gang would be half bound.

Belongs here: which holds are a gang's, and when they end without a bind. Never: choosing cards (ledger/), binding (binder.py).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from accelshare.ledger.ledger import Ledger
from accelshare.ledger.nouns import Assignment

HOLD_S: Final = 30.0  # for a bind that does not come; coscheduling binds late, when the last member has a node
CHECK_EVERY_S: Final = 1.0
BOUND: Final = "bound"
REFUSED: Final = "refused"
EXPIRED: Final = "expired"
OUTCOMES: Final = (BOUND, REFUSED, EXPIRED)


@dataclass(slots=True)
class _Hold:
    group: str
    assignment: Assignment
    until: float


class GangHolds:
    def __init__(
        self,
        ledger: Ledger,
        *,
        clock: Callable[[], float],
        on_free_capacity: Callable[[str], None],
        count: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`on_free_capacity` is called with each node on which a hold was released, `count` with the outcome of each hold."""
        self._ledger = ledger
        self._clock = clock
        self._on_free_capacity = on_free_capacity
        self._count = count
        self._holds: dict[str, _Hold] = {}
        self._failed: set[str] = set()  # groups that could not be scheduled, as far as we can see

    def __len__(self) -> int:
        return len(self._holds)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            self.expire()

    def asked(self, group: str) -> None:
        """filter is asked for a pod of this group, or of none. kube-scheduler asks for a whole group before it goes on, so a
        group that failed gives its cards back now. Nothing tells us that it failed: a member was refused, or was asked for a
        second time, and no member was bound since.
        """
        if not self._holds or not self._failed:
            return
        for failed in self._failed - {group}:
            self._release([uid for uid, hold in self._holds.items() if hold.group == failed], REFUSED)

    def renew(self, uid: str) -> None:
        """kube-scheduler has asked again for this member, and was named the node of its hold."""
        hold = self._holds.get(uid)
        if hold is not None:
            hold.until = self._clock() + HOLD_S
            self._failed.add(hold.group)

    def hold(self, uid: str, group: str, assignment: Assignment) -> None:
        """Hold these cards until the bind. Safe to repeat; other cards than before replace those."""
        before = self._holds.pop(uid, None)
        if before is not None and before.assignment != assignment:
            self._ledger.release(uid)
        self._ledger.hold(uid, assignment)
        self._holds[uid] = _Hold(group, assignment, self._clock() + HOLD_S)

    def release(self, uid: str) -> None:
        """This member needs another node."""
        if uid in self._holds:
            self._failed.add(self._holds[uid].group)
            self._release([uid], REFUSED)

    def refused(self, group: str) -> None:
        """A member of this group was refused by every node."""
        self._failed.add(group)

    def bind_begins(self, uid: str) -> bool:
        """Whether the pod's hold is a gang's. From now on it is the bind's."""
        hold = self._holds.pop(uid, None)
        if hold is None:
            return False
        self._failed.discard(hold.group)
        self._count(BOUND)
        return self._is_ours(uid, hold)

    def expire(self) -> None:
        now = self._clock()
        self._release([uid for uid, hold in self._holds.items() if hold.until <= now], EXPIRED)
        self._failed &= {hold.group for hold in self._holds.values()}

    def _release(self, uids: list[str], outcome: str) -> None:
        for uid in uids:
            hold = self._holds.pop(uid, None)
            if hold is None:
                continue
            self._count(outcome)
            if self._is_ours(uid, hold) and (freed := self._ledger.release(uid)):
                self._on_free_capacity(freed)

    def _is_ours(self, uid: str, hold: _Hold) -> bool:
        pod = self._ledger.pod(uid)
        return pod is not None and pod.hold == hold.assignment and not pod.seen.node
