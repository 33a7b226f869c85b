"""Decides what one container gets, from a snapshot of the node: its adjustment, or a refusal.

Belongs here: from a pod and a container, as the runtime names them, to the edits of that container. The pod's request and record
come from the API server's watch, never from the annotations that the runtime shows. Nothing here changes shared state.

Undecided mode: it is not known yet what this runtime guarantees, so containers with cards are refused until it is. NRI
mode: we alone deliver cards, and a container that cannot get its own is refused; kubelet tries again. Device plugin mode:
kubelet's device plugin has delivered, and variables that name cards are made equal to the record; device files stay, and the
record follows them.

Each container that gets cards carries an annotation that names them (`accelshare.io/delivered`). Users cannot write it, and the
runtime shows it to every later agent: so the cards of a container are known, whatever became of its pod's record.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from accelshare.agent.container_cards import (
    container_edits,
    correctable,
    numbering,
    recorded_cards,
    share_of,
    shares,
    whole_cards,
)
from accelshare.agent.delivery_mode import UNDECIDED, Deliverer, DeliveryMode
from accelshare.agent.discovery.device_inventory import InventorySnapshot, VendorCards
from accelshare.agent.limits.wanted import Limit, unified, wanted_limits
from accelshare.agent.nri.adjustments import adjusted
from accelshare.agent.nri.guard import CDI_ANNOTATION, Guard
from accelshare.agent.nri.outcomes import Corrected, Delivered, Outcome, Unentitled
from accelshare.agent.nri.protocol.messages import environment
from accelshare.agent.nri.protocol.nri_pb2 import Container, ContainerAdjustment, ContainerState, KeyValue, Mount, PodSandbox
from accelshare.agent.nri.protocol.plugin import Refuse
from accelshare.ledger.nouns import Slice
from accelshare.vendors.container_edits import (
    ContainerEdits,
    all_variables,
    card_mounts,
    device_nodes,
    shown_cards,
    shows_cards,
    variable_values,
)
from accelshare.vendors.problems import VendorError
from accelshare.vendors.profile import Profile
from accelshare.wire import assignment
from accelshare.wire.node_pods import ContainerNeeds, NodePod, Want

_SOURCE: Final = "kubernetes.io/config.source"  # kubelet's annotation on a sandbox: "api", or where else the pod came from
_ALIVE: Final = (ContainerState.CONTAINER_CREATED, ContainerState.CONTAINER_RUNNING)


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """What a decision reads, at one moment. It never changes."""

    pods: Mapping[str, NodePod]
    inventory: InventorySnapshot
    mode: DeliveryMode = UNDECIDED
    labels: Mapping[str, str] = field(default_factory=dict)
    resources: frozenset[str] = frozenset()  # of which the node's capacity is not zero; kubelet does not check others
    delivered: Mapping[str, Mapping[str, tuple[Slice, ...]]] = field(default_factory=dict)  # uid → container → its cards
    served: frozenset[str] = frozenset()  # uids of pods that got cards through NRI
    takes_cdi: bool = False  # the runtime accepts CDI names in adjustments

    def pod_of(self, sandbox: PodSandbox) -> NodePod | None:
        pod = self.pods.get(sandbox.uid)
        if pod is None and is_static(sandbox):
            # kubelet names a static pod by a hash, the API server by a uid of its own.
            name = f"{sandbox.namespace}/{sandbox.name}"
            pod = next((other for other in self.pods.values() if other.name == name), None)
        return pod

    def is_ours(self, want: Want) -> bool:
        """Whether we deliver this; another device plugin may deliver whole cards of its kind."""
        kind, whole, _ = want
        return not (whole and kind in self.inventory.whole_by_others)


@dataclass(frozen=True, slots=True)
class Rules:
    """What stays the same for all decisions of an agent."""

    on_host: Callable[[str], Path]  # where a device file of the host is seen from here
    guard: Guard | None = None  # without one, containers that request no card are ignored
    wrong_handler: Callable[[Profile, str], str] = lambda _profile, _handler: ""  # why a runtime handler cannot be used


def is_static(sandbox: PodSandbox) -> bool:
    """Whether the pod comes from a file on the node."""
    return sandbox.annotations.get(_SOURCE, "api") != "api"


def delivered_slices(sandbox: PodSandbox, container: Container) -> tuple[Slice, ...]:
    """The cards that our annotation on the container names. If the pod has an annotation of that name, it is not trusted."""
    if assignment.DELIVERED in sandbox.annotations:
        return ()
    return assignment.slices_of(container.annotations.get(assignment.DELIVERED, "{}"))


class ContainerDecision:
    """One container at one moment. `outcomes` and `slices` are what the decision resulted in besides the adjustment."""

    def __init__(self, node: NodeSnapshot, rules: Rules, sandbox: PodSandbox, container: Container) -> None:
        self._node = node
        self._kinds = node.inventory.kinds
        self._rules = rules
        self._sandbox = sandbox
        self._container = container
        self.pod = node.pod_of(sandbox)
        parts = self.pod.parts if self.pod is not None else ()
        self.needs = next((part for part in parts if part.container == container.name), None)
        self.outcomes: list[Outcome] = []
        self._success: Outcome | None = None
        self.slices: tuple[Slice, ...] = ()  # the cards that the container holds
        self.pod_limits: tuple[Limit, ...] = ()  # what its pod may use at most, of cards that the vendor's driver limits

    @property
    def cgroup(self) -> str:
        """The container's cgroup, as the runtime gives it."""
        return self._container.linux.cgroups_path

    @property
    def container_id(self) -> str:
        return self._container.id

    @property
    def pod_cgroup(self) -> str:
        """The cgroup of its pod, as kubelet names it."""
        return self._sandbox.linux.cgroup_parent

    @property
    def is_alive(self) -> bool:
        """Whether the container exists and its pod is not terminating."""
        return self.pod is not None and not self.pod.terminating and self._container.state in _ALIVE

    # Calls of the runtime.

    def create(self) -> ContainerAdjustment:
        """What the container gets; raises Refuse or VendorError."""
        self._refuse_unentitled(None)
        variables = self._withheld_variables()
        adjustment = self._adjustment()
        own = {pair.key for pair in adjustment.env}
        variables |= self._withheld_from_entitled(own)
        adjustment.env.extend(KeyValue(key=name, value=value) for name, value in variables.items() if name not in own)
        self._refuse_repeated_variables(adjustment)
        self.outcomes += [self._success] if self._success is not None else []
        return adjustment

    def validate(self, adjust: ContainerAdjustment) -> None:
        """Refuse a container that would have a card that it is not entitled to, whatever plugin adds it."""
        self._refuse_unentitled(adjust)
        self._refuse_additions(adjust)

    def start(self) -> None:
        """Refuse a container that was created without its card while we were away."""
        pod, needs = self.pod, self.needs
        if pod is None or needs is None or not self._node.mode.by_nri or pod.by_hand or not pod.seen.slices:
            return
        if not any(map(self._node.is_ours, needs.wants)) or delivered_slices(self._sandbox, self._container):
            return
        required = assignment.requires_plugin(self._sandbox.annotations, self._container.name) is not None
        if required or not self._shows_a_card(needs):
            name = self._container.name
            raise Refuse(f"container {name} of pod {pod.name} was created without its card; kubelet will recreate the container")

    def limits(self) -> tuple[Limit, ...]:
        """The limits that the container must have, by the cards that it holds."""
        return wanted_limits(self._kinds, self._in_force(delivered_slices(self._sandbox, self._container)))

    def pod_limits_now(self) -> tuple[Limit, ...]:
        """The limits that the cgroup of its pod must have: of cards that the vendor's driver limits."""
        slices = self.pod.seen.slices if self.pod is not None else ()
        return tuple(one for one in wanted_limits(self._kinds, slices) if one.way.by_driver)

    def _in_force(self, slices: tuple[Slice, ...]) -> tuple[Slice, ...]:
        """The container's slices with the amount of now: it was perhaps created before a resize."""
        units = self.pod.resized_units if self.pod is not None else 0
        return tuple(slice_ if slice_.whole else replace(slice_, units=units) for slice_ in slices) if units else slices

    def limits_at_start(self) -> tuple[Limit, ...]:
        """The limits that must be set before the container starts; raises Refuse if that is not possible now."""
        limits = self.limits()
        by_card = assignment.limited_ways(self._container.annotations.get(assignment.LIMITED, "{}"))
        unknown = [f"{id} ({way})" for id, way in by_card.items() if id not in {limit.id for limit in limits}]
        if unknown:
            raise Refuse(
                f"container {self._container.name} of pod {self._pod_name()} was created with limits on the cards "
                f"{', '.join(unknown)}, which cannot be set now; kubelet will recreate the container"
            )
        return limits

    # Containers that were there when the runtime connected.

    def unentitled(self) -> list[Unentitled]:
        """Cards that a living container has without being entitled to them."""
        guard, found = self._rules.guard, []
        for kind in self._denied() if guard is not None and self.is_alive else ():
            assert guard is not None
            what = guard.brings(kind, self._sandbox, self._container, has_claim=self._has_claim)
            if not what and not self._has_claim:
                what = guard.requests_by_variable(kind, self._container)
            if what:
                found.append(Unentitled("found", self._sandbox, self._container.name, kind.profile.noun, what))
        return found

    def has_cards(self) -> bool | None:
        """Whether the container has its cards from us; None if that cannot be decided now.

        Our annotation on the container proves it. For containers of older agents, everything that names the cards must be
        there: a variable that a user set is one sign at most. Nothing else is compared: a node label, the enforcement or a
        limit may have changed since, and no container that runs with a card may be ended for that.
        """
        if self.pod is None or self.needs is None:
            return False
        if delivered_slices(self._sandbox, self._container):
            return True
        for want in self.needs.wants:
            try:
                _, units = self._edits_for(self.pod, self.needs, want)
            except (Refuse, VendorError):
                return None
            vendor = self._kinds[want[0]]
            if shows_cards(vendor.profile) and not set(units) <= _shown(vendor, self._container):
                return False
        return True

    def lacks_cards(self) -> bool:
        """Whether a living container requires its cards from the runtime and has not got them, or shows no card at all."""
        if self.pod is None or self.needs is None or not self.is_alive or self.pod.by_hand or self.has_cards() is not False:
            return False
        required = assignment.requires_plugin(self._sandbox.annotations, self._container.name)
        return bool(required) or not self._shows_a_card(self.needs)

    # Containers with cards.

    def _adjustment(self) -> ContainerAdjustment:
        pod, needs, deliverer = self.pod, self.needs, self._node.mode.deliverer
        if pod is None:
            if assignment.OURS in self._sandbox.annotations and deliverer is not Deliverer.DEVICE_PLUGIN:
                raise self._unseen()
            return ContainerAdjustment()
        if needs is None:
            self._refuse_disabled_kinds(pod)
            return ContainerAdjustment()
        if deliverer is Deliverer.UNDECIDED:
            raise Refuse(f"the agent of this node is starting; pod {pod.name} gets its cards when kubelet tries again")
        self._refuse_other_sources(pod, needs)
        if deliverer is Deliverer.DEVICE_PLUGIN:
            return self._corrected(pod, needs)
        self._require_plugin()
        self._require_handler(pod, needs)
        wants = [(kind, whole, amount if whole else pod.resized_units or amount) for kind, whole, amount in needs.wants]
        edits, slices = self._edits_for_all(pod, needs, wants)
        if not slices:
            return ContainerAdjustment()  # another device plugin delivers all of it
        limits = wanted_limits(self._kinds, slices)
        self._refuse_our_annotations()
        result = adjusted([*edits, _mark(slices, limits)], on_host=self._rules.on_host, unified=unified(limits))
        self.slices = slices
        self.pod_limits = self.pod_limits_now()
        self._success = Delivered(pod)
        return result

    def _corrected(self, pod: NodePod, needs: ContainerNeeds) -> ContainerAdjustment:
        """Make the variables from kubelet's device plugin equal to the record. NRI cannot take away device files."""
        kinds = {want[0] for want in needs.wants if (found := self._kinds.get(want[0])) and correctable(found.profile)}
        self._refuse_unknown_kinds(pod, needs)
        if pod.by_hand or not pod.seen.slices or not kinds:
            self._refuse_own_variables(pod, needs, kinds)
            return ContainerAdjustment()
        wants = tuple(want for want in needs.wants if want[0] in kinds and not self._has_right_whole_cards(pod, needs, want))
        try:
            edits, slices = self._edits_for_all(pod, needs, wants)
            result = adjusted([*edits, _mark(slices)] if slices else [], on_host=self._rules.on_host)
        except Refuse:
            if needs.variables:
                raise  # the device plugin left these variables to us, and the manifest's values may name any card
            return ContainerAdjustment()  # the device plugin gave it something, and we know nothing better
        self.slices = slices or self.slices
        self._refuse_mounts_of_others()
        if any(environment(self._container).get(one.key, one.value) != one.value for one in result.env):
            self._success = Corrected(pod)
        return result

    def _has_right_whole_cards(self, pod: NodePod, needs: ContainerNeeds, want: Want) -> bool:
        """Whether kubelet gave it whole cards of the pod's record, and none that another container has. Those stay."""
        kind, whole, amount = want
        if not whole:
            return False
        vendor = self._kinds[kind]
        shown = _shown(vendor, self._container)
        others = {card for name, cards in self._held_cards(pod, vendor).items() if name != needs.container for card in cards}
        right = shown <= set(recorded_cards(pod, vendor, whole=True)) and len(shown) == amount
        if not right or (others & shown and not needs.ends_first):
            return False
        self.slices = _slices(vendor, dict.fromkeys(shown, 0), whole=True)
        return True

    def _edits_for_all(
        self, pod: NodePod, needs: ContainerNeeds, wants: Sequence[Want]
    ) -> tuple[list[ContainerEdits], tuple[Slice, ...]]:
        """What the container gets for these wants, and the same as slices."""
        edits, slices = list[ContainerEdits](), list[Slice]()
        for want in wants:
            of_want, units = self._edits_for(pod, needs, want)
            edits.append(of_want)
            slices += _slices(self._kinds[want[0]], units, whole=want[1])
        return edits, tuple(slices)

    def _edits_for(self, pod: NodePod, needs: ContainerNeeds, want: Want) -> tuple[ContainerEdits, dict[int, int]]:
        """The edits for one want, and the units of each card by index."""
        kind, whole, amount = want
        if not self._node.is_ours(want):
            return ContainerEdits(), {}
        what = f"{amount} {'whole cards' if whole else 'units'} of {kind}"
        vendor = self._kinds.get(kind)
        if vendor is None:
            raise Refuse(f"pod {pod.name} requests {what}, and this node has found no card of {kind}")
        if pod.by_hand:
            raise Refuse(f"pod {pod.name} requests {what} and names its node itself: it has no card; let the scheduler place it")
        cards = recorded_cards(pod, vendor, whole=whole)
        if not cards:
            raise Refuse(f"pod {pod.name} requests {what}, and its record names no card of this node")
        if whole:
            recorded, cards = len(cards), whole_cards(pod, vendor, needs.container, self._certain_cards(pod, vendor))
            if len(cards) != amount:
                raise Refuse(
                    f"container {needs.container} of pod {pod.name} requests {what}, and of the {recorded} in the pod's record "
                    f"{len(cards)} are left for it"
                )
        for card in cards if self._node.mode.by_nri else ():
            self._require_free_capacity(pod, vendor, card, whole=whole)
        units = dict.fromkeys(cards, 0 if whole else share_of(vendor.profile, amount, len(cards)))
        exists = self._exists
        edits = container_edits(pod, vendor, units, whole=whole, amount=amount, exists=exists, node_labels=self._node.labels)
        if not edits.cdi_devices or self._node.takes_cdi:
            return edits, units
        nodes = device_nodes(vendor.profile, shares(vendor, units, whole=whole), exists)
        files = tuple(dict.fromkeys((*edits.device_nodes, *nodes)))
        return ContainerEdits(edits.env, files, edits.mounts, (), edits.annotations), units

    def _exists(self, path: str) -> bool:
        return self._rules.on_host(path).exists()

    def _certain_cards(self, pod: NodePod, vendor: VendorCards) -> dict[str, list[int]] | None:
        return self._held_cards(pod, vendor) if self._node.mode.deliverer is Deliverer.DEVICE_PLUGIN else None

    def _held_cards(self, pod: NodePod, vendor: VendorCards) -> dict[str, list[int]]:
        """The whole cards of this kind that containers of the pod are known to have."""
        number, kind = numbering(vendor), vendor.profile.name
        of_pod = self._node.delivered.get(pod.uid, {})
        return {name: [number(s) for s in slices if s.kind == kind and s.whole] for name, slices in of_pod.items()}

    def _shows_a_card(self, needs: ContainerNeeds) -> bool:
        vendors = [vendor for want in needs.wants if (vendor := self._kinds.get(want[0])) is not None]
        return any(_shown(vendor, self._container) or not shows_cards(vendor.profile) for vendor in vendors)

    # Refusals.

    def _refuse_disabled_kinds(self, pod: NodePod) -> None:
        """A pod bound before its vendor's profile broke: the broken profile does not show which container requests the cards, so
        every container of the pod is refused.
        """
        for kind in sorted({slice_.kind for slice_ in assignment.slices_of(pod.annotations.get(assignment.OURS, ""))}):
            if kind not in self._kinds and (problem := self._node.inventory.problems.get(kind)):
                raise Refuse(f"pod {pod.name} has cards of {kind}, which this node cannot deliver now: {problem}")

    def _refuse_unknown_kinds(self, pod: NodePod, needs: ContainerNeeds) -> None:
        """Before a driver has answered, nothing tells our device plugin's variables from those of the manifest. If it has failed,
        the container may run with what our device plugin gave it, but not with variables that it left to us.
        """
        ours = {want[0] for want in needs.wants if self._node.is_ours(want)}
        for kind in sorted((ours & self._node.mode.corrected_kinds) - self._kinds.keys()):
            if kind not in self._node.inventory.discovered:
                raise Refuse(f"the agent of this node has not found its cards of {kind} yet; pod {pod.name} must wait for them")
            if needs.variables:
                raise self._sets_variables(needs.variables, f"the cards of {kind} cannot be found on this node now")

    def _refuse_own_variables(self, pod: NodePod, needs: ContainerNeeds, kinds: Collection[str]) -> None:
        """Of a pod without a record: its values of the variables that come with cards would count."""
        own = {name for kind in kinds for name in needs.variables & all_variables(self._kinds[kind].profile)}
        if own and self._guard() is not None:
            raise self._sets_variables(own, f"no scheduler recorded a card for pod {pod.name}")

    def _sets_variables(self, names: Collection[str], why: str) -> Refuse:
        return Refuse(
            f"the manifest of container {self._container.name} of pod {self._pod_name()} sets {', '.join(sorted(names))}, which "
            f"can name any card, and {why}; remove it from the manifest"
        )

    def _require_plugin(self) -> None:
        """A pod's own annotation that frees a container from requiring our plugin would let it start without its card."""
        if self._node.mode.validated and assignment.requires_plugin(self._sandbox.annotations, self._container.name) is False:
            raise Refuse(
                f"an annotation {assignment.REQUIRED_PLUGINS} of pod {self._pod_name()} names no plugin {assignment.PLUGIN} for "
                f"container {self._container.name}; the bind wrote it, and it must not be removed: create the pod again"
            )

    def _require_handler(self, pod: NodePod, needs: ContainerNeeds) -> None:
        """A runtime handler that does not know the vendor's variables would start the container without a card."""
        for kind in sorted({want[0] for want in needs.wants if self._node.is_ours(want)}):
            vendor = self._kinds.get(kind)
            if vendor is not None and (problem := self._rules.wrong_handler(vendor.profile, self._sandbox.runtime_handler)):
                raise Refuse(f"pod {pod.name}: {problem}")

    def _require_free_capacity(self, pod: NodePod, vendor: VendorCards, card: int, *, whole: bool) -> None:
        """The pods on the card stay, and this one must fit. The extender ensures that; this check is for records of others."""
        kind, number = vendor.profile.name, numbering(vendor)
        others = [
            (other, slice_)
            for other in self._node.pods.values()
            if other.uid != pod.uid and not other.seen.ended and (other.uid in self._node.served or other.phase == "Running")
            for slice_ in other.seen.slices
            if slice_.kind == kind and number(slice_) == card
        ]
        for other, slice_ in others:
            if whole or slice_.whole:
                raise Refuse(f"pod {pod.name} is recorded on card {card} of {kind}, which pod {other.name} uses and cannot share")
        own = sum(s.units for s in pod.seen.slices if s.kind == kind and number(s) == card)
        free = vendor.cards[card].units - sum(slice_.units for _, slice_ in others)
        if own > free:
            raise Refuse(
                f"pod {pod.name} is recorded with {own} units on card {card} of {kind}, "
                f"which has {free} of {vendor.cards[card].units} left"
            )

    def _refuse_our_annotations(self) -> None:
        """With annotations of its own a pod could hide from us which cards and limits its container must have, now or later."""
        for key in (assignment.DELIVERED, assignment.LIMITED):
            if key in self._sandbox.annotations:
                raise Refuse(
                    f"pod {self._pod_name()} has an annotation {key}, which only the agent sets on containers; remove it"
                )

    def _refuse_other_sources(self, pod: NodePod, needs: ContainerNeeds) -> None:
        """Refuse annotations and mounts by which the vendor's own software would add a card to those that the container gets."""
        guard = self._guard()
        for kind, whole in self._ours(needs) if guard is not None else ():
            assert guard is not None
            own = kind.profile.container.annotations
            of_container = dict(self._container.annotations)
            mounts = list(self._container.mounts)
            if self._node.mode.deliverer is Deliverer.DEVICE_PLUGIN:  # kubelet adds what our device plugin answered
                of_container = {key: value for key, value in of_container.items() if not key.startswith(CDI_ANNOTATION)}
                mounts = self._without_answer(pod, needs, kind, whole=whole)
            both = {**self._sandbox.annotations, **of_container}
            foreign = {key: value for key, value in both.items() if key not in own}
            for what in guard.names(kind.profile, foreign, mounts):
                raise self._gets_others(kind, what)

    def _without_answer(self, pod: NodePod, needs: ContainerNeeds, kind: VendorCards, *, whole: bool) -> list[Mount]:
        """The container's mounts without those that our device plugin answers: one for each card that it requests."""
        cards = _requested_cards(pod, needs, kind.profile.name, whole=whole)
        answers = set(card_mounts(kind.profile, [card.found for card in kind.cards.values()]))
        found = [mount for mount in self._container.mounts if mount.destination in answers]
        expected = found if len(found) <= cards else []
        return [mount for mount in self._container.mounts if mount not in expected]

    def _refuse_mounts_of_others(self) -> None:
        """NRI cannot take away a mount: one for a card that is not the container's own would give it that card, too."""
        mounted = {mount.destination for mount in self._container.mounts}
        for kind in {slice_.kind for slice_ in self.slices}:
            vendor = self._kinds[kind]
            own = {numbering(vendor)(slice_) for slice_ in self.slices if slice_.kind == kind}
            others = [card.found for card in vendor.cards.values() if card.index not in own]
            for path in mounted.intersection(card_mounts(vendor.profile, others)):
                raise self._gets_others(vendor, f"mount {path[:100]}")

    def _refuse_additions(self, adjust: ContainerAdjustment) -> None:
        """Refuse cards that another plugin adds to those that we deliver."""
        guard, pod, needs = self._guard(), self.pod, self.needs
        if guard is None or pod is None or needs is None or not self._node.mode.by_nri:
            return
        delivered = self._node.delivered.get(pod.uid, {}).get(needs.container, ())
        for kind in {vendor.profile.name: vendor for vendor, _ in self._ours(needs)}.values():
            number = numbering(kind)
            own = {number(slice_) for slice_ in delivered if slice_.kind == kind.profile.name}
            if what := guard.adds(kind, own, self._container, adjust):
                raise self._gets_others(kind, what)

    def _guard(self) -> Guard | None:
        """The guard, if it applies to this container."""
        guard = self._rules.guard
        applies = guard is not None and guard.applies_to(self._sandbox, self._container, static=is_static(self._sandbox))
        return guard if applies else None

    def _ours(self, needs: ContainerNeeds) -> list[tuple[VendorCards, bool]]:
        """The kinds that we deliver to this container, each with whether it requests whole cards."""
        ours = [(want[0], want[1]) for want in needs.wants if self._node.is_ours(want)]
        return [(vendor, whole) for name, whole in ours if (vendor := self._kinds.get(name)) is not None]

    def _gets_others(self, kind: VendorCards, what: str) -> Refuse:
        self._report_unentitled("refused", kind, what)
        return Refuse(
            f"container {self._container.name} of pod {self._pod_name()} requests cards of {kind.profile.name} "
            f"and brings {what}, which would give it others"
        )

    # Containers without cards.

    @property
    def _has_claim(self) -> bool:
        return self.pod is not None and self._container.name in self.pod.claims

    def _denied(self) -> list[VendorCards]:
        guard = self._guard()
        if guard is None:
            return []
        inventory, resources = self._node.inventory, self._node.resources
        return guard.denied(inventory, self.pod, self._container.name, node_resources=resources)

    def _refuse_unentitled(self, adjust: ContainerAdjustment | None) -> None:
        guard = self._rules.guard
        for kind in self._denied() if guard is not None else ():
            assert guard is not None
            what = guard.brings(kind, self._sandbox, self._container, adjust, has_claim=self._has_claim)
            if what and self.pod is None:
                raise self._unseen()
            if what:
                self._report_unentitled("refused", kind, what)
                raise Refuse(
                    f"container {self._container.name} of pod {self._pod_name()} requests no {kind.profile.noun} and brings "
                    f"{what}; request {' or '.join(kind.profile.resources.requestable)}"
                )

    def _withheld_variables(self) -> dict[str, str]:
        """The variables that keep cards from a container that requests none."""
        guard = self._rules.guard
        variables: dict[str, str] = {}
        for kind in self._denied() if guard is not None else ():
            assert guard is not None
            requested = guard.requests_by_variable(kind, self._container)
            if requested and self.pod is None:
                raise self._unseen()
            if requested:
                self._report_unentitled("withheld", kind, requested)
            variables |= guard.withholding_variables(kind, self._container)
        return variables

    def _withheld_from_entitled(self, own: Collection[str]) -> dict[str, str]:
        """Of a container that gets cards from us: the variables by which the pod itself asks the vendor's runtime for others.

        Those in `own` have our values already. What our device plugin can have answered stays.
        """
        guard, pod, needs = self._guard(), self.pod, self.needs
        variables: dict[str, str] = {}
        if guard is None or pod is None or needs is None:
            return variables
        env = environment(self._container)
        for kind, whole in self._ours(needs):
            withheld = guard.withholding_variables(kind, self._container)
            most = _requested_cards(pod, needs, kind.profile.name, whole=whole)
            for name in sorted((kind.profile.container.none.keys() & env.keys()) - set(own)):
                values = variable_values(kind.profile, name, [card.found for card in kind.cards.values()])
                named = env[name].split(",")
                if values is None and name in withheld:  # cards are given in another way
                    variables[name] = withheld[name]
                elif values and (len(named) > most or not values.issuperset(named)):
                    raise self._gets_others(kind, f"{name}={env[name][:64]}")
                elif values and (self.slices or values == {env[name]}):
                    # The right cards, or a value that names none; where the image sets it, too, the image's value is replaced.
                    variables[name] = env[name]
        return variables

    def _refuse_repeated_variables(self, adjustment: ContainerAdjustment) -> None:
        """A variable that is set twice keeps its last value: the runtime replaces only the first.

        Images name all cards, and what our device plugin answers comes after that: if it is what we set, nothing else is left.
        """
        kinds = self._denied()
        if self._guard() is not None and self.needs is not None:
            kinds += [kind for kind, _ in self._ours(self.needs)]
        withheld = {name for kind in kinds for name in kind.profile.container.none}
        set_by_us = {pair.key: pair.value for pair in adjustment.env}
        by_device_plugin = self._node.mode.deliverer is Deliverer.DEVICE_PLUGIN
        lines: dict[str, list[str]] = {}
        for line in self._container.env:
            name, _, value = line.partition("=")
            lines.setdefault(name, []).append(value)
        for name in sorted({*withheld, *(key.removeprefix("-") for key in set_by_us)}):
            values = lines.get(name, [])
            if len(values) > 1 and not (by_device_plugin and set(values[1:]) == {set_by_us.get(name)}):
                raise Refuse(
                    f"container {self._container.name} of pod {self._pod_name()}: its image and manifest set {name} "
                    f"{len(values)} times, and the container runtime would keep one of these values; set it at most once"
                )

    def _report_unentitled(self, outcome: Literal["withheld", "refused"], kind: VendorCards, what: str) -> None:
        self.outcomes.append(Unentitled(outcome, self._sandbox, self._container.name, kind.profile.noun, what))

    def _unseen(self) -> Refuse:
        return Refuse(f"the agent has not seen pod {self._pod_name()} yet; kubelet tries again")

    def _pod_name(self) -> str:
        return f"{self._sandbox.namespace}/{self._sandbox.name}"


def _requested_cards(pod: NodePod, needs: ContainerNeeds, kind: str, *, whole: bool) -> int:
    """How many cards the container gets of this kind for its request."""
    if whole:
        return sum(want[2] for want in needs.wants if want[0] == kind and want[1])
    return sum(ask.cards for ask in pod.seen.request if ask.kind == kind and not ask.whole)


def _mark(slices: tuple[Slice, ...], limits: tuple[Limit, ...] = ()) -> ContainerEdits:
    limited = {assignment.LIMITED: assignment.limited_text({limit.id: limit.way.name for limit in limits})} if limits else {}
    return ContainerEdits(annotations={assignment.DELIVERED: assignment.text(slices), **limited})


def _slices(vendor: VendorCards, units: Mapping[int, int], *, whole: bool) -> tuple[Slice, ...]:
    kind = vendor.profile.name
    return tuple(Slice(kind, card, 0 if whole else amount, whole, vendor.cards[card].found.id) for card, amount in units.items())


def _shown(vendor: VendorCards, container: Container) -> set[int]:
    """The cards that the container's variables, devices or mounts name."""
    return shown_cards(
        vendor.profile,
        [card.found for card in vendor.cards.values()],
        env=environment(container),
        devices={device.path for device in container.linux.devices},
        mounts={mount.destination for mount in container.mounts},
    )
