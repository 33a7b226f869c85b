"""For whom an anonymous request is, when its asker has begun anew or says nothing."""

import asyncio
import json
from collections.abc import Mapping

import msgspec
import pytest

from accelshare.agent.desk import Desk, Holding, NobodyWaitsError
from accelshare.agent.ids import cards_of, unit_ids
from accelshare.agent.shelf import Kind, Shelf, ShelfCard
from accelshare.vendors.catalog import load
from accelshare.vendors.drivers.driver import FoundCard
from accelshare.wire.node_pods import NodePod, NodePodReader

CATALOG = load()
MEMORY = "aliyun.com/gpu-mem"
FREE = [unit for card in range(4) for unit in unit_ids(card, 16)]


def desk(arrival_s: float = 0.01) -> Desk:
    """Four cards of 16 units, and nobody waits."""
    shelf = Shelf()
    cards = {index: ShelfCard(FoundCard(index, f"GPU-{index}", 16384), 16) for index in range(4)}
    shelf.put(Kind(CATALOG["nvidia"], "GiB", 1024, cards))
    return Desk(shelf, exists=lambda _: True, arrival_s=arrival_s)


def shows_books(asked: Desk, books: Mapping[str, Holding]) -> None:
    """From now on kubelet shows these."""

    async def read() -> Mapping[str, Holding]:
        asked.kubelet_says(books)
        return books

    asked.books = read


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


async def served_on(asked: Desk, size: int = 2) -> set[int]:
    """The card of whoever is served next."""
    ids = await asked.prefer("nvidia", whole=False, available=FREE, must=(), size=size)
    await asked.allocate("nvidia", whole=False, device_ids=ids)
    return cards_of(ids)


async def test_pods_are_served_as_they_come_until_kubelet_begins_anew_and_takes_them_by_age() -> None:
    waiting = desk()
    for name, card, second in (("young", 3, 30), ("old", 1, 10), ("middle", 2, 20), ("first", 0, 40)):
        waiting.pod_seen(pod(name, card, second=second))
    assert await served_on(waiting) == {3}
    waiting.kubelet_says({"default/young": {"main": {("nvidia", False): {"3-0", "3-1"}}}})
    waiting.kubelet_began()
    assert [await served_on(waiting) for _ in range(3)] == [{1}, {2}, {0}]


async def test_a_record_that_says_assigned_is_believed_only_where_kubelet_cannot_say() -> None:
    """A copied manifest may say anything; kubelet's own books are better, where there are any."""
    waiting = desk()
    waiting.pod_seen(pod("claims", 2, assigned=True))
    assert waiting.waiting == 1
    waiting.kubelet_is_mute()
    assert waiting.waiting == 0
    waiting.pod_seen(pod("new", 1))
    assert await served_on(waiting) == {1}
    waiting.kubelet_says({})
    waiting.pod_seen(pod("claims", 2, assigned=True))
    assert waiting.waiting == 1


async def test_a_pod_that_was_served_and_is_seen_again_before_kubelet_told_does_not_wait_again() -> None:
    """kubelet writes a pod's status moments after it was given its card; the next pod must not get that pod's card."""
    waiting = desk()
    waiting.pod_seen(pod("first", 3))
    assert await served_on(waiting) == {3}
    waiting.pod_seen(pod("first", 3))
    waiting.pod_seen(pod("second", 1))
    assert await served_on(waiting) == {1}
    assert waiting.waiting == 0


async def test_what_a_dying_kubelet_was_given_waits_again_until_the_next_ones_books_are_read() -> None:
    waiting = desk()
    for name, card in (("kept", 3), ("lost", 1)):
        waiting.pod_seen(pod(name, card))
        await served_on(waiting)
    waiting.kubelet_began()
    assert waiting.waiting == 2
    waiting.kubelet_says({"default/kept": {"main": {("nvidia", False): {"3-0", "3-1"}}}})
    assert waiting.waiting == 1
    assert await served_on(waiting) == {1}


def holds(card: int, *units: int) -> Holding:
    return {"main": {("nvidia", False): {f"{card}-{unit:x}" for unit in units}}}


async def test_whoever_is_in_kubelets_books_and_lacks_something_is_served_whatever_the_order() -> None:
    waiting = desk()
    for name, card in (("a", 0), ("b", 1), ("c", 2), ("d", 3)):
        waiting.pod_seen(pod(name, card))
    taken: dict[str, Holding] = {}
    for name, card in (("c", 2), ("a", 0), ("d", 3), ("b", 1)):
        shows_books(waiting, {**taken, f"default/{name}": {}, "default/other": {}})
        assert await served_on(waiting) == {card}
        taken[f"default/{name}"] = holds(card, 0, 1)
    assert waiting.waiting == 0


async def test_a_pod_that_kubelet_names_and_we_do_not_know_yet_is_waited_for() -> None:
    waiting = desk(arrival_s=60.0)
    waiting.pod_seen(pod("early", 1))
    looked = asyncio.Event()

    async def read() -> Mapping[str, Holding]:
        looked.set()
        return {"default/late": {}}

    waiting.books = read
    asked = asyncio.create_task(served_on(waiting))
    await looked.wait()
    waiting.pod_seen(pod("late", 2))
    assert await asked == {2}


async def test_a_pod_that_kubelet_names_and_nobody_knows_gets_no_other_pods_card() -> None:
    waiting = desk()
    waiting.pod_seen(pod("early", 1))
    shows_books(waiting, {"default/stranger": {}})
    with pytest.raises(NobodyWaitsError, match="waiting are: default/early/main asks 2 nvidia"):
        await served_on(waiting)


async def test_a_pod_that_another_agent_began_to_serve_is_served_to_its_end() -> None:
    """Its first container has its units already; the next request is for the second one, and of another amount."""
    waiting = desk()
    waiting.pod_seen(pod("begun", 3, asks=(2, 4, 1)))
    waiting.pod_seen(pod("equal", 1, asks=(4,)))
    shows_books(waiting, {"default/begun": holds(3, 0, 1)})
    assert await served_on(waiting, 4) == {3}
    assert await served_on(waiting, 1) == {3}
    assert waiting.waiting == 1


async def test_a_pod_that_was_half_served_when_kubelet_died_may_be_asked_for_from_its_beginning() -> None:
    waiting = desk()
    waiting.pod_seen(pod("half", 3, asks=(2, 4)))
    shows_books(waiting, {"default/half": {}})
    assert await served_on(waiting, 2) == {3}
    waiting.kubelet_began()
    assert await served_on(waiting, 2) == {3}
    assert await served_on(waiting, 4) == {3}
    assert waiting.waiting == 0


async def test_ids_that_kubelet_took_without_a_question_say_whose_they_are() -> None:
    """It does not ask when a pod takes all that is left."""
    waiting = desk()
    waiting.pod_seen(pod("served", 0))
    assert await served_on(waiting) == {0}
    waiting.pod_seen(pod("first", 1))
    waiting.pod_seen(pod("second", 2))
    given = await waiting.allocate("nvidia", whole=False, device_ids=["2-e", "2-f"])
    assert dict(given.env)["NVIDIA_VISIBLE_DEVICES"] == "GPU-2"
    assert waiting.waiting == 1
    assert await served_on(waiting) == {1}
