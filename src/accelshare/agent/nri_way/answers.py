"""What each container is given, by name: asked by the container runtime, answered from memory.

Belongs here: from a pod and a container, as the runtime names them, to the edits of that container, or a refusal in words. The
pod's own request and record are read from the API server's watch, never from what the runtime shows of annotations.

Three manners. `starting`: nobody knows yet what this runtime promises, so containers with cards wait. `delivers`: we alone
hand out cards, and a container that cannot be given its own is refused; kubelet tries again. `corrects`: kubelet's device plugin
has delivered, and variables that name cards are made equal to the record; device files stay, and the record follows them.

The runtime asks on a thread of its own, while the agent's loop goes on changing pods and cards. So: what is shared is dicts of
frozen values and one set; they are looked up, added to, taken from, or copied whole by `list` before a walk, each of which
is one step of the interpreter (`tuple` is two: its garbage may be swept in between, and a thread have its turn); and what
happened is told to others on their loop (`tell`), a moment later, without waiting.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from accelshare.agent.giving import given, numbering, recorded_cards, shares
from accelshare.agent.nri.handler import Refuse
from accelshare.agent.nri.messages import Adjustment, Container, PodSandbox, State
from accelshare.agent.nri_way.adjusting import adjusted
from accelshare.agent.shelf import Kind, Shelf
from accelshare.ledger.matching import Part, Want
from accelshare.vendors.container_edits import ContainerEdits, device_nodes
from accelshare.vendors.problems import VendorError
from accelshare.vendors.profile import Profile
from accelshare.wire import assignment
from accelshare.wire.node_pods import NodePod

Manner: TypeAlias = Literal["starting", "delivers", "corrects"]
# Where a pod came from, if not from the API server: kubelet's own word on the sandbox.
_SOURCE: Final = "kubernetes.io/config.source"


@dataclass(frozen=True, slots=True)
class Bare:
    """A container that runs without the card it was promised."""

    pod: NodePod
    container: str


class Answers:
    """NRI's handler over the pods and cards of this node."""

    def __init__(
        self,
        shelf: Shelf,
        pods: Mapping[str, NodePod],
        *,
        on_host: Callable[[str], Path],
        node_labels: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._shelf = shelf
        self._pods = pods
        self._on_host = on_host
        self._node_labels = node_labels
        self._in: set[str] = set()  # pods that have been given cards here
        self._there: list[tuple[PodSandbox, Container]] = []
        self.manner: Manner = "starting"
        self.takes_cdi = False
        self.tell: Callable[..., object] = lambda what, *words: what(*words)  # how the three below are called
        self.delivered: Callable[[NodePod], None] = lambda _pod: None
        self.refused: Callable[[], None] = lambda: None
        self.corrected: Callable[[NodePod], None] = lambda _pod: None

    # The runtime's questions.

    def synchronize(self, pods: Sequence[PodSandbox], containers: Sequence[Container]) -> None:
        by_id = {pod.id: pod for pod in pods}
        self._there = [(by_id[c.pod_sandbox_id], c) for c in containers if c.pod_sandbox_id in by_id]

    def create_container(self, pod: PodSandbox, container: Container) -> Adjustment:
        try:
            return self._create(pod, container)
        except Refuse:
            self.tell(self.refused)
            raise
        except VendorError as error:
            self.tell(self.refused)
            raise Refuse(str(error)) from error

    def start_container(self, pod: PodSandbox, container: Container) -> None:
        """A container that was made while we were away must not start without its card."""
        known = self._known(pod)
        if known is None or self.manner != "delivers" or not _promised(pod):
            return
        part = _part(known, container.name)
        if part is not None and self._has(known, part, container) is False:
            self.tell(self.refused)
            raise Refuse(f"container {container.name} of pod {known.name} was made without its card; it is made anew")

    # What else there is to tell and to ask.

    def pod_gone(self, uid: str) -> None:
        self._in.discard(uid)

    @property
    def waiting(self) -> int:
        """Pods that were promised cards and have not been given any yet."""
        return sum(
            1
            for pod in self._pods.values()
            if pod.phase == "Pending" and pod.seen.slices and pod.uid not in self._in and not (pod.by_hand or pod.terminating)
        )

    def bare(self) -> list[Bare]:
        """Containers that run without their card, of all that ran when the runtime was connected."""
        found = []
        for pod, container in self._there:
            known = self._known(pod)
            part = _part(known, container.name) if known is not None and not known.terminating else None
            if known is None or part is None or container.state not in (State.CREATED, State.RUNNING) or not _promised(pod):
                continue
            if self._has(known, part, container) is False:
                found.append(Bare(known, container.name))
        return found

    def given_before(self) -> list[NodePod]:
        """Pods that have their cards from whoever was here before us, of all that were there when the runtime was connected."""
        found = {}
        for pod, container in self._there:
            known = self._known(pod)
            part = _part(known, container.name) if known is not None else None
            if known is not None and part is not None and self._has(known, part, container):
                found[known.uid] = known
        self._in.update(found)
        return list(found.values())

    def _create(self, pod: PodSandbox, container: Container) -> Adjustment:
        known = self._known(pod)
        if known is None:
            if assignment.OURS in pod.annotations and self.manner != "corrects":
                raise Refuse(
                    f"pod {pod.namespace}/{pod.name} has not been seen on this node yet; it will be when this is tried again"
                )
            return Adjustment()
        part = _part(known, container.name)
        if part is None:
            return Adjustment()
        if self.manner == "starting":
            raise Refuse(f"the agent of this node is starting; pod {known.name} gets its cards when this is tried again")
        if self.manner == "corrects":
            return self._correct(known, part, container)
        edits = [self._given(known, want) for want in part.wants]
        result = adjusted(edits, on_host=self._on_host)
        self._in.add(known.uid)
        self.tell(self.delivered, known)
        return result

    def _correct(self, pod: NodePod, part: Part, container: Container) -> Adjustment:
        """What kubelet gave by variables, made equal to the record. What it gave as device files no plugin can take away."""
        kinds = {want[0] for want in part.wants if (here := self._shelf.kinds.get(want[0])) and correctable(here.profile)}
        if pod.by_hand or not pod.seen.slices or not kinds:
            return Adjustment()
        try:
            edits = [self._given(pod, want) for want in part.wants if want[0] in kinds]
            result = adjusted(edits, on_host=self._on_host)
        except Refuse:
            return Adjustment()  # kubelet gave it something; we know nothing better
        if any(container.environment.get(one.key, one.value) != one.value for one in result.env):
            self.tell(self.corrected, pod)
        return result

    # How.

    def _known(self, pod: PodSandbox) -> NodePod | None:
        known = self._pods.get(pod.uid)
        if known is None and pod.annotations.get(_SOURCE, "api") != "api":
            # A pod of a file on this node: kubelet names it by a hash, the API server by a uid of its own.
            name = f"{pod.namespace}/{pod.name}"
            known = next((found for found in list(self._pods.values()) if found.name == name), None)
        return known

    def _given(self, pod: NodePod, want: Want) -> ContainerEdits:
        kind, whole, amount = want
        if whole and self._shelf.whole_by_others(kind):
            return ContainerEdits()  # another device plugin has given them
        what = f"{amount} {'whole cards' if whole else 'units'} of {kind}"
        here = self._shelf.kinds.get(kind)
        if here is None:
            raise Refuse(f"pod {pod.name} asks {what}, and no card of {kind} has been found on this node")
        if pod.by_hand:
            raise Refuse(
                f"pod {pod.name} asks {what} and names its node itself: no card was chosen for it; let the scheduler place it"
            )
        cards = recorded_cards(pod, here, whole=whole)
        if not cards:
            raise Refuse(f"pod {pod.name} asks {what}, and its record names no card that this node has")
        if self.manner == "delivers":
            for card in cards:
                self._require_room(pod, here, card, whole=whole)
        units = dict.fromkeys(cards, 0 if whole else amount // len(cards))
        edits = given(
            pod,
            here,
            units,
            whole=whole,
            amount=amount,
            exists=lambda path: self._on_host(path).exists(),
            node_labels=self._node_labels(),
        )
        if not edits.cdi_devices or self.takes_cdi:
            return edits
        nodes = device_nodes(here.profile, shares(here, units, whole=whole), lambda path: self._on_host(path).exists())
        return ContainerEdits(edits.env, tuple(dict.fromkeys((*edits.device_nodes, *nodes))), edits.mounts, (), edits.annotations)

    def _require_room(self, pod: NodePod, here: Kind, card: int, *, whole: bool) -> None:
        """Whoever is on the card stays, and one more must fit: the extender sees to that, and this to records of others."""
        kind = here.profile.name
        number = numbering(here)
        others = [
            (other, slice_)
            for other in list(self._pods.values())
            if other.uid != pod.uid and not other.seen.ended and (other.uid in self._in or other.phase == "Running")
            for slice_ in other.seen.slices
            if slice_.kind == kind and number(slice_) == card
        ]
        for other, slice_ in others:
            if whole or slice_.whole:
                raise Refuse(
                    f"pod {pod.name} is recorded on card {card} of {kind}, where pod {other.name} is and which cannot be shared"
                )
        own = sum(s.units for s in pod.seen.slices if s.kind == kind and number(s) == card)
        taken = sum(slice_.units for _, slice_ in others)
        if own + taken > here.cards[card].units:
            raise Refuse(
                f"pod {pod.name} is recorded with {own} units on card {card} of {kind}, "
                f"which has {here.cards[card].units - taken} of {here.cards[card].units} left"
            )

    def _has(self, pod: NodePod, part: Part, container: Container) -> bool | None:
        """Whether the container has its cards from us; None if that cannot be judged now.

        Anything of what it would be given is enough, since it is given all or nothing. Not all of it: a label of the node, a way
        of enforcement or a card's number may have changed since, and nobody who runs with a card may be ended for that.
        """
        try:
            wanted = [self._given(pod, want) for want in part.wants]
        except (Refuse, VendorError):
            return None
        env = {pair for one in wanted for pair in one.env.items()}
        paths = {node.container_path for one in wanted for node in one.device_nodes}
        if not env and not paths:
            return True  # nothing of it could be seen
        return bool(env & container.environment.items() or paths & {device.path for device in container.devices})


def correctable(profile: Profile) -> bool:
    """Whether what a device plugin gave of this kind can be replaced: variables can, device files cannot (NRI loses removals)."""
    return not {"device-nodes", "cdi"} & set(profile.container.strategy)


def _part(pod: NodePod, container: str) -> Part | None:
    return next((part for part in pod.parts if part.container == container), None)


def _promised(pod: PodSandbox) -> bool:
    """Its bind said that the runtime must not go on without us, so whatever it runs was to come from here."""
    return assignment.requires_plugin(pod.annotations)
