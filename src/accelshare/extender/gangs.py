"""Holds cards for members of a gang from filter until bind: kube-scheduler asks for all members before it binds the first one.

Without these holds, each member would be offered the same card, some binds would be refused, and the gang would be half bound.
Nothing tells us that a gang has failed, so some holds end although kube-scheduler still binds the gang later. Such a bind holds
the cards of all these members again, or every bind of the gang is refused: all or none, whatever the time was.

Belongs here: which holds are a gang's, and when they end without a bind. Never: choosing cards (ledger/), binding (binder.py).
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from accelshare.ledger.ledger import CannotHoldError, Ledger
from accelshare.ledger.nouns import Assignment
from accelshare.wire.groups import Group

# After kube-scheduler has last asked for a member or bound one. It asks again for a member after 10 s at most, unless that has to
# wait for a change in the cluster. coscheduling waits longer (60 s if nothing else is configured).
HOLD_S: Final = 30.0
# A member that is asked for again and again but never bound: from then on, other pods come first.
LONGEST_S: Final = 120.0
CHECK_EVERY_S: Final = 1.0
BOUND: Final = "bound"
REFUSED: Final = "refused"
EXPIRED: Final = "expired"
OUTCOMES: Final = (BOUND, REFUSED, EXPIRED)


class GangBind(Enum):
    """What the bind of a pod finds."""

    NO_MEMBER = auto()  # this pod's hold, if it has one, is not a gang's
    HELD = auto()
    LOST = auto()  # the cards that were held for its gang are not its own any more


@dataclass(slots=True)
class _Hold:
    group: Group
    assignment: Assignment
    since: float
    failed: bool = False  # the gang could not be scheduled, as far as we can see
    lost: bool = False  # it was released, and a bind of the gang was refused for that


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
        self._until: dict[Group, float] = {}  # when all holds of a group expire
        self._failed: set[Group] = set()  # groups with holds that have failed
        self._binding: set[Group] = set()  # groups of which a member was bound while others were held
        self._released: dict[str, _Hold] = {}  # without a bind, and the member was not asked for since
        self._begun: dict[str, _Hold] = {}  # binds that have begun

    def __len__(self) -> int:
        return len(self._holds)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            self.expire()

    def asked(self, group: Group | None) -> None:
        """filter is asked for a pod of this group, or of none: every other gang that has failed gives its cards back now."""
        if not self._failed:
            return
        for failed in self._failed - {group}:
            self._release([uid for uid, hold in self._of(failed) if hold.failed], REFUSED)
            self._failed.discard(failed)

    def renew(self, uid: str) -> None:
        """kube-scheduler has asked again for this member, and was named the node of its hold. So its gang had failed before.

        With the Workload API, kube-scheduler now asks for the whole gang before it asks for another pod. With coscheduling it may
        ask for other pods in between, which must not be offered the cards of the members that wait for the rest.
        """
        hold = self._holds.get(uid)
        if hold is None:
            return
        now = self._clock()
        self._until[hold.group] = now + HOLD_S
        if now - hold.since >= LONGEST_S:
            self._fail(hold.group)
        elif hold.group.waits_at_permit:
            hold.failed = False
        else:
            self.refused(hold.group)

    def hold(self, uid: str, group: Group, assignment: Assignment) -> None:
        """Hold these cards until the bind. Safe to repeat; other cards than before replace those."""
        before = self._holds.pop(uid, None)
        if before is not None and before.assignment != assignment:
            self._ledger.release(uid)
        self._ledger.hold(uid, assignment)
        self._holds[uid] = _Hold(group, assignment, self._clock())
        self._until[group] = self._clock() + HOLD_S
        self._released.pop(uid, None)

    def release(self, uid: str) -> None:
        """filter is asked for this member and cannot name the node of its hold."""
        if (hold := self._holds.get(uid)) is not None:
            self._release([uid], REFUSED)
            if not hold.group.waits_at_permit:
                self.refused(hold.group)
        self._released.pop(uid, None)

    def refused(self, group: Group) -> None:
        """A member of this group was refused by every node, so the gang has failed, unless it needs fewer members than it has."""
        if group not in self._binding:
            self._fail(group)

    def _fail(self, group: Group) -> None:
        for _, hold in self._of(group):
            hold.failed = True
            self._failed.add(group)

    def bind_begins(self, uid: str, *, in_gang: bool) -> GangBind:
        """What the bind of this pod finds. If its cards are held, the hold is the bind's from now on.

        `in_gang`: the pod is a member of a gang and has no hold at all. If we released none, it was another extender's, which
        ended.
        """
        known = self._holds.get(uid) or self._released.get(uid)
        if known is None:
            return GangBind.LOST if in_gang else GangBind.NO_MEMBER
        if known.lost or not self._hold_again(known.group) or not self._all_available(known.group):
            return GangBind.LOST
        hold = self._holds.pop(uid, None)
        if hold is None:
            return GangBind.NO_MEMBER  # it is bound already, or gone
        self._succeeds(hold.group)
        self._count(BOUND)
        if not self._is_ours(uid, hold):
            return GangBind.NO_MEMBER
        self._begun[uid] = hold
        return GangBind.HELD

    def bind_put_off(self, uid: str) -> bool:
        """The bind was not sent, and kube-scheduler will ask again: others of the gang may be bound, so the cards stay held."""
        hold = self._begun.pop(uid, None)
        if hold is None or not self._is_ours(uid, hold) or not self._ledger.still_available(hold.assignment):
            return False
        self._holds[uid] = hold
        self._until[hold.group] = self._clock() + HOLD_S
        return True

    def expire(self) -> None:
        now = self._clock()
        self._release([uid for uid, hold in self._holds.items() if not self._is_ours(uid, hold)], EXPIRED)  # deleted meanwhile
        self._begun = {uid: hold for uid, hold in self._begun.items() if self._is_ours(uid, hold)}
        for group in [group for group, until in self._until.items() if until <= now]:
            self._release([uid for uid, _ in self._of(group)], EXPIRED)
            del self._until[group]
            self._binding.discard(group)
        self._failed &= self._until.keys()
        self._released = {uid: hold for uid, hold in self._released.items() if self._waits(uid)}

    def _of(self, group: Group) -> list[tuple[str, _Hold]]:
        return [(uid, hold) for uid, hold in self._holds.items() if hold.group == group]

    def _succeeds(self, group: Group) -> None:
        """kube-scheduler binds a member, so it binds all whose cards are held."""
        self._failed.discard(group)
        rest = self._of(group)
        for _, hold in rest:
            hold.failed = False
        if rest:
            self._until[group] = self._clock() + HOLD_S
            self._binding.add(group)
        else:
            self._until.pop(group, None)
            self._binding.discard(group)

    def _release(self, uids: Iterable[str], outcome: str) -> None:
        for uid in uids:
            hold = self._holds.pop(uid, None)
            if hold is None:
                continue
            self._count(outcome)
            if self._is_ours(uid, hold):
                self._released[uid] = hold
                if freed := self._ledger.release(uid):
                    self._on_free_capacity(freed)

    def _hold_again(self, group: Group) -> bool:
        """Hold the cards of all members again whose holds were released. If one of them cannot have its cards, none has, and
        the bind of each of them is refused until kube-scheduler has asked for it again.
        """
        wanted = {uid: hold for uid, hold in self._released.items() if hold.group == group and not hold.lost and self._waits(uid)}
        for uid, hold in wanted.items():
            try:
                self._ledger.hold(uid, hold.assignment)
            except CannotHoldError:
                self._lose(group)
                return False
            self._holds[uid] = self._released.pop(uid)
        return True

    def _all_available(self, group: Group) -> bool:
        """Before the first bind: whether the held cards of every member are healthy and delivered. If not, none is bound."""
        held = self._of(group) if group not in self._binding else ()
        if all(self._ledger.still_available(hold.assignment) or not self._is_ours(uid, hold) for uid, hold in held):
            return True
        self._lose(group)
        return False

    def _lose(self, group: Group) -> None:
        self._release([uid for uid, _ in self._of(group)], REFUSED)
        for lost in self._released.values():
            lost.lost = lost.lost or lost.group == group

    def _waits(self, uid: str) -> bool:
        pod = self._ledger.pod(uid)
        return pod is not None and pod.place is None

    def _is_ours(self, uid: str, hold: _Hold) -> bool:
        pod = self._ledger.pod(uid)
        return pod is not None and pod.hold == hold.assignment and not pod.seen.node
