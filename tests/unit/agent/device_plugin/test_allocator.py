"""For whom an anonymous request is, when its asker has begun anew or says nothing."""

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
    """What kubelet meets: four cards of 16 units, and nobody waits."""

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


def pod(name: str, card: int, *, second: int = 0, assigned: bool = False, asks: tuple[int, ...] = (2,)) -> NodePod:
    """Each container asks so many units, its bind said this card, and it was created in this second."""
    record = {"nvidia": [{"index": card, "id": f"GPU-{card}", "units": sum(asks)}]}
    notes = {"accelshare.io/assignment": json.dumps(record), "ALIYUN_COM_GPU_MEM_ASSIGNED": str(assigned).lower()}
    meta = {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1", "annotations": notes}
    names = ("main", "second", "third")
    containers = [{"name": name, "resources": {"limits": {MEMORY: str(units)}}} for name, units in zip(names, asks, strict=False)]
    content = {
        "metadata": {**meta, "creationTimestamp": f"2026-01-01T00:00:{second:02}Z"},
        "spec": {"nodeName": "n1", "containers": containers},
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]},
    }
    read = NodePodReader(CATALOG).decode(msgspec.Raw(msgspec.json.encode(content)))
    assert isinstance(read, NodePod)
    return read


async def served_on(asked: Front, size: int = 2) -> set[int]:
    """The card of whoever is served next."""
    ids = await asked.allocator.prefer("nvidia", whole=False, available=FREE, must=(), size=size)
    await asked.allocator.allocate("nvidia", whole=False, device_ids=ids)
    return cards_of(ids)


async def test_pods_are_served_as_they_come_until_kubelet_begins_anew_and_takes_them_by_age() -> None:
    front = Front()
    for name, card, second in (("young", 3, 30), ("old", 1, 10), ("middle", 2, 20), ("first", 0, 40)):
        front.pod_queue.pods.put(pod(name, card, second=second))
    assert await served_on(front) == {3}
    front.pod_queue.set_holdings({"default/young": {"main": {("nvidia", False): {"3-0", "3-1"}}}})
    front.allocator.kubelet_restarted()
    assert [await served_on(front) for _ in range(3)] == [{1}, {2}, {0}]


async def test_a_record_that_says_assigned_is_believed_only_where_kubelet_cannot_say() -> None:
    """A copied manifest may say anything; kubelet's own books are better, where there are any."""
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


async def test_a_pod_that_was_served_and_is_seen_again_before_kubelet_told_does_not_wait_again() -> None:
    """kubelet writes a pod's status moments after it was given its card; the next pod must not get that pod's card."""
    front = Front()
    front.pod_queue.pods.put(pod("first", 3))
    assert await served_on(front) == {3}
    front.pod_queue.pods.put(pod("first", 3))
    front.pod_queue.pods.put(pod("second", 1))
    assert await served_on(front) == {1}
    assert front.pod_queue.waiting == 0


async def test_what_a_dying_kubelet_was_given_waits_again_until_the_next_ones_books_are_read() -> None:
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


async def test_whoever_is_in_kubelets_books_and_lacks_something_is_served_whatever_the_order() -> None:
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
    asked = asyncio.create_task(served_on(front))
    await front.looked.wait()
    front.pod_queue.pods.put(pod("late", 2))
    assert await asked == {2}


async def test_a_pod_that_kubelet_names_and_nobody_knows_gets_no_other_pods_card() -> None:
    front = Front()
    front.pod_queue.pods.put(pod("early", 1))
    front.holdings = {"default/stranger": {}}
    with pytest.raises(NoWaitingPodError, match=r"default/early/main .* 2 nvidia"):
        await served_on(front)


async def test_a_pod_that_another_agent_began_to_serve_is_served_to_its_end() -> None:
    """Its first container has its units already; the next request is for the second one, and of another amount."""
    front = Front()
    front.pod_queue.pods.put(pod("begun", 3, asks=(2, 4, 1)))
    front.pod_queue.pods.put(pod("equal", 1, asks=(4,)))
    front.holdings = {"default/begun": holds(3, 0, 1)}
    assert await served_on(front, 4) == {3}
    assert await served_on(front, 1) == {3}
    assert front.pod_queue.waiting == 1


async def test_a_pod_that_was_half_served_when_kubelet_died_may_be_asked_for_from_its_beginning() -> None:
    front = Front()
    front.pod_queue.pods.put(pod("half", 3, asks=(2, 4)))
    front.holdings = {"default/half": {}}
    assert await served_on(front, 2) == {3}
    front.allocator.kubelet_restarted()
    assert await served_on(front, 2) == {3}
    assert await served_on(front, 4) == {3}
    assert front.pod_queue.waiting == 0


async def test_ids_that_kubelet_took_without_a_question_say_whose_they_are() -> None:
    """It does not ask when a pod takes all that is left."""
    front = Front()
    front.pod_queue.pods.put(pod("served", 0))
    assert await served_on(front) == {0}
    front.pod_queue.pods.put(pod("first", 1))
    front.pod_queue.pods.put(pod("second", 2))
    given = await front.allocator.allocate("nvidia", whole=False, device_ids=["2-e", "2-f"])
    assert dict(given.env)["NVIDIA_VISIBLE_DEVICES"] == "GPU-2"
    assert front.pod_queue.waiting == 1
    assert await served_on(front) == {1}


async def test_a_pod_of_which_kubelets_books_never_show_anything_takes_nobodys_turn() -> None:
    """They leave out containers that only come first (init), and pods that the container runtime was told to serve."""
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


async def test_a_pod_on_its_way_to_us_is_waited_for_although_the_books_lack_something_of_others() -> None:
    front = Front(arrival_s=60.0)
    front.pod_queue.pods.put(pod("hidden", 0))
    front.holdings = {"default/hidden": {}}
    assert await served_on(front) == {0}
    front.holdings = {"default/hidden": {}, "default/late": {}}
    front.looked.clear()
    asked = asyncio.create_task(served_on(front))
    await front.looked.wait()
    front.pod_queue.pods.put(pod("late", 2))
    assert await asked == {2}


async def test_a_pod_that_a_kubelet_has_lost_is_served_once_more() -> None:
    front = Front()
    front.pod_queue.pods.put(pod("lost", 3))
    front.holdings = {"default/lost": {}}
    assert await served_on(front) == {3}
    front.pod_queue.set_holdings({"default/lost": holds(3, 0, 1)})
    front.pod_queue.pods.put(replace(pod("lost", 3), phase="Running"))
    assert await served_on(front) == {3}


async def test_a_pod_made_anew_under_its_old_name_has_nothing_of_what_the_old_one_held() -> None:
    """It takes all that is left, so kubelet asks no question, and nobody has read its books since."""
    front = Front()
    front.pod_queue.pods.put(pod("set-0", 3))
    assert await served_on(front) == {3}
    front.pod_queue.set_holdings({"default/set-0": holds(3, 0, 1)})
    anew = pod("set-0", 1)
    anew = replace(anew, seen=replace(anew.seen, uid="anew"))
    front.pod_queue.pods.put(anew)  # as a new list brings it: first who is there, then who is gone
    front.pod_queue.pods.remove("set-0")
    given = await front.allocator.allocate("nvidia", whole=False, device_ids=["1-e", "1-f"])
    assert dict(given.env)["NVIDIA_VISIBLE_DEVICES"] == "GPU-1"


async def test_a_pod_made_anew_is_found_though_kubelet_told_of_the_old_one_a_moment_ago() -> None:
    front = Front()
    front.pod_queue.pods.put(pod("other", 0))
    assert await served_on(front) == {0}
    front.pod_queue.pods.put(pod("set-0", 1))
    front.pod_queue.set_holdings({"default/set-0": holds(3, 0, 1)})  # read before kubelet let go of its namesake
    front.holdings = {"default/set-0": {}}
    given = await front.allocator.allocate("nvidia", whole=False, device_ids=["1-e", "1-f"])
    assert dict(given.env)["NVIDIA_VISIBLE_DEVICES"] == "GPU-1"


async def test_a_card_that_was_renumbered_is_kept_for_whom_it_was_promised() -> None:
    """The pod that waits was promised the card of an id, which has another number now."""
    front = Front()
    front.renumber({0: "GPU-1", 1: "GPU-0"})
    front.pod_queue.pods.put(pod("promised", 1, asks=(16,)))
    front.pod_queue.pods.put(pod("homeless", 9, asks=(2,)))
    front.holdings = {"default/homeless": {}}
    free = [*unit_ids(0, 16), *unit_ids(1, 16)]
    ids = await front.allocator.prefer("nvidia", whole=False, available=free, must=(), size=2)
    assert cards_of(ids) == {0}  # ids keep their number, which GPU-0 had first


async def test_a_card_keeps_its_device_ids_when_another_one_is_unplugged() -> None:
    """Card 0 is gone and the agent restarted, so every index is one less. Who is bound to the free card gets just that one."""
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
    given = await front.allocator.allocate("nvidia", whole=False, device_ids=ids)
    assert "GPU-2" in given.env.values()


async def test_what_is_made_equal_to_the_record_is_given_by_the_record() -> None:
    """Ids of another card are enough for kubelet's counting; the container gets its own card, also while NRI is away."""
    front = Front(corrected=("nvidia",))
    front.pod_queue.pods.put(pod("a", 2))
    front.holdings = {"default/a": {}}
    elsewhere = unit_ids(0, 16)
    ids = await front.allocator.prefer("nvidia", whole=False, available=elsewhere, must=(), size=2)
    assert cards_of(ids) == {0}
    given = await front.allocator.allocate("nvidia", whole=False, device_ids=ids)
    assert "GPU-2" in given.env.values()
    assert "GPU-0" not in given.env.values()
