"""filter waits until kube-scheduler knows the next nominations, and not for ever."""

import asyncio
import time
from typing import Any

from accelshare.extender.promises.filter_wait import FilterWait

LIMIT_S = 60.0


class Plan:
    """How long filter should wait, as the test says."""

    def __init__(self, until_s: float) -> None:
        self.until_s = until_s
        self.asked = 0
        self.calls: list[tuple[str, bool]] = []
        self.waited_s = 0.0

    def called(self, uid: str, *, alone: bool) -> None:
        self.calls.append((uid, alone))

    def waited(self, seconds: float) -> None:
        self.waited_s += seconds

    def wait_s(self, _uid: str) -> float:
        self.asked += 1
        return max(0.0, self.until_s - time.monotonic())


def waiting_for(plan: Any, *, longest_s: float = LIMIT_S) -> FilterWait:
    return FilterWait(plan, longest_s=longest_s)


async def test_it_ends_as_soon_as_the_nominations_were_seen() -> None:
    plan = Plan(float("inf"))
    wait = waiting_for(plan)
    assert wait.called("a", 1)
    waiters = [asyncio.create_task(wait.wait(uid)) for uid in "ab"]
    while plan.asked < 1 + len(waiters):
        await asyncio.sleep(0)
    wait.changed()  # another pod
    while plan.asked < 1 + 2 * len(waiters):
        await asyncio.sleep(0)
    assert not any(waiter.done() for waiter in waiters)
    plan.until_s = 0.0
    wait.changed()
    async with asyncio.timeout(LIMIT_S):
        await asyncio.gather(*waiters)
    assert not wait.called("a", 1)


async def test_it_ends_when_kube_scheduler_must_have_seen_them() -> None:
    """Nothing tells that it has."""
    wait = waiting_for(Plan(time.monotonic() + 0.05))
    async with asyncio.timeout(LIMIT_S):
        await wait.wait("a")
    assert not wait.called("a", 1)


async def test_it_ends_though_ever_more_nominations_are_on_their_way() -> None:
    wait = waiting_for(Plan(float("inf")), longest_s=0.01)
    async with asyncio.timeout(LIMIT_S):
        await wait.wait("a")
    assert wait.called("a", 1)
