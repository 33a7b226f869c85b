"""Answers the container runtime's NRI calls from memory, and knows which containers got which cards.

Belongs here: what crosses between the thread that answers the runtime and the main loop. Each call takes one snapshot of the node
and decides on that (container_decision.py); `_lock` guards what both threads change; outcomes go to the main loop by a queue.
Limits are set here, too: the runtime waits for them, so they have a time limit.
"""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from accelshare.agent.delivery_mode import CurrentMode
from accelshare.agent.discovery.device_inventory import DeviceInventory
from accelshare.agent.limits.cgroups import CgroupError, container_group, pod_group
from accelshare.agent.limits.setting import ContainerLimits, LimitError
from accelshare.agent.limits.wanted import Limit
from accelshare.agent.nri.container_decision import ContainerDecision, NodeSnapshot, Rules, delivered_slices
from accelshare.agent.nri.outcomes import OutcomeQueue, Refused, Unentitled
from accelshare.agent.nri.protocol.nri_pb2 import Container, ContainerAdjustment, PodSandbox
from accelshare.agent.nri.protocol.plugin import Refuse
from accelshare.agent.pod_store import PodStore
from accelshare.ledger.nouns import Slice
from accelshare.vendors.problems import VendorError
from accelshare.wire.node_pods import NodePod

HOLD_S: Final = 1.2  # for all limits of a container; the runtime's call has 1.5 s


@dataclass(frozen=True, slots=True)
class LimitedContainer:
    """A container that must have limits; its cgroup and that of its pod as the runtime gives them."""

    pod: NodePod
    name: str
    cgroup: str
    limits: tuple[Limit, ...]
    id: str = ""
    pod_cgroup: str = ""
    pod_limits: tuple[Limit, ...] = ()


class ContainerHandler:
    """The NRI handler over the pods and cards of this node."""

    def __init__(
        self,
        devices: DeviceInventory,
        pods: PodStore,
        mode: CurrentMode,
        outcomes: OutcomeQueue,
        rules: Rules,
        limits: ContainerLimits,
        *,
        node_labels: Callable[[], Mapping[str, str]] = dict,
        node_resources: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """`node_labels` and `node_resources` are called on the runtime's thread, too."""
        self._devices = devices
        self._pods = pods
        self._mode = mode
        self._outcomes = outcomes
        self._rules = rules
        self._limits = limits
        self._node_labels = node_labels
        self._node_resources = node_resources
        self._lock = threading.Lock()
        self._listed: tuple[tuple[PodSandbox, Container], ...] = ()  # what was there when the runtime connected
        self._delivered: dict[str, dict[str, tuple[Slice, ...]]] = {}  # uid → container → its cards
        self._served: set[str] = set()  # uids of pods that got cards through NRI
        self._started: dict[str, dict[str, tuple[PodSandbox, Container]]] = {}  # uid → container, since the runtime connected
        self._takes_cdi = False
        pods.subscribe(gone=self._pod_gone)

    # On the thread that answers the runtime.

    def runtime_configured(self, *, takes_cdi: bool) -> None:
        """A runtime has connected; it names no container before this has returned."""
        with self._lock:
            self._takes_cdi = takes_cdi

    def synchronize(self, pods: Sequence[PodSandbox], containers: Sequence[Container]) -> None:
        by_id = {sandbox.id: sandbox for sandbox in pods}
        listed = tuple((by_id[c.pod_sandbox_id], c) for c in containers if c.pod_sandbox_id in by_id)
        node = self._snapshot()
        with self._lock:
            self._listed = listed
            self._started.clear()
            for sandbox, container in listed:
                decision = ContainerDecision(node, self._rules, sandbox, container)
                slices = delivered_slices(sandbox, container)
                if slices and decision.pod is not None and decision.needs is not None:
                    self._delivered.setdefault(decision.pod.uid, {})[container.name] = slices

    def create_container(self, pod: PodSandbox, container: Container) -> ContainerAdjustment:
        node = self._snapshot()
        decision = ContainerDecision(node, self._rules, pod, container)
        try:
            adjustment = decision.create()
            if decision.pod_limits and pod.linux.cgroup_parent:
                # Should we die before the container starts, it is still limited to what its whole pod may use.
                self._hold(container, pod_group(pod.linux.cgroup_parent), decision.pod_limits)
        except (Refuse, VendorError, CgroupError) as error:
            self._report(decision, refused=True)
            if isinstance(error, Refuse):
                raise
            raise Refuse(str(error)) from error
        if decision.pod is not None and decision.slices:
            with self._lock:
                self._delivered.setdefault(decision.pod.uid, {})[container.name] = decision.slices
                if node.mode.by_nri:
                    self._served.add(decision.pod.uid)
        self._report(decision)
        return adjustment

    def validate_container(self, pod: PodSandbox, container: Container, adjust: ContainerAdjustment) -> None:
        """Whatever other plugins and the pod itself add: no container has a card that it is not entitled to."""
        decision = ContainerDecision(self._snapshot(), self._rules, pod, container)
        try:
            decision.validate(adjust)
        finally:
            self._report(decision)

    def start_container(self, pod: PodSandbox, container: Container) -> None:
        """A container that was created while we were away must not start without its card, and none without its limits."""
        decision = ContainerDecision(self._snapshot(), self._rules, pod, container)
        try:
            decision.start()
            if limits := decision.limits_at_start():
                if decision.pod is not None and decision.pod.resized_units and pod.linux.cgroup_parent:
                    # The pod's limit is that of the time at which the container was created.
                    self._hold(container, pod_group(pod.linux.cgroup_parent), decision.pod_limits_now())
                self._hold(container, container_group(container.linux.cgroups_path), limits)
        except (Refuse, CgroupError) as error:
            self._report(decision, refused=True)
            if isinstance(error, Refuse):
                raise
            raise Refuse(f"container {container.name} of pod {pod.namespace}/{pod.name}: {error}") from error
        if decision.pod is not None and delivered_slices(pod, container):
            with self._lock:
                self._started.setdefault(decision.pod.uid, {})[container.name] = (pod, container)

    def _hold(self, container: Container, group: PurePosixPath, limits: Sequence[Limit]) -> None:
        try:
            self._limits.hold(group, limits, timeout_s=HOLD_S)
        except LimitError as error:
            raise Refuse(f"container {container.name}: {error}; it must not run without; kubelet will recreate it") from error

    # On the main loop.

    def delivered(self) -> list[tuple[str, tuple[Slice, ...]]]:
        """The cards that containers hold, by the uids of their pods."""
        return [(uid, slices) for uid, of_pod in self._snapshot().delivered.items() for slices in of_pod.values()]

    @property
    def waiting(self) -> int:
        """Pods that are bound to cards and have not got any yet."""
        node = self._snapshot()
        return sum(
            1
            for pod in node.pods.values()
            if pod.phase == "Pending" and pod.seen.slices and pod.uid not in node.served and not (pod.by_hand or pod.terminating)
        )

    def unentitled(self) -> list[Unentitled]:
        """Living containers with cards that they are not entitled to, of all that were there when the runtime connected."""
        return [found for decision in self._listed_decisions() for found in decision.unentitled()]

    def lacking_cards(self) -> list[tuple[NodePod, str]]:
        """Living containers without their cards, with their pods, of all that were there when the runtime connected."""
        decisions = [decision for decision in self._listed_decisions() if decision.lacks_cards()]
        return [(decision.pod, decision.needs.container) for decision in decisions if decision.pod and decision.needs]

    def limited(self) -> list[LimitedContainer]:
        """Living containers that must have limits. Some may have ended: their cgroups are gone."""
        with self._lock:
            started = {uid: dict(of_pod) for uid, of_pod in self._started.items()}
        node = self._snapshot()
        found: dict[tuple[str, str], LimitedContainer] = {}
        decisions = [decision for decision in self._listed_decisions() if decision.is_alive]
        decisions += [ContainerDecision(node, self._rules, *one) for of_pod in started.values() for one in of_pod.values()]
        for decision in decisions:
            if decision.pod is not None and decision.needs is not None and (limits := decision.limits()):
                name = decision.needs.container
                found[decision.pod.uid, name] = LimitedContainer(
                    decision.pod,
                    name,
                    decision.cgroup,
                    limits,
                    id=decision.container_id,
                    pod_cgroup=decision.pod_cgroup,
                    pod_limits=decision.pod_limits_now(),
                )
        return list(found.values())

    def served_before(self) -> list[NodePod]:
        """Pods that got their cards from an earlier agent, of all that were there when the runtime connected."""
        found = {decision.pod.uid: decision.pod for decision in self._listed_decisions() if decision.pod and decision.has_cards()}
        with self._lock:
            self._served.update(found)
        return list(found.values())

    def _pod_gone(self, pod: NodePod) -> None:
        with self._lock:
            self._served.discard(pod.uid)
            self._delivered.pop(pod.uid, None)
            self._started.pop(pod.uid, None)

    # On both.

    def _snapshot(self) -> NodeSnapshot:
        with self._lock:
            delivered = {uid: dict(of_pod) for uid, of_pod in self._delivered.items()}
            served, takes_cdi = frozenset(self._served), self._takes_cdi
        return NodeSnapshot(
            self._pods.snapshot(),
            self._devices.snapshot(),
            self._mode.get(),
            labels=self._node_labels(),
            resources=frozenset(self._node_resources()),
            delivered=delivered,
            served=served,
            takes_cdi=takes_cdi,
        )

    def _listed_decisions(self) -> list[ContainerDecision]:
        with self._lock:
            listed = self._listed
        node = self._snapshot()
        return [ContainerDecision(node, self._rules, sandbox, container) for sandbox, container in listed]

    def _report(self, decision: ContainerDecision, *, refused: bool = False) -> None:
        for outcome in (*decision.outcomes, *([Refused()] if refused else ())):
            self._outcomes.put(outcome)
