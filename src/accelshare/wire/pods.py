"""Reads pods for the ledger: the request at its peak, the record, the state.

Belongs here: reading requests and records. Never: whether they can be served.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from sys import intern
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from accelshare.ledger.facts import AgentSeen, Needs, PodSeen, WantedResize
from accelshare.ledger.nouns import Ask, LimitNeed, Request, Slice, placed_as
from accelshare.ledger.refusals import Reason, Refusal
from accelshare.vendors.catalog import Catalog
from accelshare.vendors.profile import Profile
from accelshare.vendors.refusal_texts import CARD_COUNT_ANNOTATION, ENFORCEMENT_ANNOTATION
from accelshare.vendors.shapes import cost
from accelshare.wire import assignment, resizing
from accelshare.wire.groups import group_of
from accelshare.wire.inventory import MOST_CARDS
from accelshare.wire.objects import (
    Container,
    Pod,
    PodSpec,
    PodToSchedule,
    Quantity,
    SpecWithPreferences,
    has_binding,
    pod_decoder,
    version_of,
)
from accelshare.wire.quantity import thousandths, whole_number


@dataclass(frozen=True, slots=True)
class InitAmount:
    """One init container: its amount, and whether it keeps running (a sidecar) or ends before the next one."""

    amount: int
    stays: bool = False


def peak(apps: Iterable[int], steps: Sequence[InitAmount] = ()) -> int:
    """The most that a pod holds at once, as Kubernetes counts it: while an init container runs with the sidecars before it, or
    while all app containers run.
    """
    staying = 0
    most = 0
    for step in steps:
        if step.stays:
            staying += step.amount
            most = max(most, staying)
        else:
            most = max(most, staying + step.amount)
    return max(most, staying + sum(apps))


AGENT_LABEL: Final = "accelshare.io/agent"  # on the agents' pods
LARGEST_AMOUNT: Final = 2**31 - 1
TEMPLATES_REMEMBERED: Final = 500_000  # characters of all cached templates: 2,000 ordinary ones, 2 MB; reading one takes 0.14 ms
LONGEST_TEMPLATE: Final = 4_000  # characters; a larger one is not cached
MOST_NAMES_REMEMBERED: Final = 32  # containers of one pod
ENDED: Final = frozenset({"Succeeded", "Failed"})
REJECTED: Final = ("Failed", "UnexpectedAdmissionError")  # what kubelet writes when no device plugin serves a pod
WRONG_POD: Final = (
    "code = InvalidArgument desc = accelshare:"  # in kubelet's message: the agent refused the pod for the pod's own mistake
)

# The values of the annotation, and of the default for pods without it.
ENFORCEMENT: Final = {"required": LimitNeed.REQUIRED, "preferred": LimitNeed.PREFERRED}

Role: TypeAlias = Literal["memory", "whole"]


def default_limits(named: str | None) -> LimitNeed:
    """What pods without the annotation need, by a value of the annotation; None: nothing."""
    return LimitNeed.ANY if named is None else ENFORCEMENT[named]


class AgentIdentity(NamedTuple):
    """Namespace and service account of the agents: a label alone can be set on any pod."""

    namespace: str
    service_account: str


# The request of a pod, the refusal if no node can serve it, and its needs: the same for all pods of a template.
TemplateRead: TypeAlias = tuple[Request, Refusal | None, Needs]


class TemplateCache:
    """What was read from templates: there are few templates and many pods.

    Where each pod has amounts of its own, as some autoscalers set them, all are forgotten now and then.
    """

    def __init__(self) -> None:
        self._reads: dict[object, TemplateRead] = {}
        self.size = 0  # characters
        self.get = self._reads.get

    def add(self, template: object, read: TemplateRead) -> None:
        size = len(repr(template))
        if size > LONGEST_TEMPLATE:
            return
        if self.size + size > TEMPLATES_REMEMBERED:
            self._reads.clear()
            self.size = 0
        self._reads[template] = read
        self.size += size


class PodReader:
    """Reads pods with the resource names of a catalog."""

    def __init__(
        self, catalog: Catalog, *, agents: AgentIdentity | None = None, default_limits: LimitNeed = LimitNeed.ANY
    ) -> None:
        """`agents`: which pods are agents; None: every pod with the label, for readers that make no decision by it.

        `default_limits`: what slices need whose pod does not say it.
        """
        self._agents = agents
        self._default_limits = default_limits
        self._profiles = {profile.name: profile for profile in catalog.profiles}
        self._roles: dict[str, tuple[str, Role]] = {}
        for profile in catalog.profiles:
            for name, role in ((profile.resources.memory, "memory"), (profile.resources.whole, "whole")):
                if name is not None:
                    self._roles[name] = (profile.name, "memory" if role == "memory" else "whole")
        self.count_labels = sorted({profile.request.cards_label or "" for profile in catalog.profiles} - {""})
        self.count_annotations = sorted(
            {CARD_COUNT_ANNOTATION, *(profile.request.cards_annotation or "" for profile in catalog.profiles)} - {""}
        )
        self._templates = TemplateCache()

    def decode(self, raw: msgspec.Raw | bytes) -> PodSeen | AgentSeen | None:
        """The fact about this pod, or None for a pod that neither requests a card nor is an agent."""
        return self.read(pod_decoder.decode(raw))

    def read(self, pod: Pod) -> PodSeen | AgentSeen | None:
        return self.fact(pod) or self._agent(pod)

    def fact(self, pod: Pod | PodToSchedule) -> PodSeen | None:
        request, refusal, needs = self.read_template(pod)
        if not request and refusal is None:
            return None
        metadata, spec, status = pod.metadata, pod.spec, pod.status
        bound = spec.node_name or ""
        # Annotations on a pod that is not bound are not a record; the bind overwrites them.
        record = metadata.annotations or {} if bound else {}
        request, slices, problems = self.read_record(record, request) if record else (request, (), ())
        phase = status.phase if status is not None else None
        started = status is not None and status.start_time is not None
        return PodSeen(
            metadata.uid,
            intern(metadata.namespace),
            metadata.name,
            request,
            version_of(metadata),
            intern(bound),
            slices,
            ended=phase in ENDED,
            started=started,
            scheduled=started or has_binding(status),
            rejected=status is not None and (phase, status.reason) == REJECTED and self._over_cards(pod),
            priority=spec.priority or 0,
            created=metadata.creation_timestamp or "",
            needs=needs,
            refusal=refusal,
            problems=problems,
            runtime_notes=() if bound else _runtime_notes(pod),  # for the Binding
            resize=self._wanted_resize(pod),
            granted=resizing.granted(record.get(resizing.GRANTED)) if record else None,
            in_gang=not bound and group_of(metadata, spec.scheduling_group, spec.workload_ref) is not None,
        )

    def read_record(self, record: Mapping[str, str], request: Request) -> tuple[Request, tuple[Slice, ...], tuple[str, ...]]:
        """The request as it was served, the cards, and messages about what could not be read."""
        slices, problems = assignment.read(record, request, self._profiles)
        # Its owner can edit the number of cards, but not the number it was bound with.
        return placed_as(request, slices) if slices else request, slices, problems

    def request(self, pod: Pod | PodToSchedule) -> tuple[Request, Refusal | None]:
        """The pod's request, and the refusal if no node can serve it.

        A wrong request is still read as far as possible, because the pod may be on a node already.
        """
        asks: list[Ask] = []
        refusal = self._mixed(pod)
        for kind, role in sorted(set(self._roles.values())):
            profile = self._profiles[kind]
            amount = self._peak(pod, kind, role)
            if amount is None:
                refusal = refusal or Refusal(Reason.AMOUNT_UNREADABLE, kind)
            elif amount and role == "whole":
                most = profile.request.max_whole_cards
                if most is not None and amount > most:
                    refusal = refusal or Refusal(Reason.TOO_MANY_WHOLE_CARDS, kind)
                asks.append(Ask(kind, cards=min(amount, MOST_CARDS + 1), whole=True))  # no node has more
            elif amount:
                count = self._card_count(pod, profile)
                if profile.request.shapes:
                    amount, fits = _peak_of_shapes(pod, profile)
                    refusal = refusal or (None if fits else Refusal(Reason.LARGER_THAN_ANY_SHAPE, kind))
                if count is None:
                    refusal = refusal or Refusal(Reason.CARD_COUNT_UNREADABLE, kind)
                elif amount % count:
                    refusal = refusal or Refusal(Reason.CARD_COUNT_LEAVES_REMAINDER, kind)
                limits = self._limits(pod)
                if limits is None:
                    refusal = refusal or Refusal(Reason.ENFORCEMENT_UNREADABLE, kind)
                cards = count if count is not None and not amount % count else 1
                asks.append(Ask(kind, cards, amount // cards, limits=LimitNeed.ANY if limits is None else limits))
        return tuple(asks), refusal

    def _mixed(self, pod: Pod | PodToSchedule) -> Refusal | None:
        """Refuse a container that requests whole cards and a slice: the vendor's variables can name only one of the two."""
        for container in _containers(pod):
            for profile in self._profiles.values():
                names = profile.resources.requestable
                if len(names) > 1 and all(_amount(container, name) for name in names):
                    return Refusal(Reason.WHOLE_AND_SLICE_IN_ONE_CONTAINER, profile.name)
        return None

    def read_template(self, pod: Pod | PodToSchedule) -> TemplateRead:
        """The pod's request and needs, cached by template."""
        template = self._template(pod)
        read = self._templates.get(template)
        if read is None:
            read = (*self.request(pod), needs_of(pod)) if self._asks(pod) else ((), None, ())
            self._templates.add(template, read)
        return read

    def _template(self, pod: Pod | PodToSchedule) -> object:
        """Everything that a request is read from."""
        labels, annotations, spec = pod.metadata.labels or {}, pod.metadata.annotations or {}, pod.spec
        return (
            tuple([_amounts_of(container) for container in spec.containers or ()]),
            tuple([(_amounts_of(container), container.restart_policy) for container in spec.init_containers or ()]),
            _amounts_of(spec),
            tuple((spec.overhead or {}).items()),
            annotations.get(ENFORCEMENT_ANNOTATION),
            *map(labels.get, self.count_labels),
            *map(annotations.get, self.count_annotations),
        )

    def _wanted_resize(self, pod: Pod | PodToSchedule) -> WantedResize | None:
        text = (pod.metadata.annotations or {}).get(resizing.RESIZE)
        if text is None:
            return None
        requesting = [container for container in _containers(pod) if not self._roles.keys().isdisjoint(_requests(container))]
        return resizing.wanted(text, one_container=len(requesting) == 1)

    def _agent(self, pod: Pod) -> AgentSeen | None:
        if not pod.spec.node_name or AGENT_LABEL not in (pod.metadata.labels or ()):
            return None
        if self._agents not in (None, (pod.metadata.namespace, pod.spec.service_account_name)):
            return None
        conditions = (pod.status.conditions if pod.status else None) or ()
        ready = any(condition.type == "Ready" and condition.status == "True" for condition in conditions)
        return AgentSeen(pod.metadata.uid, pod.spec.node_name, ready, version_of(pod.metadata))

    def _asks(self, pod: Pod | PodToSchedule) -> bool:
        roles = self._roles.keys()
        for container in (*(pod.spec.containers or ()), *(pod.spec.init_containers or ())):
            resources = container.resources
            if resources and not (roles.isdisjoint(resources.limits or ()) and roles.isdisjoint(resources.requests or ())):
                return True
        return False

    def _over_cards(self, pod: Pod | PodToSchedule) -> bool:
        """Whether kubelet may have rejected the pod over a card: the message names one, or no other resource of the pod.

        Not if the agent itself refused the pod, for example for a missing RuntimeClass: its owner could create many of these.
        """
        message = (pod.status and pod.status.message) or ""
        if WRONG_POD in message:
            return False
        containers = (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
        named = {name for container in containers for name in _requests(container) if "/" in name and name in message}
        return not named or not named.isdisjoint(self._roles)

    def _peak(self, pod: Pod | PodToSchedule, kind: str, role: Role) -> int | None:
        resource = self._profiles[kind].resources.memory if role == "memory" else self._profiles[kind].resources.whole
        total = _pod_peak(pod, lambda container: _amount(container, resource or ""))
        return total if total is not None and total <= LARGEST_AMOUNT else None

    def _card_count(self, pod: Pod | PodToSchedule, profile: Profile) -> int | None:
        label, annotation = profile.request.cards_label, profile.request.cards_annotation
        annotations = pod.metadata.annotations or {}
        text = (pod.metadata.labels or {}).get(label) if label else None
        if text is None:
            text = annotations.get(annotation) if annotation else None
        if text is None:
            text = annotations.get(CARD_COUNT_ANNOTATION, "1")
        count = int(text) if text.isascii() and text.isdigit() and len(text) <= 6 else 0
        return count if 1 <= count <= profile.request.max_cards else None

    def _limits(self, pod: Pod | PodToSchedule) -> LimitNeed | None:
        text = (pod.metadata.annotations or {}).get(ENFORCEMENT_ANNOTATION)
        return self._default_limits if text is None else ENFORCEMENT.get(text)


def _runtime_notes(pod: Pod | PodToSchedule) -> tuple[tuple[str, str], ...]:
    names = tuple([container.name for container in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))])
    own = {key: value for key, value in (pod.metadata.annotations or {}).items() if key.startswith(assignment.REQUIRED_PLUGINS)}
    if not own and len(names) <= MOST_NAMES_REMEMBERED:
        return _plain_notes(names)
    return tuple(assignment.require_plugin(names, own).items())


@lru_cache(maxsize=1024)  # there are few templates and many pods
def _plain_notes(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple(assignment.require_plugin(names).items())


def needs_of(pod: Pod | PodToSchedule) -> Needs:
    """What a pod takes of every resource, in thousandths, as kube-scheduler counts it."""
    spec = pod.spec
    # Each amount is read once: a pod may have thousands of containers, each with a resource of its own.
    apps: dict[str, list[int]] = {}
    steps: dict[str, list[InitAmount]] = {}
    for container in spec.containers or ():
        for name, amount in _requests(container).items():
            apps.setdefault(name, []).append(thousandths(amount))
    for container in spec.init_containers or ():
        for name, amount in _requests(container).items():
            steps.setdefault(name, []).append(InitAmount(thousandths(amount), container.restart_policy == "Always"))
    needs = {name: peak(apps.get(name, ()), steps.get(name, ())) for name in apps.keys() | steps.keys()}
    needs |= {name: thousandths(amount) for name, amount in _requests(spec).items() if _of_a_whole_pod(name)}
    for name, amount in (spec.overhead or {}).items():
        needs[name] = needs.get(name, 0) + thousandths(amount)
    return tuple(sorted(needs.items()))


def _of_a_whole_pod(resource: str) -> bool:
    """Can a pod request this resource for all its containers together?"""
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def prefers_some_nodes(spec: SpecWithPreferences) -> bool:
    """Does the pod itself state a soft preference? Then the choice among the feasible nodes is the scheduler's."""
    affinity = spec.affinity
    parts = (affinity.node_affinity, affinity.pod_affinity, affinity.pod_anti_affinity) if affinity else ()
    spreads = spec.topology_spread_constraints or ()
    return any(part and part.preferred for part in parts) or any(s.when_unsatisfiable == "ScheduleAnyway" for s in spreads)


def _pod_peak(pod: Pod | PodToSchedule, amount_of: Callable[[Container], int | None]) -> int | None:
    apps = [amount_of(container) for container in pod.spec.containers or ()]
    inits = [(amount_of(container), container.restart_policy == "Always") for container in pod.spec.init_containers or ()]
    readable = [amount for amount in apps if amount is not None]
    steps = [InitAmount(amount, stays) for amount, stays in inits if amount is not None]
    if len(readable) < len(apps) or len(steps) < len(inits):
        return None
    return peak(readable, steps)


def _peak_of_shapes(pod: Pod | PodToSchedule, profile: Profile) -> tuple[int, bool]:
    """The most units that the shapes of its containers take at once, and whether each container's request has a shape.

    Each container has a slice of its own shape. One without a shape is counted as it is: the pod may be on a node already.
    """
    resource = profile.resources.memory or ""
    costs = {amount: cost(profile, amount) for c in _containers(pod) if (amount := _amount(c, resource) or 0)}

    def cost_of(container: Container) -> int:
        amount = _amount(container, resource) or 0
        return costs.get(amount) or amount

    return _pod_peak(pod, cost_of) or 0, None not in costs.values()


def _containers(pod: Pod | PodToSchedule) -> Sequence[Container]:
    return (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))


def _amounts_of(owner: Container | PodSpec) -> object:
    resources = owner.resources
    if resources is None:
        return None
    return tuple(resources.limits.items()) if resources.limits else (), tuple((resources.requests or {}).items())


def _amount(container: Container, resource: str) -> int | None:
    resources = container.resources
    for amounts in (resources.limits, resources.requests) if resources else ():
        if amounts and resource in amounts:
            return whole_number(amounts[resource])
    return 0


def _requests(owner: Container | PodSpec) -> dict[str, Quantity]:
    resources = owner.resources
    return {**(resources.limits or {}), **(resources.requests or {})} if resources else {}
