"""Which pod an anonymous request of kubelet is for, also after a restart of kubelet or without PodResources."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace

import msgspec
import pytest

from accelshare.agent.delivery_mode import Deliverer
from accelshare.agent.device_plugin.allocator import Allocator
from accelshare.agent.device_plugin.device_ids import cards_of, unit_ids
from accelshare.agent.device_plugin.pod_queue import Holding, NoWaitingPodError, PodQueue
from accelshare.agent.discovery.device_inventory import DeviceInventory, InventoryCard, VendorCards
from accelshare.agent.pod_store import PodStore
from accelshare.vendors.catalog import load
from accelshare.vendors.drivers.driver import HostCard
from accelshare.wire.node_pods import NodePod, NodePodReader
from tests.unit.agent.builders import mode

CATALOG = load()
MEMORY = "aliyun.com/gpu-mem"
FREE = [unit for card in range(4) for unit in unit_ids(card, 16)]


class Front:
    """An allocator for four cards of 16 units, without waiting pods."""

    def __init__(self, arrival_s: float = 0.01, corrected: tuple[str, ...] = ()) -> None:
        self.devices = devices = DeviceInventory()
        self.renumber({index: f"GPU-{index}" for index in range(4)})
        self.holdings: Mapping[str, Holding] | None = None
        self.looked = asyncio.Event()
        self.pod_queue = PodQueue(devices, PodStore(), arrival_s=arrival_s)
        self.allocator = Allocator(
            devices, self.pod_queue, self._read, mode=mode(Deliverer.DEVICE_PLUGIN, *corrected), exists=lambda _: True
        )

    def renumber(self, ids: Mapping[int, str]) -> None:
        cards = {index: InventoryCard(HostCard(index, id, 16384), 16) for index, id in ids.items()}
        self.devices.put(VendorCards(CATALOG["nvidia"], "GiB", 1024, cards))

    async def _read(self) -> Mapping[str, Holding] | None:
        if self.holdings is not None:
            self.pod_queue.set_holdings(self.holdings)
        self.looked.set()
        return self.holdings


def pod(
    name: str, card: int, *, second: int = 0, assigned: bool = False, asks: tuple[int, ...] = (2,), own: tuple[str, ...] = ()
) -> NodePod:
    """A pod whose containers request these units, recorded on this card and created in this second.

    `own`: variables that the manifest of its first container sets.
    """
    record = {"nvidia": [{"index": card, "id": f"GPU-{card}", "units": sum(asks)}]}
    notes = {"accelshare.io/assignment": json.dumps(record), "ALIYUN_COM_GPU_MEM_ASSIGNED": str(assigned).lower()}
    meta = {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1", "annotations": notes}
    names = ("main", "second", "third")
    env = {"main": [{"name": variable, "value": "all"} for variable in own]}
    containers = [
        {"name": name, "resources": {"limits": {MEMORY: str(units)}}, "env": env.get(name, [])}
        for name, units in zip(names, asks, strict=False)
    ]
    content = {
        "metadata": {**meta, "creationTimestamp": f"2026-01-01T00:00:{second:02}Z"},
        "spec": {"nodeName": "n1", "containers": containers},
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]},
    }
    read = NodePodReader(CATALOG).decode(msgspec.Raw(msgspec.json.encode(content)))
    assert isinstance(read, NodePod)
    return read


async def served_on(front: Front, size: int = 2) -> set[int]:
    """The card of the pod that is served next."""
    ids = await front.allocator.prefer("nvidia", whole=False, available=FREE, must=(), size=size)
    await front.allocator.allocate("nvidia", whole=False, device_ids=ids)
    return cards_of(ids)


async def test_pods_are_served_in_order_of_arrival_and_by_age_after_a_restart_of_kubelet() -> None:
    front = Front()
    for name, card, second in (("young", 3, 30), ("old", 1, 10), ("middle", 2, 20), ("first", 0, 40)):
        front.pod_queue.pods.put(pod(name, card, second=second))
    assert await served_on(front) == {3}
    front.pod_queue.set_holdings({"default/young": {"main": {("nvidia", False): {"3-0", "3-1"}}}})
    front.allocator.kubelet_restarted()
    assert [await served_on(front) for _ in range(3)] == [{1}, {2}, {0}]


async def test_the_assigned_flag_counts_only_without_pod_resources() -> None:
    """A copied manifest may have any flag; PodResources is better where kubelet has it."""
    front = Front()
    front.pod_queue.pods.put(pod("claims", 2, assigned=True))
    assert front.pod_queue.waiting == 1
    front.pod_queue.set_holdings_unavailable()
    assert front.pod_queue.waiting == 0
    front.pod_queue.pods.put(pod("new", 1))
    assert await served_on(front) == {1}
    front.pod_queue.set_holdings({})
    front.pod_queue.pods.put(pod("claims", 2, assigned=True))
    assert front.pod_queue.waiting == 1


async def test_a_served_pod_does_not_wait_again_before_kubelet_reports_it() -> None:
    """kubelet writes a pod's status a moment after it got its card; the next pod must not get that card."""
    front = Front()
    front.pod_queue.pods.put(pod("first", 3))
    assert await served_on(front) == {3}
    front.pod_queue.pods.put(pod("first", 3))
    front.pod_queue.pods.put(pod("second", 1))
    assert await served_on(front) == {1}
    assert front.pod_queue.waiting == 0


async def test_a_pod_served_to_a_dying_kubelet_waits_until_the_next_one_reports_it() -> None:
    front = Front()
    for name, card in (("kept", 3), ("lost", 1)):
        front.pod_queue.pods.put(pod(name, card))
        await served_on(front)
    front.allocator.kubelet_restarted()
    assert front.pod_queue.waiting == 2
    front.pod_queue.set_holdings({"default/kept": {"main": {("nvidia", False): {"3-0", "3-1"}}}})
    assert front.pod_queue.waiting == 1
    assert await served_on(front) == {1}


def holds(card: int, *units: int) -> Holding:
    return {"main": {("nvidia", False): {f"{card}-{unit:x}" for unit in units}}}


async def test_a_pod_that_kubelet_lists_without_its_ids_is_served_first() -> None:
    front = Front()
    for name, card in (("a", 0), ("b", 1), ("c", 2), ("d", 3)):
        front.pod_queue.pods.put(pod(name, card))
    taken: dict[str, Holding] = {}
    for name, card in (("c", 2), ("a", 0), ("d", 3), ("b", 1)):
        front.holdings = {**taken, f"default/{name}": {}, "default/other": {}}
        assert await served_on(front) == {card}
        taken[f"default/{name}"] = holds(card, 0, 1)
    assert front.pod_queue.waiting == 0


async def test_a_pod_that_kubelet_names_and_we_do_not_know_yet_is_waited_for() -> None:
    front = Front(arrival_s=60.0)
    front.pod_queue.pods.put(pod("early", 1))
    front.holdings = {"default/late": {}}
    request = asyncio.create_task(served_on(front))
    await front.looked.wait()
    front.pod_queue.pods.put(pod("late", 2))
    assert await request == {2}


async def test_a_request_for_an_unknown_pod_gets_no_other_pods_card() -> None:
    front = Front()
    front.pod_queue.pods.put(pod("early", 1))
    front.holdings = {"default/stranger": {}}
    with pytest.raises(NoWaitingPodError, match=r"default/early/main .* 2 nvidia"):
        await served_on(front)


async def test_a_pod_that_an_earlier_agent_served_in_part_gets_the_rest() -> None:
    """Its first container has its units already; the next request is for the second one, of another amount."""
    front = Front()
    front.pod_queue.pods.put(pod("begun", 3, asks=(2, 4, 1)))
    front.pod_queue.pods.put(pod("equal", 1, asks=(4,)))
    front.holdings = {"default/begun": holds(3, 0, 1)}
    assert await served_on(front, 4) == {3}
    assert await served_on(front, 1) == {3}
    assert front.pod_queue.waiting == 1


async def test_a_new_kubelet_may_request_a_half_served_pod_from_its_beginning() -> None:
    front = Front()
    front.pod_queue.pods.put(pod("half", 3, asks=(2, 4)))
    front.holdings = {"default/half": {}}
    assert await served_on(front, 2) == {3}
    front.allocator.kubelet_restarted()
    assert await served_on(front, 2) == {3}
    assert await served_on(front, 4) == {3}
    assert front.pod_queue.waiting == 0


async def test_ids_that_kubelet_took_without_a_preference_name_their_pod() -> None:
    """kubelet asks for no preference when a pod takes all free ids."""
    front = Front()
    front.pod_queue.pods.put(pod("served", 0))
    assert await served_on(front) == {0}
    front.pod_queue.pods.put(pod("first", 1))
    front.pod_queue.pods.put(pod("second", 2))
    edits = await front.allocator.allocate("nvidia", whole=False, device_ids=["2-e", "2-f"])
    assert dict(edits.env)["NVIDIA_VISIBLE_DEVICES"] == "GPU-2"
    assert front.pod_queue.waiting == 1
    assert await served_on(front) == {1}


async def test_a_pod_that_pod_resources_never_shows_does_not_wait() -> None:
    """PodResources omits ordinary init containers and pods that were served through NRI."""
    front = Front()
    front.pod_queue.pods.put(pod("hidden", 0))
    front.holdings = {"default/hidden": {}}
    assert await served_on(front) == {0}
    front.pod_queue.pods.put(replace(pod("foreign", 1), phase="Running"))
    taken: dict[str, Holding] = {"default/hidden": {}, "default/foreign": {}}
    for name, card in (("a", 2), ("b", 3)):
        front.pod_queue.pods.put(pod(name, card))
        front.holdings = {**taken, f"default/{name}": {}}
        assert await served_on(front) == {card}
        taken[f"default/{name}"] = holds(card, 0, 1)
    assert front.pod_queue.waiting == 0


async def test_a_request_waits_for_a_late_pod_although_other_pods_lack_ids() -> None:
    front = Front(arrival_s=60.0)
    front.pod_queue.pods.put(pod("hidden", 0))
    front.holdings = {"default/hidden": {}}
    assert await served_on(front) == {0}
    front.holdings = {"default/hidden": {}, "default/late": {}}
    front.looked.clear()
    request = asyncio.create_task(served_on(front))
    await front.looked.wait()
    front.pod_queue.pods.put(pod("late", 2))
    assert await request == {2}


async def test_a_pod_whose_ids_kubelet_lost_is_served_again() -> None:
    front = Front()
    front.pod_queue.pods.put(pod("lost", 3))
    front.holdings = {"default/lost": {}}
    assert await served_on(front) == {3}
    front.pod_queue.set_holdings({"default/lost": holds(3, 0, 1)})
    front.pod_queue.pods.put(replace(pod("lost", 3), phase="Running"))
    assert await served_on(front) == {3}


async def test_a_new_pod_of_the_same_name_holds_nothing_of_the_old_one() -> None:
    """It takes all free ids, so kubelet asks for no preference, and PodResources was not read since."""
    front = Front()
    front.pod_queue.pods.put(pod("set-0", 3))
    assert await served_on(front) == {3}
    front.pod_queue.set_holdings({"default/set-0": holds(3, 0, 1)})
    namesake = pod("set-0", 1)
    namesake = replace(namesake, seen=replace(namesake.seen, uid="namesake"))
    front.pod_queue.pods.put(namesake)  # as a new list brings it: first the pods that exist, then those that are gone
    front.pod_queue.pods.remove("set-0")
    edits = await front.allocator.allocate("nvidia", whole=False, device_ids=["1-e", "1-f"])
    assert dict(edits.env)["NVIDIA_VISIBLE_DEVICES"] == "GPU-1"


async def test_a_new_pod_of_the_same_name_is_matched_while_kubelet_reports_the_old_one() -> None:
    front = Front()
    front.pod_queue.pods.put(pod("other", 0))
    assert await served_on(front) == {0}
    front.pod_queue.pods.put(pod("set-0", 1))
    front.pod_queue.set_holdings({"default/set-0": holds(3, 0, 1)})  # read before kubelet let go of its namesake
    front.holdings = {"default/set-0": {}}
    edits = await front.allocator.allocate("nvidia", whole=False, device_ids=["1-e", "1-f"])
    assert dict(edits.env)["NVIDIA_VISIBLE_DEVICES"] == "GPU-1"


async def test_a_renumbered_card_stays_with_the_pod_that_is_recorded_on_it() -> None:
    """The waiting pod's record has the card's hardware id, and the card has another index now."""
    front = Front()
    front.renumber({0: "GPU-1", 1: "GPU-0"})
    front.pod_queue.pods.put(pod("promised", 1, asks=(16,)))
    front.pod_queue.pods.put(pod("homeless", 9, asks=(2,)))
    front.holdings = {"default/homeless": {}}
    free = [*unit_ids(0, 16), *unit_ids(1, 16)]
    ids = await front.allocator.prefer("nvidia", whole=False, available=free, must=(), size=2)
    assert cards_of(ids) == {0}  # ids keep their number, which GPU-0 had first


async def test_a_card_keeps_its_device_ids_when_another_one_is_unplugged() -> None:
    """Card 0 is gone and the agent restarted, so every index is one less. A pod bound to the free card gets that one."""
    before = Front()
    before.devices.set_delivery("device-plugin", validated=False)
    front = Front()
    front.devices.slots.load(before.devices.inventory())
    front.renumber({0: "GPU-1", 1: "GPU-2", 2: "GPU-3"})
    full = replace(pod("full", 1, asks=(16,)), phase="Running")
    front.pod_queue.pods.put(full)
    front.holdings = {"default/full": {"main": {("nvidia", False): set(unit_ids(1, 16))}}, "default/new": {}}
    shown = [i for card in front.devices.listed_cards("nvidia", closed=()) for i in card.device_ids(whole=False)]
    assert sorted(shown) == sorted(unit for card in (1, 2, 3) for unit in unit_ids(card, 16))
    front.pod_queue.pods.put(pod("new", 2))
    free = [i for i in shown if i not in unit_ids(1, 16)]
    ids = await front.allocator.prefer("nvidia", whole=False, available=free, must=(), size=2)
    assert cards_of(ids) == {2}
    edits = await front.allocator.allocate("nvidia", whole=False, device_ids=ids)
    assert "GPU-2" in edits.env.values()


async def test_kinds_that_nri_corrects_are_allocated_by_the_record() -> None:
    """Ids of another card are enough for kubelet's counting; the container gets its own card, also while NRI is away."""
    front = Front(corrected=("nvidia",))
    front.pod_queue.pods.put(pod("a", 2))
    front.holdings = {"default/a": {}}
    elsewhere = unit_ids(0, 16)
    ids = await front.allocator.prefer("nvidia", whole=False, available=elsewhere, must=(), size=2)
    assert cards_of(ids) == {0}
    edits = await front.allocator.allocate("nvidia", whole=False, device_ids=ids)
    assert "GPU-2" in edits.env.values()
    assert "GPU-0" not in edits.env.values()


async def test_variables_of_the_manifest_are_left_to_nri_where_it_corrects() -> None:
    """kubelet would pass both values. The other container of the pod, and every container without NRI, gets all variables."""
    name = "NVIDIA_VISIBLE_DEVICES"
    for corrected, expected in ((("nvidia",), [False, True]), ((), [True, True])):
        front = Front(corrected=corrected)
        front.pod_queue.pods.put(pod("a", 2, asks=(2, 3), own=(name, "HOME")))
        front.holdings = {"default/a": {}}
        seen = []
        for size in (2, 3):
            ids = await front.allocator.prefer("nvidia", whole=False, available=unit_ids(2, 16), must=(), size=size)
            edits = await front.allocator.allocate("nvidia", whole=False, device_ids=ids)
            assert edits.env["ALIYUN_COM_GPU_MEM_CONTAINER"] == str(size)
            seen.append(name in edits.env)
        assert seen == expected


async def test_a_pod_that_names_its_node_itself_gets_all_variables() -> None:
    """NRI gives it none, so its own value would count."""
    front = Front(corrected=("nvidia",))
    front.pod_queue.pods.put(replace(pod("a", 2, own=("NVIDIA_VISIBLE_DEVICES",)), by_hand=True))
    front.holdings = {"default/a": {}}
    ids = await front.allocator.prefer("nvidia", whole=False, available=unit_ids(2, 16), must=(), size=2)
    edits = await front.allocator.allocate("nvidia", whole=False, device_ids=ids)
    assert edits.env["NVIDIA_VISIBLE_DEVICES"] == "GPU-2"
