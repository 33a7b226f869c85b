"""What explain must know of nodes and pods besides their cards: taints, CPU, memory.

Belongs here: reading those parts of the same objects that the book is made of. Never: what follows from them (report/).
"""

import msgspec

from accelshare.report.surroundings import Surroundings, Taint
from accelshare.wire.decoding import Decoder
from accelshare.wire.objects import Metadata, NodeStatus, Pod, pod_decoder
from accelshare.wire.pods import needs_of
from accelshare.wire.quantity import thousandths, whole_number


class _Taint(msgspec.Struct):
    key: str = ""
    value: str = ""
    effect: str = ""


class _Spec(msgspec.Struct):
    unschedulable: bool | None = None
    taints: list[_Taint] | None = None


class _Node(msgspec.Struct):
    metadata: Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: NodeStatus | None = None


_decode_node = Decoder(_Node).decode


class Beside:
    """Hears every node and every pod of a list, and adds up. What cannot be read was said already."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._taken: dict[str, dict[str, int]] = {}
        self._pods: dict[str, int] = {}

    def node(self, raw: msgspec.Raw | bytes) -> None:
        node = _decode_node(raw)
        self._nodes[node.metadata.name] = node

    def pod(self, raw: msgspec.Raw | bytes) -> None:
        pod: Pod = pod_decoder.decode(raw)
        node = pod.spec.node_name
        if not node:
            return
        self._pods[node] = self._pods.get(node, 0) + 1
        taken = self._taken.setdefault(node, {})
        for resource, amount in needs_of(pod):
            taken[resource] = taken.get(resource, 0) + amount

    def surroundings(self) -> dict[str, Surroundings]:
        return {name: self._of(name, node) for name, node in self._nodes.items()}

    def _of(self, name: str, node: _Node) -> Surroundings:
        amounts = (node.status.allocatable if node.status else None) or {}
        allocatable = {resource: thousandths(amounts[resource]) for resource in ("cpu", "memory") if resource in amounts}
        most_pods = whole_number(amounts.get("pods"))
        return Surroundings(
            cordoned=bool(node.spec.unschedulable),
            taints=tuple(Taint(taint.key, taint.value, taint.effect) for taint in node.spec.taints or ()),
            allocatable=allocatable | ({"pods": most_pods} if most_pods is not None else {}),
            taken=self._taken.get(name, {}),
            pods=self._pods.get(name, 0),
        )
