"""Checks the limits of living containers again and again, and sets those that are missing or wrong.

Belongs here: when to check, and what is counted, logged and reported. Never: setting a limit (`setting.py`).

A limit can get lost: the driver is loaded again, somebody writes to the cgroup, or the agent was away when a container started.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from accelshare.agent.limits.cgroups import CgroupError, container_group
from accelshare.agent.limits.setting import ContainerLimits, LimitError
from accelshare.agent.limits.wanted import Limit
from accelshare.wire.node_pods import NodePod

log = logging.getLogger(__name__)
EVERY_S: Final = 60.0
REPAIR_S: Final = 10.0


class LimitedContainer(Protocol):
    """A container that must have limits; `cgroup` as the runtime gives it."""

    @property
    def pod(self) -> NodePod: ...
    @property
    def name(self) -> str: ...
    @property
    def cgroup(self) -> str: ...
    @property
    def limits(self) -> tuple[Limit, ...]: ...


class LimitReview:
    def __init__(
        self,
        limits: ContainerLimits,
        containers: Callable[[], Iterable[LimitedContainer]],
        *,
        on_repaired: Callable[[], None],
        on_failed: Callable[[NodePod, str], None],
        every_s: float = EVERY_S,
    ) -> None:
        """`containers`: those that live now. `on_failed` gets a pod and why a limit of it is not held, once for each reason."""
        self._limits = limits
        self._containers = containers
        self._on_repaired = on_repaired
        self._on_failed = on_failed
        self._every_s = every_s
        self._wanted = asyncio.Event()
        self.lock = asyncio.Lock()  # held while limits are checked; who changes what is wanted holds it, too
        self._failed: set[tuple[str, str]] = set()  # uid and message, as reported

    def request(self) -> None:
        """Check soon."""
        self._wanted.set()

    async def run(self) -> None:
        """Check when requested, and every minute, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._wanted.wait()
            self._wanted.clear()
            await self.once()

    async def once(self) -> None:
        async with self.lock:
            await self._check_all()

    async def _check_all(self) -> None:
        failed: set[tuple[str, str]] = set()
        for container in self._containers():
            for limit in container.limits:
                if problem := await self._check(container, limit):
                    failed.add((container.pod.uid, problem))
                    if (container.pod.uid, problem) not in self._failed:
                        log.warning(
                            "limit pod=%s container=%s outcome=failed error=%r", container.pod.name, container.name, problem
                        )
                        self._on_failed(container.pod, problem)
        self._failed = failed

    async def _check(self, container: LimitedContainer, limit: Limit) -> str:
        """Why the limit is not held; empty if it is, perhaps after a repair."""
        try:
            group = container_group(container.cgroup)
            found = await asyncio.to_thread(self._limits.repair, group, limit, timeout_s=REPAIR_S)
        except (CgroupError, LimitError) as error:
            return f"container {container.name}: {error}"
        if found:
            self._on_repaired()
            log.warning(
                "limit pod=%s container=%s kind=%s card=%d way=%s wanted=%d found=%r outcome=repaired",
                *(container.pod.name, container.name, limit.kind, limit.card, limit.way.name, limit.bytes, found),
            )
        return ""
