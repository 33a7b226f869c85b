"""The amounts that slices of this node's pods have after a resize, and the resizes that were answered.

Belongs here: which amount is in force, and the Node's annotation about it. Never: deciding, setting limits (limits/resizing.py).

Only the agent's main loop changes it. Everything that reads pods gets them from the pod store with the amount in force.
"""

from collections.abc import Container
from dataclasses import replace

from accelshare.ledger.nouns import Resize
from accelshare.ledger.resizing import is_one_slice, resized
from accelshare.wire import resizing
from accelshare.wire.node_pods import NodePod


class AmountsInForce:
    def __init__(self, *, enabled: bool = False) -> None:
        """`enabled`: slices are resized in this cluster; if not, an annotation of an earlier agent is removed."""
        self.enabled = enabled
        self._units: dict[str, int] = {}
        self._answered: dict[str, Resize] = {}

    @property
    def annotation(self) -> str | None:
        """The Node's annotation: by uid, the last resize that was answered, with the amount in force; None: no annotation."""
        return resizing.applied_text(self._answered) if self.enabled else None

    def load(self, text: str) -> None:
        """Take over what an earlier agent wrote on the Node, before any pod is seen."""
        if self.enabled and text:
            self._answered = resizing.applied(text)
            self._units = {uid: one.units for uid, one in self._answered.items()}

    def of(self, pod: NodePod) -> NodePod:
        """The pod with the amount in force."""
        units = self._units.get(pod.uid)
        if units is None or not is_one_slice(pod.seen.request):
            return pod
        request, slices = resized(pod.seen.request, pod.seen.slices, units)
        return replace(pod, seen=replace(pod.seen, request=request, slices=slices), resized_units=units)

    def answered_number(self, uid: str) -> int:
        """The number of the last resize of this pod that was answered; 0: none was."""
        answered = self._answered.get(uid)
        return answered.number if answered is not None else 0

    def set_units(self, uid: str, units: int) -> None:
        """This amount is in force from now on; the pod must be put into the store again."""
        self._units[uid] = units

    def set_answered(self, uid: str, number: int) -> None:
        """This resize is answered with the amount that is in force."""
        self._answered[uid] = Resize(self._units[uid], number)

    def forget(self, uid: str) -> bool:
        """The pod is gone. Returns whether the annotation changes."""
        self._units.pop(uid, None)
        return self._answered.pop(uid, None) is not None

    def keep_only(self, uids: Container[str]) -> None:
        """All pods of the node are known: forget all others."""
        for uid in [uid for uid in self._units if uid not in uids]:
            self.forget(uid)
