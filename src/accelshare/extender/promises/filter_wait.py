"""Lets a filter call wait for a moment while the nominations of the next pods are on their way to kube-scheduler.

Belongs here: this wait. Never: which nominations (plan.py).

kube-scheduler takes the next pod as soon as it has the answer. If it did not know of its nomination, it would search all
nodes, and the nomination would be wasted.
"""

import asyncio
from contextlib import suppress
from typing import Final

from accelshare.extender.promises.plan import Plan

LONGEST_S: Final = 1.0  # kube-scheduler's default timeout of a filter is 5 s


class FilterWait:
    def __init__(self, plan: Plan, *, longest_s: float = LONGEST_S) -> None:
        self._plan = plan
        self._longest_s = longest_s
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """The plan may have changed: a nomination was seen, or has failed."""
        self._changed.set()

    def called(self, uid: str, nodes: int) -> bool:
        """kube-scheduler has called filter, with so many nodes. Whether the answer should wait."""
        self._plan.called(uid, alone=nodes == 1)
        return self._plan.wait_s(uid) > 0

    async def wait(self, uid: str) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        ends = begun + self._longest_s
        while (wait_s := min(self._plan.wait_s(uid), ends - loop.time())) > 0:
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
        self._plan.waited(loop.time() - begun)
