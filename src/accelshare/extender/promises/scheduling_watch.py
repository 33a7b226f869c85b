"""Watches nodes and pods for the plan, as kube-scheduler's rules see them.

Belongs here: the watches. They are beside the ledger's own, so that without promises nothing more is read. Never: deciding.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from accelshare.extender.promises.plan import Plan
from accelshare.kube.client import Client
from accelshare.kube.watch import Change, Gone, Interrupted, Malformed, Reflector, Seen, Synced
from accelshare.wire.scheduling import SchedulingNode, SchedulingPod, read_node, read_pod

log = logging.getLogger(__name__)
T = TypeVar("T")


class SchedulingWatch:
    """`run` ends only when it is cancelled."""

    def __init__(self, client: Client, plan: Plan, *, on_change: Callable[[], None]) -> None:
        """`on_change` is called after each change that the plan has got."""
        self._plan = plan
        self._on_change = on_change
        self._nodes: Reflector[SchedulingNode] = Reflector(
            client, "/api/v1/nodes", decode=read_node, identity=lambda node: node.name, identified_by="name"
        )
        self._pods: Reflector[SchedulingPod] = Reflector(client, "/api/v1/pods", decode=read_pod, identity=lambda pod: pod.uid)
        self._listed: set[str] = set()
        self.complete = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as both:
            both.create_task(self._follow("nodes", self._nodes, self._node_changed))
            both.create_task(self._follow("pods", self._pods, self._pod_changed))

    async def _follow(self, what: str, reflector: Reflector[T], changed: Callable[[Change[T]], None]) -> None:
        async for change in reflector.changes():
            match change:
                case Synced():
                    self._listed.add(what)
                    if len(self._listed) == 2:
                        self.complete.set()
                case Malformed(name, problem):
                    log.debug("promises what=%s name=%s problem=%r", what, name, problem)  # the ledger's watch reports it
                case Interrupted(problem, retry_in_s):
                    log.debug("promises interrupted what=%s retry_in_s=%.1f problem=%r", what, retry_in_s, problem)
                case _:
                    changed(change)
                    self._on_change()

    def _node_changed(self, change: Change[SchedulingNode]) -> None:
        match change:
            case Seen(node):
                self._plan.node_seen(node)
            case Gone(name):
                self._plan.node_gone(name)

    def _pod_changed(self, change: Change[SchedulingPod]) -> None:
        match change:
            case Seen(pod):
                self._plan.pod_seen(pod)
            case Gone(uid):
                self._plan.pod_gone(uid)
