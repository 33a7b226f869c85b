"""For whom an anonymous request is, when its asker has begun anew or says nothing."""

import json

import msgspec

from accelshare.agent.desk import Desk
from accelshare.agent.ids import cards_of, unit_ids
from accelshare.agent.shelf import Kind, Shelf, ShelfCard
from accelshare.vendors.catalog import load
from accelshare.vendors.drivers.driver import FoundCard
from accelshare.wire.node_pods import NodePod, NodePodReader

CATALOG = load()
MEMORY = "aliyun.com/gpu-mem"
FREE = [unit for card in range(4) for unit in unit_ids(card, 16)]


def desk() -> Desk:
    """Four cards of 16 units, and nobody waits."""
    shelf = Shelf()
    cards = {index: ShelfCard(FoundCard(index, f"GPU-{index}", 16384), 16) for index in range(4)}
    shelf.put(Kind(CATALOG["nvidia"], "GiB", 1024, cards))
    return Desk(shelf, exists=lambda _: True, arrival_s=0.01)


def pod(name: str, card: int, *, second: int = 0, assigned: bool = False) -> NodePod:
    """It asks two units, its bind said this card, and it was created in this second."""
    record = {"nvidia": [{"index": card, "id": f"GPU-{card}", "units": 2}]}
    notes = {"accelshare.io/assignment": json.dumps(record), "ALIYUN_COM_GPU_MEM_ASSIGNED": str(assigned).lower()}
    meta = {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1", "annotations": notes}
    limits = {"resources": {"limits": {MEMORY: "2"}}}
    content = {
        "metadata": {**meta, "creationTimestamp": f"2026-01-01T00:00:{second:02}Z"},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "none", **limits}]},
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]},
    }
    read = NodePodReader(CATALOG).decode(msgspec.Raw(msgspec.json.encode(content)))
    assert isinstance(read, NodePod)
    return read


async def served_on(asked: Desk) -> set[int]:
    """The card of whoever is served next."""
    ids = await asked.prefer("nvidia", whole=False, available=FREE, must=(), size=2)
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
