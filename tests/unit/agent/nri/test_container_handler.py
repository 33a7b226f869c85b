"""Answers to the container runtime: which cards a container gets, also while pods and cards change on another thread."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from accelshare.agent.delivery_mode import Deliverer
from accelshare.agent.discovery.device_inventory import DeviceInventory, InventoryCard, VendorCards
from accelshare.agent.nri.container_handler import ContainerHandler
from accelshare.agent.nri.outcomes import Delivered, OutcomeQueue
from accelshare.agent.nri.protocol.messages import environment
from accelshare.agent.nri.protocol.nri_pb2 import (
    CDIDevice,
    Container,
    ContainerAdjustment,
    ContainerState,
    LinuxContainerAdjustment,
    LinuxDevice,
    Mount,
    PodSandbox,
)
from accelshare.agent.nri.protocol.plugin import Refuse
from accelshare.agent.pod_store import PodStore
from accelshare.ledger.facts import PodSeen
from accelshare.ledger.nouns import Ask, Slice
from accelshare.vendors.catalog import load
from accelshare.vendors.drivers.driver import HostCard
from accelshare.vendors.enforcement import Enforcement
from accelshare.vendors.profile import Profile
from accelshare.wire.assignment import OURS, require_plugin
from accelshare.wire.node_pods import ContainerNeeds, NodePod
from tests.unit.agent.builders import container_handler, guard, pod_store

QUESTIONS = 2000


def pod(name: str, *, cards: bool = True) -> NodePod:
    slices = (Slice("zpu", 0, 2),) if cards else ()
    seen = PodSeen(f"uid-{name}", "default", name, request=(), slices=slices)
    return NodePod(seen=seen, parts=(), annotations={}, phase="Pending", terminating=False)


def changed(container: Container, **fields: Any) -> Container:
    """A copy of the container with these fields instead of its own."""
    copy = Container()
    copy.CopyFrom(container)
    for name in fields:
        copy.ClearField(name)
    copy.MergeFrom(Container(**fields))
    return copy


def test_pods_that_wait_for_their_cards_are_counted() -> None:
    """Without pods that run, terminate, have no record, or name their node themselves."""
    waits = pod("waits")
    others = [
        replace(pod("runs"), phase="Running"),
        replace(pod("leaves"), terminating=True),
        replace(pod("by-hand"), by_hand=True),
        pod("asks-nothing", cards=False),
    ]
    pods = pod_store(waits, *others)
    handler = container_handler(DeviceInventory(), pods)
    assert handler.waiting == 1
    pods.remove(waits.uid)
    assert handler.waiting == 0


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as the interpreter allows."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_pods_and_cards_may_change_while_the_runtime_is_answered(restless: None) -> None:
    """The runtime's calls run on another thread, and never fail because a dict changed meanwhile."""
    profile = next(one for one in load([]) if one.container.strategy == ("envvar",))
    kind = profile.name
    devices = DeviceInventory()
    devices.put(VendorCards(profile, "GiB", 1024, {0: InventoryCard(HostCard(0, "id0", 1024 * 10_000), 10_000)}))
    parts = (ContainerNeeds("train", ((kind, False, 2),)),)
    pods = PodStore()
    for number in range(50):
        one = pod(f"p{number}")
        pods.put(replace(one, seen=replace(one.seen, slices=(Slice(kind, 0, 2),)), parts=parts))
    recorded_pods = list(pods.values())
    outcomes = OutcomeQueue()
    handler = container_handler(devices, pods, outcomes=outcomes)
    problems: list[Exception] = []

    def ask() -> None:
        for number in range(QUESTIONS):
            one = recorded_pods[number % len(recorded_pods)].seen
            try:
                adjustment = handler.create_container(
                    PodSandbox(id="b", name=one.name, uid=one.uid, namespace=one.namespace),
                    Container(id="c", pod_sandbox_id="b", name="train"),
                )
                assert adjustment.env
            except Exception as problem:
                problems.append(problem)

    runtime = threading.Thread(target=ask)
    runtime.start()
    _busy(pods, devices, until=lambda: not runtime.is_alive())
    runtime.join()
    assert problems == []
    delivered = outcomes.take_all()
    assert len(delivered) == QUESTIONS
    assert all(isinstance(outcome, Delivered) for outcome in delivered)


def _busy(pods: PodStore, devices: DeviceInventory, *, until: Callable[[], bool]) -> None:
    """The main loop: pods come and go, a card becomes unhealthy and healthy again."""
    others = {one.uid: one for one in (pod(f"other{number}") for number in range(7))}
    name = next(iter(devices.kinds))
    while not until():
        for other in others.values():
            pods.put(other)
        devices.set_health(name, "id0", "lost")
        for uid in others:
            pods.remove(uid)
        devices.set_health(name, "id0", "")


PROFILE = next(one for one in load([]) if one.container.node_label_env)
LABEL = dict([next(iter(PROFILE.container.node_label_env)).split("=")])


def recorded(name: str, card: int, units: int, *, whole: bool = False) -> NodePod:
    """A running pod with one container `train`, recorded on the card that has this number in its id."""
    one = pod(name)
    slices = (Slice(PROFILE.name, card, units, whole, f"id{card}"),)
    parts = (ContainerNeeds("train", ((PROFILE.name, whole, 1 if whole else units),)),)
    return replace(one, seen=replace(one.seen, slices=slices), parts=parts, phase="Running")


class Host:
    """A node with cards of 8 units, by index and id, and a runtime's calls."""

    def __init__(self, ids: dict[int, str], *pods: NodePod) -> None:
        self.devices = DeviceInventory()
        cards = {index: InventoryCard(HostCard(index, id, 8192), 8) for index, id in ids.items()}
        self.devices.put(VendorCards(PROFILE, "GiB", 1024, cards))
        self.pods = pod_store(*pods)
        self.labels: dict[str, str] = {}
        self.handler = container_handler(self.devices, self.pods, node_labels=lambda: self.labels)

    def make(self, which: NodePod) -> Container:
        """The container as the runtime creates it."""
        sandbox = self._sandbox(which)
        adjustment = self.handler.create_container(sandbox, Container(id="c", pod_sandbox_id=sandbox.id, name="train"))
        env = tuple(f"{one.key}={one.value}" for one in adjustment.env)
        return Container(
            id=f"c-{which.uid}", pod_sandbox_id=sandbox.id, name="train", state=ContainerState.CONTAINER_RUNNING, env=env
        )

    def tell(self, which: NodePod, container: Container) -> None:
        """The runtime connects again with this container in its list."""
        self.handler.synchronize([self._sandbox(which)], [container])

    def _sandbox(self, which: NodePod) -> PodSandbox:
        seen = which.seen
        return PodSandbox(
            id=f"s-{seen.uid}", name=seen.name, uid=seen.uid, namespace=seen.namespace, annotations=require_plugin()
        )


def test_a_container_that_has_its_card_stays_when_other_edits_changed() -> None:
    """A node label or the enforcement may have changed since; no container is ended for that."""
    runs = recorded("runs", 0, 2)
    host = Host({0: "id0"}, runs)
    made = host.make(runs)
    host.labels = LABEL
    host.devices.set_enforcement(PROFILE.name, {"id0": Enforcement("new", {"A_NEW_LIMIT": "{share_mib}"})})
    host.tell(runs, made)
    assert host.handler.lacking_cards() == []
    assert host.handler.served_before() == [runs]

    host.tell(runs, changed(made, env=["NVIDIA_VISIBLE_DEVICES=all", "PATH=/bin"]))
    assert [lacking for lacking, _ in host.handler.lacking_cards()] == [runs]


@pytest.mark.parametrize(
    "env",
    [
        {"NVIDIA_VISIBLE_DEVICES": "all"},  # the one that counts is the user's own
        {"NVIDIA_VISIBLE_DEVICES": "id1"},  # or of another card
        {"NVIDIA_VISIBLE_DEVICES": None},
    ],
)
def test_a_variable_that_a_user_could_set_is_no_proof_of_the_card(env: dict[str, str | None]) -> None:
    """All other variables are right; only what names the card to the vendor's runtime shows that the container has it."""
    runs = recorded("runs", 0, 2)
    host = Host({0: "id0", 1: "id1"}, runs)
    made = host.make(runs)
    own = {key: value for key, value in {**environment(made), **env}.items() if value is not None}
    host.tell(runs, changed(made, env=[f"{key}={value}" for key, value in own.items()]))
    assert host.handler.served_before() == []
    assert [lacking for lacking, _ in host.handler.lacking_cards()] == [runs]


def test_a_renumbered_card_has_capacity_for_its_own_pods() -> None:
    """Card 0 has failed, and the card of index 1 has index 0 since the node's start."""
    lost, kept, more = recorded("lost", 0, 1, whole=True), recorded("kept", 1, 6), recorded("more", 1, 3)
    host = Host({0: "id1"}, lost, kept)
    assert host.make(kept).env
    host.pods.put(more)
    with pytest.raises(Refuse, match=r"recorded with 3 units on card 0 of .*, which has 2 of 8 left"):
        host.make(more)


def test_a_pod_that_is_gone_is_forgotten() -> None:
    host = Host({0: "id0"})
    for number in range(100):
        one = recorded(f"p{number}", 0, 2)
        host.pods.put(one)
        host.make(one)
        assert host.handler.delivered()
        host.pods.remove(one.uid)
    assert host.handler.delivered() == []
    assert host.handler._served == set()


def guarded(one: NodePod, *, entitled: bool = False) -> ContainerHandler:
    """A node with the guard and one card whose vendor's runtime reads the variable CARD."""
    base = next(profile for profile in load([]) if profile.container.strategy == ("envvar",))
    rules = msgspec.structs.replace(base.container, none={"CARD": "void"}, env={}, envvar={"CARD": "{id}"})
    profile = msgspec.structs.replace(base, container=rules)
    devices = DeviceInventory()
    devices.put(VendorCards(profile, "GiB", 1024, {0: InventoryCard(HostCard(0, "id0", 1024 * 100), 100)}))
    if entitled:
        parts = (ContainerNeeds("main", ((profile.name, False, 2),)),)
        requested = {"main": frozenset(profile.resources.requestable)}
        one = replace(one, seen=replace(one.seen, slices=(Slice(profile.name, 0, 2),)), parts=parts, extended_resources=requested)
    return container_handler(devices, pod_store(one), guard=guard())


def sandbox(one: NodePod) -> PodSandbox:
    return PodSandbox(id="s", name=one.seen.name, uid=one.uid, namespace=one.seen.namespace)


@pytest.mark.parametrize("entitled", [False, True])
@pytest.mark.parametrize("env", [("CARD=x", "CARD=all"), ("CARD=all", "CARD=void"), ("CARD=all", "A=b", "CARD=id0")])
def test_a_variable_that_an_image_sets_twice_is_refused(env: tuple[str, ...], entitled: bool) -> None:
    """NRI replaces only the first of them, so the image's value would count."""
    one = pod("twice", cards=False)
    handler = guarded(one, entitled=entitled)
    once = handler.create_container(sandbox(one), Container(id="c", pod_sandbox_id="s", name="main", env=("A=a", "A=b", env[0])))
    assert {pair.key: pair.value for pair in once.env}["CARD"] == ("id0" if entitled else "void")
    with pytest.raises(Refuse, match="CARD 2 times"):
        handler.create_container(sandbox(one), Container(id="d", pod_sandbox_id="s", name="main", env=env))


def test_a_resource_claim_entitles_to_no_variable_of_the_vendor() -> None:
    """Any user can create a claim that requests nothing; DRA drivers give devices and set the variables themselves."""
    one = replace(pod("claims", cards=False), claims=frozenset({"main"}))
    adjustment = guarded(one).create_container(
        sandbox(one), Container(id="c", pod_sandbox_id="s", name="main", env=("CARD=all",))
    )
    assert {pair.key: pair.value for pair in adjustment.env} == {"CARD": "void"}


@pytest.mark.parametrize("profile", [one for one in load([]) if one.resources.count is not None], ids=lambda one: one.name)
def test_the_count_resource_entitles_no_container(profile: Profile) -> None:
    """The Node lists it as a resource and kubelet admits pods that request it, but nothing is delivered for it."""
    count = str(profile.resources.count)
    devices = DeviceInventory()
    devices.put(VendorCards(profile, "GiB", 1024, {0: InventoryCard(HostCard(0, "id0", 1024 * 100, minor=0), 100)}))
    one = replace(pod("counts", cards=False), extended_resources={"main": frozenset({count})})
    assert [kind.profile.name for kind in guard().denied(devices.snapshot(), one, "main", node_resources=[count])] == [
        profile.name
    ]


def mounted(path: str) -> Mount:
    return Mount(destination=path, type="bind", source="/dev/null")


BY_MOUNT = "/var/run/nvidia-container-devices"
ALL_BY_MOUNT = mounted(f"{BY_MOUNT}/all")
ALL_BY_NAME = {"cdi.k8s.io/x": "nvidia.com/gpu=all"}
ALL_BY_VENDOR = {"nvidia.cdi.k8s.io/container.main": "management.nvidia.com/gpu=all"}
TWO_CARDS = {i: InventoryCard(HostCard(i, f"id{i}", 1024 * 100, minor=i), 100) for i in (0, 1)}


def by_mount(**container: Any) -> Profile:
    """NVIDIA's profile, with these keys of `container`."""
    found = next(one for one in load([]) if one.container.volume_mounts.container_path == f"{BY_MOUNT}/{{id}}")
    return msgspec.structs.replace(found, container=msgspec.structs.replace(found.container, **container))


def with_cards(profile: Profile) -> DeviceInventory:
    devices = DeviceInventory()
    devices.put(VendorCards(profile, "GiB", 1024, TWO_CARDS))
    return devices


def entitled(name: str, profile: Profile, *, whole: bool = False) -> NodePod:
    """A pod whose container `main` has a slice of the first card, or the whole of it."""
    one = pod(name)
    ask = Ask(profile.name, whole=True) if whole else Ask(profile.name, share=2)
    return replace(
        one,
        seen=replace(one.seen, request=(ask,), slices=(Slice(profile.name, 0, 0 if whole else 2, whole, "id0"),)),
        parts=(ContainerNeeds("main", ((profile.name, whole, 1 if whole else 2),)),),
        extended_resources={"main": frozenset(profile.resources.requestable)},
    )


@pytest.mark.parametrize("deliverer", [Deliverer.NRI, Deliverer.DEVICE_PLUGIN])
@pytest.mark.parametrize("whole", [False, True], ids=["slice", "whole"])
@pytest.mark.parametrize(
    "brought",
    [{"mounts": (ALL_BY_MOUNT,)}, {"mounts": (mounted(f"{BY_MOUNT}/id1"),)}, {"annotations": ALL_BY_VENDOR}],
    ids=["mount of all", "mount of another card", "vendor annotation"],
)
def test_a_container_with_one_card_brings_no_others(whole: bool, brought: dict[str, Any], deliverer: Deliverer) -> None:
    """Only our edits name cards that we deliver; another device plugin that delivers whole cards may use these annotations."""
    profile = by_mount()
    devices = with_cards(profile)
    one = entitled("greedy", profile, whole=whole)
    handler = container_handler(devices, pod_store(one), deliverer, guard=guard())
    made = Container(id="c", pod_sandbox_id="s", name="main")
    assert handler.create_container(sandbox(one), made).env
    with pytest.raises(Refuse, match="which would give it others"):
        handler.create_container(sandbox(one), changed(made, **brought))
    devices.set_whole_by_others(frozenset({profile.name}))
    if whole:
        handler.create_container(sandbox(one), changed(made, **brought))


@pytest.mark.parametrize("deliverer", [Deliverer.NRI, Deliverer.DEVICE_PLUGIN])
def test_a_cdi_name_in_the_pods_annotations_is_refused(deliverer: Deliverer) -> None:
    """By device plugins kubelet itself writes CDI names into the annotations of the container, but never into the pod's."""
    profile = by_mount()
    one = entitled("names", profile)
    handler = container_handler(with_cards(profile), pod_store(one), deliverer, guard=guard())
    made = Container(id="c", pod_sandbox_id="s", name="main")
    sandbox_of_user = PodSandbox(id="s", name=one.seen.name, uid=one.uid, namespace="default", annotations=ALL_BY_NAME)
    with pytest.raises(Refuse, match="which would give it others"):
        handler.create_container(sandbox_of_user, made)


def test_mounts_that_our_device_plugin_answers_are_accepted_and_no_more() -> None:
    """kubelet shows the runtime what our device plugin answered: one mount for each card that the container requests."""
    profile = by_mount(strategy=("volume-mounts",))
    one = entitled("mounts", profile)
    handler = container_handler(with_cards(profile), pod_store(one), Deliverer.DEVICE_PLUGIN, guard=guard())
    answered = Container(id="c", pod_sandbox_id="s", name="main", mounts=(mounted(f"{BY_MOUNT}/id0"),))
    handler.create_container(sandbox(one), answered)
    for more in (f"{BY_MOUNT}/id1", f"{BY_MOUNT}/all"):
        with pytest.raises(Refuse, match="which would give it others"):
            handler.create_container(sandbox(one), changed(answered, mounts=(mounted(f"{BY_MOUNT}/id0"), mounted(more))))


@pytest.mark.parametrize("whole", [False, True])
def test_no_card_is_added_to_a_mount_of_another(whole: bool) -> None:
    """NRI cannot take away the mount that our device plugin answered: with that of the record the container would have two."""
    profile = by_mount(strategy=("volume-mounts",))
    one = entitled("mounts", profile, whole=whole)
    handler = container_handler(with_cards(profile), pod_store(one), Deliverer.DEVICE_PLUGIN, guard=guard())
    made = Container(id="c", pod_sandbox_id="s", name="main", mounts=(mounted(f"{BY_MOUNT}/id1"),))
    with pytest.raises(Refuse, match="id1"):
        handler.create_container(sandbox(one), made)


@pytest.mark.parametrize(
    "added",
    [
        ContainerAdjustment(cdi_devices=[CDIDevice(name="nvidia.com/gpu=all")]),
        ContainerAdjustment(linux=LinuxContainerAdjustment(devices=[LinuxDevice(path="/dev/nvidia1", type="c")])),
    ],
    ids=["CDI name", "device file"],
)
def test_no_other_plugin_adds_a_card_to_those_that_we_deliver(added: ContainerAdjustment) -> None:
    profile = by_mount(strategy=("envvar", "device-nodes"))
    one = entitled("helped", profile)
    handler = container_handler(with_cards(profile), pod_store(one), guard=guard(), on_host=lambda _path: Path("/dev/null"))
    made = Container(id="c", pod_sandbox_id="s", name="main")
    ours = ContainerAdjustment()
    ours.CopyFrom(handler.create_container(sandbox(one), made))
    handler.validate_container(sandbox(one), made, ours)
    ours.MergeFrom(added)
    with pytest.raises(Refuse, match="which would give it others"):
        handler.validate_container(sandbox(one), made, ours)


def test_a_device_file_that_an_adjustment_removes_and_adds_again_is_there() -> None:
    one = pod("again", cards=False)
    handler = container_handler(with_cards(by_mount()), pod_store(one), guard=guard())
    nodes = [LinuxDevice(path="-/dev/nvidia0"), LinuxDevice(path="/dev/nvidia0", type="c")]
    both = ContainerAdjustment(linux=LinuxContainerAdjustment(devices=nodes))
    with pytest.raises(Refuse, match="brings device"):
        handler.validate_container(sandbox(one), Container(id="c", pod_sandbox_id="s", name="main"), both)


@pytest.mark.parametrize(
    "brought",
    [{"mounts": (ALL_BY_MOUNT,)}, {"annotations": ALL_BY_VENDOR}],
    ids=["mount", "vendor annotation"],
)
def test_a_resource_claim_entitles_to_nothing_that_the_pod_itself_names(brought: dict[str, Any]) -> None:
    """Any user can create a claim that requests nothing. Device files and CDI names of claims come from DRA drivers."""
    one = replace(pod("claims", cards=False), claims=frozenset({"main"}))
    handler = container_handler(with_cards(by_mount()), pod_store(one), guard=guard())
    made = Container(id="c", pod_sandbox_id="s", name="main")
    by_driver = ContainerAdjustment(cdi_devices=[CDIDevice(name="nvidia.com/gpu=0")])
    handler.validate_container(sandbox(one), changed(made, annotations=ALL_BY_NAME), by_driver)
    with pytest.raises(Refuse, match="brings"):
        handler.create_container(sandbox(one), changed(made, **brought))
    of_user = PodSandbox(id="s", name="claims", uid=one.uid, namespace="default", annotations=ALL_BY_NAME)
    with pytest.raises(Refuse, match="brings annotation"):
        handler.create_container(of_user, made)


@pytest.mark.parametrize(
    "path",
    [
        f"{BY_MOUNT}/all",
        "/var/run//nvidia-container-devices/./all",
        f"/{BY_MOUNT}/all",
        f"//{BY_MOUNT}/all",
        f"{BY_MOUNT}all",
        "/run/../var/run/nvidia-container-devices/all",
        "var/run/nvidia-container-devices/all",
    ],
)
def test_a_mount_that_names_cards_is_recognized_in_every_spelling(path: str) -> None:
    """Kubernetes accepts any absolute path, and the vendor's runtime normalizes it and looks for a prefix without a slash."""
    one = pod("mounts", cards=False)
    handler = container_handler(with_cards(by_mount()), pod_store(one), guard=guard())
    made = Container(id="c", pod_sandbox_id="s", name="main", mounts=(mounted(path),))
    with pytest.raises(Refuse, match="brings mount"):
        handler.create_container(sandbox(one), made)


@pytest.mark.parametrize("deliverer", list(Deliverer))
def test_containers_created_before_discovery_see_no_card(deliverer: Deliverer) -> None:
    """The runtime connects before drivers have answered; a driver may also fail."""
    profile = next(one for one in load([]) if one.container.none.get("NVIDIA_VISIBLE_DEVICES"))
    devices = DeviceInventory()
    one = pod("early", cards=False)
    handler = container_handler(devices, pod_store(one), deliverer, guard=guard(profile))
    made = Container(id="c", pod_sandbox_id="s", name="main", env=("NVIDIA_VISIBLE_DEVICES=all",))
    assert [(pair.key, pair.value) for pair in handler.create_container(sandbox(one), made).env] == [
        ("NVIDIA_VISIBLE_DEVICES", "void")
    ]
    brings = changed(made, annotations={"cdi.k8s.io/x": "nvidia.com/gpu=all"})
    with pytest.raises(Refuse, match="brings annotation"):
        handler.create_container(sandbox(one), brings)
    devices.set_discovered(profile.name)  # this node has no such cards
    assert not handler.create_container(sandbox(one), brings).env


def test_a_pod_whose_vendors_profile_broke_gets_no_container_without_its_card() -> None:
    """It is unknown what its containers request; kubelet tries again until the profile is repaired."""
    devices = DeviceInventory()
    devices.set_problem("zpu", "its profile cannot be used: unit.default is missing")
    bound = replace(pod("trains"), annotations={OURS: '{"zpu": [{"index": 0, "id": "id0", "units": 2}]}'})
    handler = container_handler(devices, pod_store(bound))
    sandbox = PodSandbox(id="s", name="trains", uid=bound.uid, namespace="default")
    with pytest.raises(Refuse, match=r"zpu.*unit\.default is missing"):
        handler.create_container(sandbox, Container(id="c", pod_sandbox_id="s", name="main"))
    devices.set_problem("zpu", "")
    handler.create_container(sandbox, Container(id="c", pod_sandbox_id="s", name="main"))


def every_way() -> list[Profile]:
    """Every shipped profile, and NVIDIA's with each of its strategies alone."""
    shipped = [one for one in load([]) if one.container.none]
    return [*shipped, *(by_mount(strategy=(strategy,)) for strategy in ("device-nodes", "cdi", "volume-mounts"))]


@pytest.mark.parametrize("deliverer", [Deliverer.NRI, Deliverer.DEVICE_PLUGIN])
@pytest.mark.parametrize("whole", [False, True], ids=["slice", "whole"])
@pytest.mark.parametrize("profile", every_way(), ids=lambda one: f"{one.name}-{'+'.join(one.container.strategy)}")
def test_a_container_with_one_card_asks_for_no_others_by_a_variable(profile: Profile, whole: bool, deliverer: Deliverer) -> None:
    if (profile.resources.whole if whole else profile.resources.memory) is None:
        return
    found = [
        HostCard(i, f"id{i}", 1024 * 100, minor=i, pci=f"0000:0{i}:00.0", card_node=f"card{i}", render_node=f"renderD{128 + i}")
        for i in (0, 1)
    ]
    cards = {card.index: InventoryCard(card, 100) for card in found}
    devices = DeviceInventory()
    devices.put(VendorCards(profile, "GiB", 1024, cards))
    one = entitled("greedy", profile, whole=whole)
    handler = container_handler(devices, pod_store(one), deliverer, guard=guard(profile), on_host=lambda _path: Path("/dev/full"))
    handler.runtime_configured(takes_cdi=True)
    for name in profile.container.none:
        made = Container(id="c", pod_sandbox_id="s", name="main", env=[f"{name}=all"])
        with contextlib.suppress(Refuse):
            adjustment = handler.create_container(sandbox(one), made)
            assert {pair.key: pair.value for pair in adjustment.env}.get(name, "all") != "all"


VISIBLE = "NVIDIA_VISIBLE_DEVICES"


def visible(one: NodePod, *values: str) -> str:
    """What the vendor's runtime reads where our device plugin delivers and the container has these lines of the variable.

    kubelet passes the plugin's answer first and the manifest's after it; CRI-O keeps only the last one.
    """
    profile = by_mount()
    handler = container_handler(with_cards(profile), pod_store(one), Deliverer.DEVICE_PLUGIN, guard=guard(profile))
    made = Container(id="c", pod_sandbox_id="s", name="main", env=[f"{VISIBLE}={value}" for value in values])
    adjustment = handler.create_container(sandbox(one), made)
    return {pair.key: pair.value for pair in adjustment.env}.get(VISIBLE, values[-1])


def without_record(name: str, *, whole: bool, by_hand: bool) -> NodePod:
    one = replace(entitled(name, by_mount(), whole=whole), by_hand=by_hand)
    return replace(one, seen=replace(one.seen, slices=()))


@pytest.mark.parametrize("values", [("id0", "id0,1"), ("id0,1",), ("id0", "id0,all"), ("id0,all",)])
def test_the_right_whole_card_brings_no_other_by_another_name(values: tuple[str, ...]) -> None:
    one = entitled("greedy", by_mount(), whole=True)
    with pytest.raises(Refuse, match=VISIBLE):
        visible(one, *values)


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("values", [("id0", "all"), ("id0", "id1"), ("all",), ("id0,id1",)])
def test_a_pod_without_a_record_brings_no_card(values: tuple[str, ...], whole: bool, by_hand: bool) -> None:
    with pytest.raises(Refuse, match=VISIBLE):
        visible(without_record("greedy", whole=whole, by_hand=by_hand), *values)


@pytest.mark.parametrize("whole", [False, True])
def test_what_our_device_plugin_answers_stays(whole: bool) -> None:
    assert visible(entitled("a", by_mount(), whole=whole), "id0") == "id0"
    assert visible(without_record("b", whole=whole, by_hand=True), "id1") == "id1"


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("values", [("all", "id0"), ("all", "id0", "id0")])
def test_an_image_that_names_all_cards_gets_what_our_device_plugin_answers(values: tuple[str, ...], whole: bool) -> None:
    """containerd lists the image's variables before kubelet's; NRI replaces the first of equal names."""
    one = entitled("image", by_mount(), whole=whole)
    profile = by_mount()
    handler = container_handler(with_cards(profile), pod_store(one), Deliverer.DEVICE_PLUGIN, guard=guard(profile))
    made = Container(id="c", pod_sandbox_id="s", name="main", env=[f"{VISIBLE}={value}" for value in values])
    adjustment = handler.create_container(sandbox(one), made)
    assert {pair.key: pair.value for pair in adjustment.env}[VISIBLE] == "id0"


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("values", [("all", "id0", "all"), ("all", "id1"), ("id0", "all"), ("all", "id1", "id0")])
def test_an_image_that_names_all_cards_brings_no_other(values: tuple[str, ...], whole: bool) -> None:
    with pytest.raises(Refuse, match=VISIBLE):
        visible(entitled("greedy", by_mount(), whole=whole), *values)


def with_own_variable(one: NodePod) -> NodePod:
    """The pod, with a manifest that sets the variable itself."""
    return replace(one, parts=tuple(replace(part, variables=frozenset({VISIBLE})) for part in one.parts))


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_a_pod_without_a_record_chooses_no_card_by_its_manifest(whole: bool, by_hand: bool) -> None:
    """CRI-O keeps only the manifest's value; and a record may be removed after the device plugin left the variable to NRI."""
    with pytest.raises(Refuse, match=VISIBLE):
        visible(with_own_variable(without_record("greedy", whole=whole, by_hand=by_hand)), "id1")


def test_no_container_starts_with_variables_that_nobody_has_checked() -> None:
    """An earlier agent's device plugin may have left the manifest's variable to NRI, which knows no card of this kind yet."""
    profile = by_mount()
    honest, greedy = entitled("honest", profile), with_own_variable(entitled("greedy", profile))
    devices = DeviceInventory()
    handler = container_handler(
        devices, pod_store(honest, greedy), Deliverer.DEVICE_PLUGIN, guard=guard(profile), corrected=[profile.name]
    )
    answered = Container(id="c", pod_sandbox_id="s", name="main", env=[f"{VISIBLE}=id0"])
    named = Container(id="d", pod_sandbox_id="s", name="main", env=[f"{VISIBLE}=all"])
    for one, made in ((honest, answered), (greedy, named)):
        with pytest.raises(Refuse, match="not found its cards"):
            handler.create_container(sandbox(one), made)
    devices.set_discovered(profile.name)  # its driver has failed
    assert not handler.create_container(sandbox(honest), answered).env
    with pytest.raises(Refuse, match=VISIBLE):
        handler.create_container(sandbox(greedy), named)


@pytest.mark.parametrize("strategy", ["device-nodes", "cdi"])
def test_an_image_that_names_all_cards_gets_them_by_device_files(strategy: str) -> None:
    """Our device plugin answers `void`, so that the vendor's runtime adds no card to the device files."""
    profile = by_mount(strategy=(strategy,))
    one = entitled("image", profile)
    handler = container_handler(with_cards(profile), pod_store(one), Deliverer.DEVICE_PLUGIN, guard=guard(profile))
    made = Container(id="c", pod_sandbox_id="s", name="main", env=[f"{VISIBLE}=all", f"{VISIBLE}=void"])
    assert [(pair.key, pair.value) for pair in handler.create_container(sandbox(one), made).env] == [(VISIBLE, "void")]
    with pytest.raises(Refuse, match=VISIBLE):
        handler.create_container(sandbox(one), changed(made, env=[f"{VISIBLE}=void", f"{VISIBLE}=all"]))
