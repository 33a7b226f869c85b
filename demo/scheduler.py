"""One pod's scheduling cycle, speaking the extender protocol as kube-scheduler speaks it.

Belongs here: which calls are made, in which order, with which bodies; and the sentence for a pod that fits nowhere. It stands
for kube-scheduler with node fit and one extender: nodeCacheCapable, every managed resource counted in-tree as well.
Never: an opinion about nodes or cards of its own.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from demo.errors import DemoError
from demo.fit import shortages
from demo.view import PodView, View


@dataclass(frozen=True, slots=True)
class Bound:
    node: str


@dataclass(frozen=True, slots=True)
class Waits:
    """What `kubectl describe pod` would say of it."""

    sentence: str


class Scheduler:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def cycle(self, pod: PodView, view: View) -> Bound | Waits:
        others = [other.fact for other in view.pods.values()]
        reasons = {name: shortages(node, pod.fact, others) for name, node in view.nodes.items()}
        left = [name for name, short in reasons.items() if not short]
        # An extender hears only of the nodes that passed, and nothing at all if none did.
        if left:
            left = await self._filter(pod, left, reasons)
        if not left:
            return Waits(sentence(reasons))
        node = left[0] if len(left) == 1 else await self._best(pod, left)
        await self._bind(pod, node)
        return Bound(node)

    async def _filter(self, pod: PodView, names: list[str], reasons: dict[str, list[str]]) -> list[str]:
        answer = await self._post("filter", _nodes_asked(pod, names))
        if answer.get("Error"):
            raise DemoError(f"filter of {pod.fact.name} failed: {answer['Error']}")
        left: list[str] = answer.get("NodeNames") or []
        if strangers := set(left).difference(names):
            raise DemoError(f"filter of {pod.fact.name} named nodes that it was not asked about: {', '.join(sorted(strangers))}")
        # A node in both maps counts as unresolvable, so that map goes on top.
        for refused in (answer.get("FailedNodes"), answer.get("FailedAndUnresolvableNodes")):
            reasons.update({node: [text] for node, text in (refused or {}).items()})
        return left

    async def _best(self, pod: PodView, names: list[str]) -> str:
        scores = await self._post("prioritize", _nodes_asked(pod, names))
        return str(max(scores, key=lambda entry: entry["Score"])["Host"])

    async def _bind(self, pod: PodView, node: str) -> None:
        fact = pod.fact
        asked = {"PodName": fact.name, "PodNamespace": fact.namespace, "PodUID": fact.uid, "Node": node}
        answer = await self._post("bind", asked)
        if answer.get("Error"):
            raise DemoError(f"bind of {fact.name} to {node} failed: {answer['Error']}")

    async def _post(self, verb: str, asked: Mapping[str, Any]) -> Any:
        url = f"{self._url}/{verb}"
        try:
            async with self._session.post(url, json=asked) as answer:
                if answer.status != 200:
                    raise DemoError(f"failed {verb} with extender at URL {url}, code {answer.status}")
                return await answer.json()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise DemoError(f"failed {verb} with extender at URL {url}: {str(error) or type(error).__name__}") from error


def sentence(reasons: Mapping[str, Sequence[str]]) -> str:
    """Equal reasons counted together, the counted reasons in the order of their text: as kube-scheduler's event has it."""
    counts = Counter(reason for given in reasons.values() for reason in given)
    told = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    return f"0/{len(reasons)} nodes are available: {told}."


def _nodes_asked(pod: PodView, names: list[str]) -> dict[str, Any]:
    # kube-scheduler's own Go structs as JSON: Go's casing around an ordinary pod, which has lost its type and managedFields.
    metadata = {key: value for key, value in pod.object["metadata"].items() if key != "managedFields"}
    rest = {key: value for key, value in pod.object.items() if key not in ("apiVersion", "kind")}
    return {"Pod": {**rest, "metadata": metadata}, "Nodes": None, "NodeNames": names}
