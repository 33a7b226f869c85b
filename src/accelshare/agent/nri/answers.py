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

Each container that was given cards carries an annotation that says which (`accelshare.io/delivered`). Users cannot write it, and
the runtime shows it to every later agent: so what a container really has is known, whatever became of its pod's record.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from accelshare.agent.container_cards import given, numbering, recorded_cards, shares, whole_cards
from accelshare.agent.discovery.device_inventory import DeviceInventory, Kind
from accelshare.agent.nri.adjustments import adjusted
from accelshare.agent.nri.guard import Guard
from accelshare.agent.nri.protocol.messages import environment
from accelshare.agent.nri.protocol.nri_pb2 import Container, ContainerAdjustment, ContainerState, KeyValue, PodSandbox
from accelshare.agent.nri.protocol.plugin import Refuse
from accelshare.ledger.nouns import Slice
from accelshare.vendors.container_edits import ContainerEdits, device_nodes, shown_cards, shows_cards
from accelshare.vendors.problems import VendorError
from accelshare.vendors.profile import Profile
from accelshare.wire import assignment
from accelshare.wire.node_pods import ContainerNeeds, NodePod, Want

Manner: TypeAlias = Literal["starting", "delivers", "corrects"]
# Where a pod came from, if not from the API server: kubelet's own word on the sandbox.
_SOURCE: Final = "kubernetes.io/config.source"
_ALIVE: Final = (ContainerState.CONTAINER_CREATED, ContainerState.CONTAINER_RUNNING)


@dataclass(frozen=True, slots=True)
class Bare:
    """A container that runs without the card it was promised."""

    pod: NodePod
    container: str


@dataclass(frozen=True, slots=True)
class Guarded:
    """A container that is not entitled to cards of a kind, and what was done about those that it would have had."""

    outcome: Literal["withheld", "refused", "found"]
    pod: PodSandbox
    container: str
    noun: str
    what: str


class Answers:
    """NRI's handler over the pods and cards of this node."""

    def __init__(
        self,
        devices: DeviceInventory,
        pods: Mapping[str, NodePod],
        *,
        on_host: Callable[[str], Path],
        node_labels: Callable[[], Mapping[str, str]] = dict,
        guard: Guard | None = None,
        wrong_handler: Callable[[Profile, str], str] = lambda _profile, _handler: "",
    ) -> None:
        """Without a guard, containers that ask for nothing are not looked at."""
        self._devices = devices
        self._guard = guard
        self._wrong_handler = wrong_handler
        self._pods = pods
        self._on_host = on_host
        self._node_labels = node_labels
        self._in: set[str] = set()  # pods that have been given cards here
        self._held: dict[str, dict[str, tuple[Slice, ...]]] = {}  # uid → container → what it was given
        self._there: list[tuple[PodSandbox, Container]] = []
        self.manner: Manner = "starting"
        self.takes_cdi = False
        self.tell: Callable[..., object] = lambda what, *words: what(*words)  # how those below are called
        self.delivered: Callable[[NodePod], None] = lambda _pod: None
        self.refused: Callable[[], None] = lambda: None
        self.corrected: Callable[[NodePod], None] = lambda _pod: None
        self.guarded: Callable[[Guarded], None] = lambda _guarded: None

    # The runtime's questions.

    def synchronize(self, pods: Sequence[PodSandbox], containers: Sequence[Container]) -> None:
        by_id = {pod.id: pod for pod in pods}
        self._there = [(by_id[c.pod_sandbox_id], c) for c in containers if c.pod_sandbox_id in by_id]
        for pod, container in self._there:
            known = self._known(pod)
            if known is not None and (slices := _delivered(pod, container)) and _part(known, container.name) is not None:
                self._held.setdefault(known.uid, {})[container.name] = slices

    def create_container(self, pod: PodSandbox, container: Container) -> ContainerAdjustment:
        try:
            withheld = self._withhold(pod, container)
            adjustment = _with_variables(self._create(pod, container), withheld)
            self._refuse_doubled(pod, container, adjustment)
            return adjustment  # noqa: TRY300 – the last of the steps that may refuse
        except Refuse:
            self.tell(self.refused)
            raise
        except VendorError as error:
            self.tell(self.refused)
            raise Refuse(str(error)) from error

    def validate_container(self, pod: PodSandbox, container: Container, adjust: ContainerAdjustment) -> None:
        """Whatever other plugins and the pod itself add, nobody has a card that it is not entitled to."""
        self._refuse_intruder(pod, container, adjust)

    def start_container(self, pod: PodSandbox, container: Container) -> None:
        """A container that was made while we were away must not start without its card."""
        known = self._known(pod)
        part = _part(known, container.name) if known is not None else None
        if known is None or part is None or self.manner != "delivers" or known.by_hand or not known.seen.slices:
            return
        if all(whole and self._devices.whole_by_others(kind) for kind, whole, _ in part.wants):
            return
        promised = assignment.requires_plugin(pod.annotations, container.name) is not None
        if not _delivered(pod, container) and (promised or not self._shows_a_card(part, container)):
            self.tell(self.refused)
            raise Refuse(f"container {container.name} of pod {known.name} was made without its card; it is made anew")

    # What else there is to tell and to ask.

    def pod_gone(self, uid: str) -> None:
        self._in.discard(uid)
        self._held.pop(uid, None)

    def delivered_before(self) -> list[tuple[str, tuple[Slice, ...]]]:
        """What the containers hold that were there when the runtime was connected, by the uids of their pods."""
        return [(uid, slices) for uid, of_pod in list(self._held.items()) for slices in list(of_pod.values())]

    def intruders(self) -> list[Guarded]:
        """Containers with cards that they are not entitled to, of all that ran when the runtime was connected."""
        found = []
        for pod, container in self._there if self._guard is not None else ():
            known = self._known(pod)
            if known is None or known.terminating or container.state not in _ALIVE:
                continue
            for kind in self._denied(pod, known, container):
                assert self._guard is not None
                what = self._guard.brings(kind, pod, container) or self._guard.asks_by_variable(kind, container)
                if what:
                    found.append(Guarded("found", pod, container.name, kind.profile.noun, what))
        return found

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
            if known is None or part is None or container.state not in _ALIVE:
                continue
            if self._is_bare(pod, known, part, container):
                found.append(Bare(known, container.name))
        return found

    def given_before(self) -> list[NodePod]:
        """Pods that have their cards from whoever was here before us, of all that were there when the runtime was connected."""
        found = {}
        for pod, container in self._there:
            known = self._known(pod)
            part = _part(known, container.name) if known is not None else None
            if known is not None and part is not None and self._has(pod, known, part, container):
                found[known.uid] = known
        self._in.update(found)
        return list(found.values())

    def _create(self, pod: PodSandbox, container: Container) -> ContainerAdjustment:
        known = self._known(pod)
        if known is None:
            if assignment.OURS in pod.annotations and self.manner != "corrects":
                raise _unseen(pod)
            return ContainerAdjustment()
        part = _part(known, container.name)
        if part is None:
            self._refuse_disabled_kinds(known)
            return ContainerAdjustment()
        if self.manner == "starting":
            raise Refuse(f"the agent of this node is starting; pod {known.name} gets its cards when this is tried again")
        if self.manner == "corrects":
            return self._correct(known, part, container)
        self._require_insistence(pod, container)
        self._refuse_other_names(pod, part, container)
        self._require_handler(known, part, pod.runtime_handler)
        edits, slices = self._all_given(known, part, part.wants)
        if not slices:
            return ContainerAdjustment()  # all of it is another device plugin's
        result = adjusted([*edits, _mark(slices)], on_host=self._on_host)
        self._in.add(known.uid)
        self._hold(known, container, slices)
        self.tell(self.delivered, known)
        return result

    def _refuse_disabled_kinds(self, pod: NodePod) -> None:
        """A pod bound before its vendor's profile broke: the profile does not tell which container asked, so none is made."""
        for kind in sorted({slice_.kind for slice_ in assignment.slices_of(pod.annotations.get(assignment.OURS, ""))}):
            if kind not in self._devices.kinds and (problem := self._devices.problem(kind)):
                raise Refuse(f"pod {pod.name} has cards of {kind}, which this node cannot hand out now: {problem}")

    def _require_insistence(self, pod: PodSandbox, container: Container) -> None:
        """An annotation of the pod's own that tells the runtime not to insist on us would leave a container without its card."""
        if self._devices.insists and assignment.requires_plugin(pod.annotations, container.name) is False:
            raise Refuse(
                f"an annotation {assignment.REQUIRED_PLUGINS} of pod {pod.namespace}/{pod.name} names no plugin "
                f"{assignment.PLUGIN} for container {container.name}; the bind wrote it there and nobody may take it away: "
                "create the pod anew"
            )

    def _require_handler(self, pod: NodePod, part: ContainerNeeds, handler: str) -> None:
        """The variables are of no use to a handler that does not know them: the container would run without a card."""
        ours = {kind for kind, whole, _ in part.wants if not (whole and self._devices.whole_by_others(kind))}
        for kind in sorted(ours):
            here = self._devices.kinds.get(kind)
            if here is not None and (problem := self._wrong_handler(here.profile, handler)):
                raise Refuse(f"pod {pod.name}: {problem}")

    def _correct(self, pod: NodePod, part: ContainerNeeds, container: Container) -> ContainerAdjustment:
        """What kubelet gave by variables, made equal to the record. What it gave as device files no plugin can take away."""
        kinds = {want[0] for want in part.wants if (here := self._devices.kinds.get(want[0])) and correctable(here.profile)}
        if pod.by_hand or not pod.seen.slices or not kinds:
            return ContainerAdjustment()
        wants = tuple(want for want in part.wants if want[0] in kinds and not self._has_own_whole(pod, part, want, container))
        try:
            edits, slices = self._all_given(pod, part, wants)
            result = adjusted([*edits, _mark(slices)] if slices else [], on_host=self._on_host)
        except Refuse:
            return ContainerAdjustment()  # kubelet gave it something; we know nothing better
        if slices:
            self._hold(pod, container, slices)
        if any(environment(container).get(one.key, one.value) != one.value for one in result.env):
            self.tell(self.corrected, pod)
        return result

    def _has_own_whole(self, pod: NodePod, part: ContainerNeeds, want: Want, container: Container) -> bool:
        """kubelet gave it whole cards of the pod's record, and none that another container has: that is right, and stays."""
        kind, whole, amount = want
        here = self._devices.kinds[kind]
        if not whole:
            return False
        shown = _shown(here, container)
        others = {card for name, cards in self._held_cards(pod, here).items() if name != part.container for card in cards}
        right = shown <= set(recorded_cards(pod, here, whole=True)) and len(shown) == amount
        if not right or (others & shown and not part.ends_first):
            return False
        self._hold(pod, container, _slices(here, dict.fromkeys(shown, 0), whole=True))
        return True

    # Who asked for nothing.

    def _withhold(self, pod: PodSandbox, container: Container) -> dict[str, str]:
        """The variables that keep cards from a container that asks for none; refused, if it brings any all the same."""
        self._refuse_intruder(pod, container, None)
        if self._guard is None:
            return {}
        known = self._known(pod)
        variables: dict[str, str] = {}
        for kind in self._denied(pod, known, container, variables=True):
            asks = self._guard.asks_by_variable(kind, container)
            if asks and known is None:
                raise _unseen(pod)
            if asks:
                self.tell(self.guarded, Guarded("withheld", pod, container.name, kind.profile.noun, asks))
            variables |= self._guard.taken(kind, container)
        return variables

    def _refuse_doubled(self, pod: PodSandbox, container: Container, adjustment: ContainerAdjustment) -> None:
        """A variable that an image sets twice keeps the image's value: the runtime replaces the first, and the second counts."""
        denied = self._denied(pod, self._known(pod), container, variables=True)
        withheld = {name for kind in denied for name in kind.profile.container.none}
        counts = Counter(line.partition("=")[0] for line in container.env)
        for name in sorted({*withheld, *(pair.key.removeprefix("-") for pair in adjustment.env)}):
            if counts[name] > 1:
                raise Refuse(
                    f"container {container.name} of pod {pod.namespace}/{pod.name}: its image sets {name} {counts[name]} times, "
                    f"and the container runtime would keep its value; the image must set it once, or not at all"
                )

    def _refuse_intruder(self, pod: PodSandbox, container: Container, adjust: ContainerAdjustment | None) -> None:
        if self._guard is None:
            return
        known = self._known(pod)
        for kind in self._denied(pod, known, container):
            what = self._guard.brings(kind, pod, container, adjust)
            if what and known is None:
                raise _unseen(pod)
            if what:
                self.tell(self.guarded, Guarded("refused", pod, container.name, kind.profile.noun, what))
                raise Refuse(
                    f"container {container.name} of pod {pod.namespace}/{pod.name} asks for no {kind.profile.noun} and brings "
                    f"{what}; ask for {' or '.join(kind.profile.resources.requestable)}"
                )

    def _refuse_other_names(self, pod: PodSandbox, part: ContainerNeeds, container: Container) -> None:
        """What we hand out is ours alone to name: an annotation or a mount by which the vendor's own software would add a card is
        refused. Whole cards that another device plugin hands out are named by that one.
        """
        static = pod.annotations.get(_SOURCE, "api") != "api"
        if self._guard is None or not self._guard.minds(pod, container, static=static):
            return
        ours_alone = [kind for kind, whole, _ in part.wants if not (whole and self._devices.whole_by_others(kind))]
        for kind in [here for name in ours_alone if (here := self._devices.kinds.get(name)) is not None]:
            ours = kind.profile.container.annotations
            brought = {key: value for key, value in {**pod.annotations, **container.annotations}.items() if key not in ours}
            for what in self._guard.names(kind.profile, brought, container.mounts):
                self.tell(self.guarded, Guarded("refused", pod, container.name, kind.profile.noun, what))
                raise Refuse(
                    f"container {container.name} of pod {pod.namespace}/{pod.name} asks for cards of {kind.profile.name} "
                    f"and brings {what}, which would give it others"
                )

    def _denied(self, pod: PodSandbox, known: NodePod | None, container: Container, *, variables: bool = False) -> list[Kind]:
        static = pod.annotations.get(_SOURCE, "api") != "api"
        if self._guard is None or not self._guard.minds(pod, container, static=static):
            return []
        return self._guard.denied(known, container.name, variables=variables)

    # How.

    def _hold(self, pod: NodePod, container: Container, slices: tuple[Slice, ...]) -> None:
        of_pod = {**self._held.get(pod.uid, {}), container.name: slices}
        self._held[pod.uid] = of_pod

    def _held_cards(self, pod: NodePod, here: Kind) -> dict[str, list[int]]:
        """Whole cards of this kind that containers of the pod are known to have."""
        number, kind = numbering(here), here.profile.name
        of_pod = self._held.get(pod.uid, {})
        return {name: [number(s) for s in slices if s.kind == kind and s.whole] for name, slices in of_pod.items()}

    def _known(self, pod: PodSandbox) -> NodePod | None:
        known = self._pods.get(pod.uid)
        if known is None and pod.annotations.get(_SOURCE, "api") != "api":
            # A pod of a file on this node: kubelet names it by a hash, the API server by a uid of its own.
            name = f"{pod.namespace}/{pod.name}"
            known = next((found for found in list(self._pods.values()) if found.name == name), None)
        return known

    def _all_given(
        self, pod: NodePod, part: ContainerNeeds, wants: Sequence[Want]
    ) -> tuple[list[ContainerEdits], tuple[Slice, ...]]:
        """What a container is given for these wants, and the same as slices."""
        edits, slices = list[ContainerEdits](), list[Slice]()
        for want in wants:
            of_want, units = self._given(pod, part, want)
            edits.append(of_want)
            slices += _slices(self._devices.kinds[want[0]], units, whole=want[1])
        return edits, tuple(slices)

    def _given(self, pod: NodePod, part: ContainerNeeds, want: Want) -> tuple[ContainerEdits, dict[int, int]]:
        kind, whole, amount = want
        if whole and self._devices.whole_by_others(kind):
            return ContainerEdits(), {}  # another device plugin has given them
        what = f"{amount} {'whole cards' if whole else 'units'} of {kind}"
        here = self._devices.kinds.get(kind)
        if here is None:
            raise Refuse(f"pod {pod.name} asks {what}, and no card of {kind} has been found on this node")
        if pod.by_hand:
            raise Refuse(
                f"pod {pod.name} asks {what} and names its node itself: no card was chosen for it; let the scheduler place it"
            )
        cards = recorded_cards(pod, here, whole=whole)
        if not cards:
            raise Refuse(f"pod {pod.name} asks {what}, and its record names no card that this node has")
        if whole:
            held = self._held_cards(pod, here) if self.manner == "corrects" else None
            recorded, cards = cards, whole_cards(pod, here, part.container, held)
            if len(cards) != amount:
                raise Refuse(
                    f"container {part.container} of pod {pod.name} asks {what}, and of the {len(recorded)} in the pod's record "
                    f"{len(cards)} are left for it"
                )
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
            return edits, units
        nodes = device_nodes(here.profile, shares(here, units, whole=whole), lambda path: self._on_host(path).exists())
        files = tuple(dict.fromkeys((*edits.device_nodes, *nodes)))
        return ContainerEdits(edits.env, files, edits.mounts, (), edits.annotations), units

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

    def _has(self, pod: PodSandbox, known: NodePod, part: ContainerNeeds, container: Container) -> bool | None:
        """Whether the container has its cards from us; None if that cannot be judged now.

        An agent that marked its containers says so itself. Of an older one's, what names the cards must be there, all of it: a
        variable that a user set is one sign at most. Nothing else is asked for: a label of the node, a way of enforcement or a
        limit may have changed since, and nobody who runs with a card may be ended for that.
        """
        if _delivered(pod, container):
            return True
        for want in part.wants:
            try:
                _, units = self._given(known, part, want)
            except (Refuse, VendorError):
                return None
            here = self._devices.kinds[want[0]]
            if shows_cards(here.profile) and not set(units) <= _shown(here, container):
                return False
        return True

    def _is_bare(self, pod: PodSandbox, known: NodePod, part: ContainerNeeds, container: Container) -> bool:
        """It was promised cards by the runtime and has not got them, or shows no card at all, whoever was to give it one."""
        if known.by_hand or self._has(pod, known, part, container) is not False:
            return False
        if assignment.requires_plugin(pod.annotations, container.name):
            return True
        return not self._shows_a_card(part, container)

    def _shows_a_card(self, part: ContainerNeeds, container: Container) -> bool:
        kinds = [here for want in part.wants if (here := self._devices.kinds.get(want[0])) is not None]
        return any(_shown(here, container) or not shows_cards(here.profile) for here in kinds)


def correctable(profile: Profile) -> bool:
    """Whether what a device plugin gave of this kind can be replaced: variables can, device files cannot (NRI loses removals)."""
    return not {"device-nodes", "cdi"} & set(profile.container.strategy)


def _part(pod: NodePod, container: str) -> ContainerNeeds | None:
    return next((part for part in pod.parts if part.container == container), None)


def _delivered(pod: PodSandbox, container: Container) -> tuple[Slice, ...]:
    """The cards that this container was given, as its mark says. A pod whose own annotation has that name is not believed."""
    if assignment.DELIVERED in pod.annotations:
        return ()
    return assignment.slices_of(container.annotations.get(assignment.DELIVERED, "{}"))


def _mark(slices: tuple[Slice, ...]) -> ContainerEdits:
    return ContainerEdits(annotations={assignment.DELIVERED: assignment.text(slices)})


def _slices(here: Kind, units: Mapping[int, int], *, whole: bool) -> tuple[Slice, ...]:
    kind = here.profile.name
    return tuple(Slice(kind, card, 0 if whole else amount, whole, here.cards[card].found.id) for card, amount in units.items())


def _shown(here: Kind, container: Container) -> set[int]:
    return shown_cards(
        here.profile,
        [card.found for card in here.cards.values()],
        env=environment(container),
        devices={device.path for device in container.linux.devices},
        mounts={mount.destination for mount in container.mounts},
    )


def _with_variables(adjustment: ContainerAdjustment, variables: Mapping[str, str]) -> ContainerAdjustment:
    own = {pair.key for pair in adjustment.env}
    adjustment.env.extend(KeyValue(key=name, value=value) for name, value in variables.items() if name not in own)
    return adjustment


def _unseen(pod: PodSandbox) -> Refuse:
    return Refuse(f"pod {pod.namespace}/{pod.name} has not been seen on this node yet; it will be when this is tried again")
