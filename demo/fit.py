"""Does a pod fit a node's totals? A stand-in for kube-scheduler's own NodeResourcesFit, which runs before any extender.

Belongs here: amounts asked, against allocatable minus what the pods bound there ask. Never: cards; a node's total says
nothing about the room on any one of them, which is why there is an extender.
"""

from collections.abc import Iterable

from accelshare.ledger.facts import PodSeen
from accelshare.wire.objects import Node
from accelshare.wire.quantity import thousandths


def shortages(node: Node, pod: PodSeen, others: Iterable[PodSeen]) -> list[str]:
    """Why the node's totals do not suffice, in kube-scheduler's words; none if they do."""
    free = {name: thousandths(amount) for name, amount in ((node.status and node.status.allocatable) or {}).items()}
    for other in others:
        if other.node == node.metadata.name and not other.ended:
            for name, amount in other.needs:
                free[name] = free.get(name, 0) - amount
    return [f"Insufficient {name}" for name, amount in pod.needs if amount > free.get(name, 0)]
