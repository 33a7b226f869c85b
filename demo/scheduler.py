"""A stand-in for kube-scheduler: one pod's scheduling cycle, with node fit and one extender.

Belongs here: which extender calls are made, in which order, with which bodies, and the message for a pod that fits nowhere. It
acts as kube-scheduler with a nodeCacheCapable extender whose managed resources are also counted in-tree.
Never: decisions of its own about nodes or cards.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from accelshare.ledger.facts import PodSeen
from accelshare.wire.objects import Node
from accelshare.wire.quantity import thousandths
from demo.scenario import DemoError
from demo.snapshot import DemoSnapshot, PodSnapshot


def shortages(node: Node, pod: PodSeen, others: Iterable[PodSeen]) -> list[str]:
    """NodeResourcesFit: the resources of which the node has too little, in kube-scheduler's words."""
    free = {name: thousandths(amount) for name, amount in ((node.status and node.status.allocatable) or {}).items()}
    for other in others:
        if other.node == node.metadata.name and not other.ended:
            for name, amount in other.needs:
                free[name] = free.get(name, 0) - amount
    return [f"Insufficient {name}" for name, amount in pod.needs if amount > free.get(name, 0)]


@dataclass(frozen=True, slots=True)
class Scheduled:
    node: str


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """The pod fits nowhere; the message is what `kubectl describe pod` would show."""

    message: str


class DemoScheduler:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def cycle(self, pod: PodSnapshot, snapshot: DemoSnapshot) -> Scheduled | Unschedulable:
        others = [other.fact for other in snapshot.pods.values()]
        reasons = {name: shortages(node, pod.fact, others) for name, node in snapshot.nodes.items()}
        left = [name for name, short in reasons.items() if not short]
        # kube-scheduler sends the extender only nodes that passed, and does not call it if none did.
        if left:
            left = await self._filter(pod, left, reasons)
        if not left:
            return Unschedulable(failure_message(reasons))
        node = left[0] if len(left) == 1 else await self._best(pod, left)
        await self._bind(pod, node)
        return Scheduled(node)

    async def _filter(self, pod: PodSnapshot, names: list[str], reasons: dict[str, list[str]]) -> list[str]:
        answer = await self._post("filter", _extender_args(pod, names))
        if answer.get("Error"):
            raise DemoError(f"filter of {pod.fact.name} failed: {answer['Error']}")
        left: list[str] = answer.get("NodeNames") or []
        if unknown := set(left).difference(names):
            raise DemoError(f"filter of {pod.fact.name} returned nodes that it did not get: {', '.join(sorted(unknown))}")
        # A node in both maps counts as unresolvable, so that map is applied last.
        for refused in (answer.get("FailedNodes"), answer.get("FailedAndUnresolvableNodes")):
            reasons.update({node: [text] for node, text in (refused or {}).items()})
        return left

    async def _best(self, pod: PodSnapshot, names: list[str]) -> str:
        scores = await self._post("prioritize", _extender_args(pod, names))
        return str(max(scores, key=lambda entry: entry["Score"])["Host"])

    async def _bind(self, pod: PodSnapshot, node: str) -> None:
        fact = pod.fact
        binding = {"PodName": fact.name, "PodNamespace": fact.namespace, "PodUID": fact.uid, "Node": node}
        answer = await self._post("bind", binding)
        if answer.get("Error"):
            raise DemoError(f"bind of {fact.name} to {node} failed: {answer['Error']}")

    async def _post(self, verb: str, body: Mapping[str, Any]) -> Any:
        url = f"{self._url}/{verb}"
        try:
            async with self._session.post(url, json=body) as answer:
                if answer.status != 200:
                    raise DemoError(f"failed {verb} with extender at URL {url}, code {answer.status}")
                return await answer.json()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise DemoError(f"failed {verb} with extender at URL {url}: {str(error) or type(error).__name__}") from error


def failure_message(reasons: Mapping[str, Sequence[str]]) -> str:
    """Equal reasons counted, in alphabetical order, as in kube-scheduler's event."""
    counts = Counter(reason for of_node in reasons.values() for reason in of_node)
    counted = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    return f"0/{len(reasons)} nodes are available: {counted}."


def _extender_args(pod: PodSnapshot, names: list[str]) -> dict[str, Any]:
    # ExtenderArgs as kube-scheduler encodes it: Go's field names, and a pod without its type and managedFields.
    metadata = {key: value for key, value in pod.object["metadata"].items() if key != "managedFields"}
    rest = {key: value for key, value in pod.object.items() if key not in ("apiVersion", "kind")}
    return {"Pod": {**rest, "metadata": metadata}, "Nodes": None, "NodeNames": names}
