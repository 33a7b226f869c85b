"""A card is unplugged, the driver counts the others anew, and the agent restarts: every card is still itself."""

import asyncio
import shlex

import grpc
import msgspec
import pytest

from accelshare.agent.desk import Desk
from accelshare.agent.device_plugin.way import DevicePluginWay
from accelshare.agent.memory_kubelet import MemoryKubelet
from accelshare.agent.shelf import Kind, Shelf, ShelfCard
from accelshare.agent.waiting_room import WaitingRoom
from accelshare.vendors.catalog import load
from accelshare.vendors.drivers.driver import FoundCard
from accelshare.wire.node_pods import NodePodReader
from cluster.process import Process
from tests.contract.agent.village import MEMORY, NODE, PROFILE, Village


class Cards:
    """What the vendor's tool says: a line for each card, whose place is its index."""

    def __init__(self, village: Village) -> None:
        self._file = village.directory / "cards"
        command = ", ".join(f'"{word}"' for word in shlex.split(f"cat {self._file}"))
        by_tool = f"command = [{command}]\npattern = '(?P<id>\\S+) (?P<minor>\\d+)'\n"
        (village.profiles / "acme.toml").write_text(PROFILE.replace('glob = "/dev/zpu[0-9]*"\n', by_tool))
        village.catalog = load([village.profiles])

    def are(self, **minors: int) -> None:
        self._file.write_text("".join(f"{id} {minor}\n" for id, minor in minors.items()))


@pytest.fixture
def cards(village: Village) -> Cards:
    village.cards(4)
    return Cards(village)


async def test_a_pod_bound_to_a_free_card_gets_it_and_no_full_one(village: Village, cards: Cards) -> None:
    cards.are(zpu0=0, zpu1=1, zpu2=2)
    async with village.kubelet() as kubelet:
        agent = await village.start_agent()
        village.pod("full", {MEMORY: 16})
        village.bind("full", 1, units=16)
        await village.settled("full")
        agent.kill()
        cards.are(zpu1=1, zpu2=2)
        await restarted(village, kubelet)
        new = village.pod("new", {MEMORY: 8})
        village.bind("new", 2, units=8)
        await village.settled("new")
        assert village.phase("new") == "Running", kubelet.rejected
        assert kubelet.admitted[new].devices("c0") == ["/dev/zpu2"]
        assert village.recorded("full") == [1]
        assert await village.metric("accelshare_drift_total") == 0


async def test_a_card_that_comes_back_has_its_own_ids_again(village: Village, cards: Cards) -> None:
    cards.are(zpu0=0, zpu1=1, zpu2=2)
    async with village.kubelet() as kubelet:
        for turn, minors in enumerate(({"zpu0": 0, "zpu1": 1}, {"zpu1": 1}, {"zpu1": 1, "zpu2": 2}, {"zpu0": 0, "zpu1": 1})):
            cards.are(**minors)
            agent = await restarted(village, kubelet)
            last = max(minors.values())
            uid = village.pod(f"p{turn}", {MEMORY: 4})
            village.bind(f"p{turn}", last, units=4)
            await village.settled(f"p{turn}")
            assert kubelet.admitted[uid].devices("c0") == [f"/dev/zpu{last}"], kubelet.rejected
            assert kubelet.admitted[uid].ids["c0"][MEMORY][0].startswith(f"{last}-")
            agent.kill()


async def test_a_kept_answer_that_names_another_card_is_refused_and_its_pod_replaced(village: Village, cards: Cards) -> None:
    """kubelet would start the container again with the old index, which is a neighbour's now."""
    cards.are(zpu0=0, zpu1=1, zpu2=2)
    async with village.kubelet(remembers=True) as kubelet:
        agent = await village.start_agent()
        uid = village.pod("moved", {MEMORY: 4})
        village.bind("moved", 1, units=4)
        await village.settled("moved")
        await kubelet.restart(uid, "c0")
        assert not kubelet.resources[MEMORY].pre_start
        agent.kill()
        cards.are(zpu1=1, zpu2=2)
        await restarted(village, kubelet)
        with pytest.raises(grpc.aio.AioRpcError, match="default/moved"):
            await kubelet.restart(uid, "c0")
        await village.until(lambda: is_gone(village, "moved"), "the pod is deleted, so that its controller makes another")
        assert "AcceleratorRenumbered" in [event["reason"] for event in events(village)]


async def test_a_new_pod_that_is_given_the_same_ids_starts(village: Village, cards: Cards) -> None:
    """kubelet gives the ids of the pod that was replaced to the next one, with a new answer, which is right."""
    cards.are(zpu0=0, zpu1=1, zpu2=2)
    async with village.kubelet(remembers=True) as kubelet:
        agent = await village.start_agent()
        old = village.pod("moved", {MEMORY: 16})
        village.bind("moved", 1, units=16)
        await village.settled("moved")
        agent.kill()
        cards.are(zpu1=1, zpu2=2)
        await restarted(village, kubelet)
        ids = set(kubelet.admitted[old].ids["c0"][MEMORY])
        with pytest.raises(grpc.aio.AioRpcError):
            await kubelet.restart(old, "c0")
        await village.until(lambda: is_gone(village, "moved") and old not in kubelet.admitted, "the pod is replaced")
        new = village.pod("new", {MEMORY: 16})
        village.bind("new", 1, units=16)
        await village.settled("new")
        assert set(kubelet.admitted[new].ids["c0"][MEMORY]) == ids
        await kubelet.restart(new, "c0")


@pytest.mark.parametrize("asks", [True, False])
async def test_every_kubelet_is_told_that_a_container_must_not_start_unasked(village: Village, cards: Cards, asks: bool) -> None:
    """kubelet before 1.25 takes a plugin's options from its registration, newer ones ask for them."""
    cards.are(zpu0=0, zpu1=1, zpu2=2)
    async with village.kubelet(remembers=True, asks_options=asks) as kubelet:
        agent = await village.start_agent()
        village.pod("moved", {MEMORY: 4})
        village.bind("moved", 1, units=4)
        await village.settled("moved")
        assert not kubelet.resources[MEMORY].pre_start
        agent.kill()
        cards.are(zpu1=1, zpu2=2)
        await restarted(village, kubelet)
        assert kubelet.resources[MEMORY].pre_start
        assert kubelet.resources[MEMORY].prefers


async def test_cards_that_are_numbered_anew_while_the_agent_runs(village: Village) -> None:
    """kubelet is told of stale answers at once, not at the agent's next start."""
    profile = village.catalog["acme"]
    shelf = Shelf()
    room = WaitingRoom(shelf)

    async def unknown() -> None:
        return None

    desk = Desk(shelf, room, unknown, exists=lambda _path: True)
    way = DevicePluginWay(shelf, room, desk, village.kubelet_root / "device-plugins")

    def find(*ids: str) -> None:
        found = [FoundCard(index, id, 16384, minor=int(id[-1])) for index, id in enumerate(ids)]
        shelf.put(Kind(profile, "GiB", 1024, {card.index: ShelfCard(card, 16) for card in found}))

    find("zpu0", "zpu1", "zpu2")
    async with village.kubelet(remembers=True) as kubelet:
        running = asyncio.create_task(way.run(lambda _kind, _delivers: None))
        try:
            await village.until(
                lambda: MEMORY in kubelet.resources and any(kubelet.resources[MEMORY].health.values()), "it is shown"
            )
            uid = village.pod("moved", {MEMORY: 4})
            village.bind("moved", 1, units=4)
            bound = village.api.store.get("pods", "moved").object
            room.pod_seen(NodePodReader(village.catalog).decode(msgspec.json.encode(bound)))
            await village.until(lambda: uid in kubelet.admitted, "it is admitted")
            assert not kubelet.resources[MEMORY].pre_start
            find("zpu1", "zpu2")
            await village.until(lambda: kubelet.resources[MEMORY].pre_start, "kubelet asks before it starts a container")
            with pytest.raises(grpc.aio.AioRpcError, match="default/moved"):
                await kubelet.restart(uid, "c0")
            find("zpu0", "zpu1", "zpu2")
            await village.until(lambda: not kubelet.resources[MEMORY].pre_start, "the card is back, and its answer right")
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_a_kept_answer_that_names_the_same_card_is_good(village: Village, cards: Cards) -> None:
    """The last card is unplugged, so nobody else is numbered anew, and no plugin is asked when a container restarts."""
    cards.are(zpu0=0, zpu1=1, zpu2=2)
    async with village.kubelet(remembers=True) as kubelet:
        agent = await village.start_agent()
        uid = village.pod("stays", {MEMORY: 4})
        village.bind("stays", 1, units=4)
        await village.settled("stays")
        agent.kill()
        cards.are(zpu0=0, zpu1=1)
        await restarted(village, kubelet)
        assert not kubelet.resources[MEMORY].pre_start
        await kubelet.restart(uid, "c0")
        assert village.phase("stays") == "Running"


async def test_a_pod_whose_init_container_has_been_served_takes_no_turn_of_an_equal(village: Village, cards: Cards) -> None:
    """PodResources never shows ordinary init containers; after a restart of the agent such a pod would seem to wait."""
    cards.are(zpu0=0, zpu1=1, zpu2=2)
    async with village.kubelet(remembers=True) as kubelet:
        agent = await village.start_agent()
        village.pod("first", {}, inits=[village.container("i0", {MEMORY: 4})])
        village.bind("first", 0, units=4)
        await village.settled("first")
        pending = {"status": {"phase": "Pending"}}  # while its init container runs
        village.api.store.patch("pods", "first", pending, content_type="application/merge-patch+json", subresource="status")
        agent.kill()
        await restarted(village, kubelet)
        assert await village.metric("accelshare_waiting_pods") == 0
        uid = village.pod("second", {MEMORY: 4})
        village.bind("second", 1, units=4)
        await village.settled("second")
        assert kubelet.admitted[uid].devices("c0") == ["/dev/zpu1"]


async def restarted(village: Village, kubelet: MemoryKubelet) -> Process:
    """A new agent whose devices kubelet has heard of."""
    agent = await village.start_agent()
    await village.until(lambda: any(kubelet.resources[MEMORY].health.values()), "kubelet has healthy devices")
    return agent


def is_gone(village: Village, name: str) -> bool:
    return name not in [item.object["metadata"]["name"] for item in village.api.store.list("pods").versions]


def events(village: Village) -> list[dict[str, str]]:
    return [item.object for item in village.api.store.list("events").versions]


async def test_a_node_that_was_made_anew_learns_the_numbers_from_kubelet(village: Village, cards: Cards) -> None:
    """Its object was deleted with all that stood on it, while a card was unplugged and no agent ran."""
    cards.are(zpu0=0, zpu1=1, zpu2=2)
    async with village.kubelet(remembers=True) as kubelet:
        agent = await village.start_agent()
        village.pod("full", {MEMORY: 16})
        village.bind("full", 1, units=16)
        await village.settled("full")
        agent.kill()
        cards.are(zpu1=1, zpu2=2)
        forgotten = {"metadata": {"annotations": {"accelshare.io/inventory": None}}}
        village.api.store.patch("nodes", NODE, forgotten, content_type="application/merge-patch+json")
        await restarted(village, kubelet)
        new = village.pod("new", {MEMORY: 8})
        village.bind("new", 2, units=8)
        await village.settled("new")
        assert village.phase("new") == "Running", kubelet.rejected
        assert kubelet.admitted[new].devices("c0") == ["/dev/zpu2"]
