"""A card is unplugged, the driver renumbers the others, and the agent restarts: pods keep their cards."""

import asyncio
import shlex
import time

import grpc
import msgspec
import pytest

from accelshare.agent.delivery import DeliveryState
from accelshare.agent.device_plugin.allocator import Allocator
from accelshare.agent.device_plugin.delivery import DevicePluginDelivery
from accelshare.agent.device_plugin.pod_queue import PodQueue
from accelshare.agent.discovery.device_inventory import DeviceInventory, InventoryCard, VendorCards
from accelshare.agent.metrics import AgentMetrics
from accelshare.agent.pinned_records import PinnedRecords
from accelshare.agent.pod_feed import PodFeed
from accelshare.agent.pod_store import PodStore
from accelshare.agent.repairs import Repairs
from accelshare.kube.events import Events
from accelshare.vendors.catalog import load
from accelshare.vendors.drivers.driver import HostCard
from accelshare.wire.node_pods import NodePodReader
from tests.contract.agent.fake_node import MEMORY, NODE, PROFILE, FakeNode
from tests.unit.agent.builders import mode


class Cards:
    """The output of the vendor's tool: a line for each card, whose place is its index."""

    def __init__(self, fake_node: FakeNode) -> None:
        self._fake_node = fake_node
        self._file = fake_node.directory / "cards"
        command = ", ".join(f'"{word}"' for word in shlex.split(f"cat {self._file}"))
        by_tool = f"command = [{command}]\npattern = '(?P<id>\\S+) (?P<minor>\\d+)'\n"
        (fake_node.profiles / "acme.toml").write_text(PROFILE.replace('glob = "/dev/zpu[0-9]*"\n', by_tool))
        fake_node.catalog = load([fake_node.profiles])

    def are(self, **minors: int) -> None:
        self._file.write_text("".join(f"{id} {minor}\n" for id, minor in minors.items()))

    async def restart_agent(self, **minors: int) -> None:
        """Kill the agent, and start another one that finds these cards."""
        assert self._fake_node.agent is not None
        self._fake_node.agent.kill()
        self.are(**minors)
        await self._fake_node.start_agent()


@pytest.fixture
def cards(fake_node: FakeNode) -> Cards:
    fake_node.cards(4)
    made = Cards(fake_node)
    made.are(zpu0=0, zpu1=1, zpu2=2)
    return made


async def test_a_pod_bound_to_a_free_card_gets_it_and_no_full_one(fake_node: FakeNode, cards: Cards) -> None:
    async with fake_node.kubelet() as kubelet:
        await fake_node.start_agent()
        await fake_node.place("full", 1, units=16)
        await cards.restart_agent(zpu1=1, zpu2=2)
        new = await fake_node.place("new", 2, units=8)
        assert fake_node.phase("new") == "Running", kubelet.rejected
        assert kubelet.admitted[new].devices("c0") == ["/dev/zpu2"]
        assert fake_node.recorded("full") == [1]
        assert await fake_node.metric("accelshare_drift_total") == 0


async def test_a_card_that_comes_back_has_its_own_ids_again(fake_node: FakeNode, cards: Cards) -> None:
    async with fake_node.kubelet() as kubelet:
        for turn, minors in enumerate(({"zpu0": 0, "zpu1": 1}, {"zpu1": 1}, {"zpu1": 1, "zpu2": 2}, {"zpu0": 0, "zpu1": 1})):
            cards.are(**minors)
            agent = await fake_node.start_agent()
            last = max(minors.values())
            uid = await fake_node.place(f"p{turn}", last, units=4)
            assert kubelet.admitted[uid].devices("c0") == [f"/dev/zpu{last}"], kubelet.rejected
            assert kubelet.admitted[uid].ids["c0"][MEMORY][0].startswith(f"{last}-")
            agent.kill()


async def test_a_kept_answer_that_names_another_card_is_refused_and_its_pod_replaced(fake_node: FakeNode, cards: Cards) -> None:
    """kubelet would restart the container with the old index, which is another card's now."""
    async with fake_node.kubelet(writes_checkpoint=True) as kubelet:
        await fake_node.start_agent()
        uid = await fake_node.place("moved", 1, units=4)
        await kubelet.restart(uid, "c0")
        assert not kubelet.resources[MEMORY].has_pre_start
        await cards.restart_agent(zpu1=1, zpu2=2)
        with pytest.raises(grpc.aio.AioRpcError, match="default/moved"):
            await kubelet.restart(uid, "c0")
        await fake_node.until(lambda: is_gone(fake_node, "moved"), "the pod is deleted, so that its controller makes another")
        assert "AcceleratorRenumbered" in [event["reason"] for event in events(fake_node)]


async def test_a_new_pod_with_the_ids_of_a_replaced_one_starts(fake_node: FakeNode, cards: Cards) -> None:
    """kubelet allocates the ids of the replaced pod to the next one, with a new answer, which is right."""
    async with fake_node.kubelet(writes_checkpoint=True) as kubelet:
        await fake_node.start_agent()
        old = await fake_node.place("moved", 1, units=16)
        await cards.restart_agent(zpu1=1, zpu2=2)
        ids = set(kubelet.admitted[old].ids["c0"][MEMORY])
        with pytest.raises(grpc.aio.AioRpcError):
            await kubelet.restart(old, "c0")
        await fake_node.until(lambda: is_gone(fake_node, "moved") and old not in kubelet.admitted, "the pod is replaced")
        new = await fake_node.place("new", 1, units=16)
        assert set(kubelet.admitted[new].ids["c0"][MEMORY]) == ids
        await kubelet.restart(new, "c0")


@pytest.mark.parametrize("asks", [True, False])
async def test_every_kubelet_learns_that_containers_need_pre_start(fake_node: FakeNode, cards: Cards, asks: bool) -> None:
    """kubelet before 1.25 reads a plugin's options from its registration, newer ones call GetDevicePluginOptions."""
    async with fake_node.kubelet(writes_checkpoint=True, calls_options=asks) as kubelet:
        await fake_node.start_agent()
        await fake_node.place("moved", 1, units=4)
        assert not kubelet.resources[MEMORY].has_pre_start
        await cards.restart_agent(zpu1=1, zpu2=2)
        assert kubelet.resources[MEMORY].has_pre_start
        assert kubelet.resources[MEMORY].has_preferred_allocation


async def test_kubelet_learns_at_once_when_cards_are_renumbered(fake_node: FakeNode) -> None:
    """The plugin registers again when an answer becomes stale, not at the agent's next start."""
    profile = fake_node.catalog["acme"]
    devices = DeviceInventory()
    pod_queue = PodQueue(devices, PodStore())

    async def unknown() -> None:
        return None

    allocator = Allocator(devices, pod_queue, unknown, mode=mode(), exists=lambda _path: True)
    events = Events(fake_node.client, component="tests", clock=time.time)
    metrics, repairs = AgentMetrics(), Repairs(fake_node.client, events, {"acme": profile}, on_replaced=lambda: None)
    pins = PinnedRecords(fake_node.client, NODE, fake_node.catalog, events, metrics)
    feed = PodFeed(fake_node.client, NODE, fake_node.catalog, pods=pod_queue.pods, pins=pins, metrics=metrics)
    directory = fake_node.kubelet_root / "device-plugins"
    delivery = DevicePluginDelivery(devices, pod_queue, allocator, directory, state=DeliveryState(devices, feed), repairs=repairs)

    def find(*ids: str) -> None:
        found = [HostCard(index, id, 16384, minor=int(id[-1])) for index, id in enumerate(ids)]
        devices.put(VendorCards(profile, "GiB", 1024, {card.index: InventoryCard(card, 16) for card in found}))

    find("zpu0", "zpu1", "zpu2")
    async with fake_node.kubelet(writes_checkpoint=True) as kubelet:
        running = asyncio.create_task(delivery.run())
        try:
            await fake_node.until(
                lambda: MEMORY in kubelet.resources and any(kubelet.resources[MEMORY].health.values()), "it is shown"
            )
            uid = fake_node.pod("moved", {MEMORY: 4})
            fake_node.bind("moved", 1, units=4)
            bound = fake_node.api.store.get("pods", "moved").object
            pod_queue.pods.put(NodePodReader(fake_node.catalog).decode(msgspec.json.encode(bound)))
            await fake_node.until(lambda: uid in kubelet.admitted, "it is admitted")
            assert not kubelet.resources[MEMORY].has_pre_start
            find("zpu1", "zpu2")
            await fake_node.until(lambda: kubelet.resources[MEMORY].has_pre_start, "kubelet asks before it starts a container")
            with pytest.raises(grpc.aio.AioRpcError, match="default/moved"):
                await kubelet.restart(uid, "c0")
            find("zpu0", "zpu1", "zpu2")
            await fake_node.until(lambda: not kubelet.resources[MEMORY].has_pre_start, "the card is back, and its answer right")
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_a_kept_answer_that_names_the_same_card_is_used(fake_node: FakeNode, cards: Cards) -> None:
    """The last card is unplugged, so no other card is renumbered, and kubelet calls no plugin when a container restarts."""
    async with fake_node.kubelet(writes_checkpoint=True) as kubelet:
        await fake_node.start_agent()
        uid = await fake_node.place("stays", 1, units=4)
        await cards.restart_agent(zpu0=0, zpu1=1)
        assert not kubelet.resources[MEMORY].has_pre_start
        await kubelet.restart(uid, "c0")
        assert fake_node.phase("stays") == "Running"


async def test_a_pod_whose_init_container_was_served_does_not_wait_again(fake_node: FakeNode, cards: Cards) -> None:
    """PodResources never shows ordinary init containers; after a restart of the agent such a pod would seem to wait."""
    async with fake_node.kubelet(writes_checkpoint=True) as kubelet:
        agent = await fake_node.start_agent()
        fake_node.pod("first", {}, inits=[fake_node.container("i0", {MEMORY: 4})])
        fake_node.bind("first", 0, units=4)
        await fake_node.settled("first")
        pending = {"status": {"phase": "Pending"}}  # while its init container runs
        fake_node.api.store.patch("pods", "first", pending, content_type="application/merge-patch+json", subresource="status")
        agent.kill()
        await fake_node.start_agent()
        assert await fake_node.metric("accelshare_waiting_pods") == 0
        uid = await fake_node.place("second", 1, units=4)
        assert kubelet.admitted[uid].devices("c0") == ["/dev/zpu1"]


def is_gone(fake_node: FakeNode, name: str) -> bool:
    return name not in [item.object["metadata"]["name"] for item in fake_node.api.store.list("pods").versions]


def events(fake_node: FakeNode) -> list[dict[str, str]]:
    return [item.object for item in fake_node.api.store.list("events").versions]


async def test_a_new_node_object_gets_the_slots_from_kubelets_checkpoint(fake_node: FakeNode, cards: Cards) -> None:
    """The Node was deleted with its annotations, while a card was unplugged and no agent ran."""
    async with fake_node.kubelet(writes_checkpoint=True) as kubelet:
        agent = await fake_node.start_agent()
        await fake_node.place("full", 1, units=16)
        agent.kill()
        cards.are(zpu1=1, zpu2=2)
        forgotten = {"metadata": {"annotations": {"accelshare.io/inventory": None}}}
        fake_node.api.store.patch("nodes", NODE, forgotten, content_type="application/merge-patch+json")
        await fake_node.start_agent()
        new = await fake_node.place("new", 2, units=8)
        assert fake_node.phase("new") == "Running", kubelet.rejected
        assert kubelet.admitted[new].devices("c0") == ["/dev/zpu2"]
