"""Slots of cards in kubelet's device ids, over renumberings and restarts."""

import random

from accelshare.agent.device_plugin.checkpoint import Allocation
from accelshare.agent.device_plugin.slots import MOST_GONE, Slots
from accelshare.ledger.facts import PodSeen
from accelshare.ledger.nouns import Slice
from accelshare.vendors.drivers.driver import HostCard
from accelshare.wire.inventory import CardEntry, KindEntry, entries_of, write
from accelshare.wire.node_pods import NodePod


def cards(*ids: str) -> list[HostCard]:
    return [HostCard(index, id, 16384) for index, id in enumerate(ids)]


def restarted(slots: Slots, *now: str) -> Slots:
    """The slots of the next agent, from the Node's inventory."""
    entry = KindEntry([CardEntry(card.index, 16, card.id) for card in cards(*now)], slots=slots.to_publish("zpu", cards(*now)))
    later = Slots()
    later.load(entries_of(write({"zpu": entry})))
    return later


def test_slots_equal_to_indexes_are_not_published() -> None:
    slots = Slots()
    assert slots.assign("zpu", cards("a", "b", "c")) == {0: 0, 1: 1, 2: 2}
    assert slots.to_publish("zpu", cards("a", "b", "c")) == {}
    assert "slots" not in write({"zpu": KindEntry([], slots={})})


def test_a_card_keeps_its_slot_also_while_it_is_gone() -> None:
    slots = Slots()
    slots.assign("zpu", cards("a", "b", "c"))
    assert slots.assign("zpu", cards("b", "c")) == {0: 1, 1: 2}
    slots = restarted(slots, "b", "c")
    assert slots.assign("zpu", cards("b", "c", "new")) == {0: 1, 1: 2, 2: 3}
    slots = restarted(slots, "b", "c", "new")
    assert slots.assign("zpu", cards("a", "b", "c", "new")) == {0: 0, 1: 1, 2: 2, 3: 3}


def test_an_inventory_without_slots_has_indexes_as_slots() -> None:
    slots = Slots()
    slots.load({"zpu": KindEntry([CardEntry(0, 16, "a"), CardEntry(1, 16, "b")])})
    assert slots.assign("zpu", cards("b")) == {0: 1}


def test_a_card_with_a_new_id_keeps_its_slot() -> None:
    slots = Slots()
    slots.load({"zpu": KindEntry([CardEntry(0, 16, "a"), CardEntry(1, 16, "old")])})
    assert slots.assign("zpu", [HostCard(0, "new", 16384, former_ids=("old",))]) == {0: 1}


def test_any_history_gives_each_card_a_slot_of_its_own() -> None:
    chance = random.Random(8)
    slots, assigned = Slots(), dict[str, int]()
    for _ in range(500):
        here = chance.sample([f"card-{number}" for number in range(12)], chance.randrange(1, 9))
        numbers = slots.assign("zpu", cards(*here))
        assert len(set(numbers.values())) == len(here)
        for index, id in enumerate(here):
            assert assigned.setdefault(id, numbers[index]) == numbers[index]
        if chance.random() < 0.3:
            slots = restarted(slots, *here)


def test_cards_without_an_id_or_with_the_same_id_have_different_slots() -> None:
    slots = Slots()
    assert sorted(slots.assign("zpu", cards("", "", "x", "x")).values()) == [0, 1, 2, 3]


def test_the_number_of_gone_cards_is_bounded() -> None:
    slots = Slots()
    for number in range(1000):
        slots.assign("zpu", cards(f"card-{number}"))
    assert len(slots.to_publish("zpu", cards("card-999"))) <= MOST_GONE + 1


def test_a_pod_that_claims_to_mirror_another_takes_nothing_of_it() -> None:
    """Any user can write the annotation of a mirror pod on a pod of their own; kubelet runs no such pod."""
    owner = holder("owner", "GPU-b")
    false = holder("false", "GPU-c", {"kubernetes.io/config.mirror": "owner"})
    held = [Allocation("owner", "main", "zpu-mem", frozenset({"1-0"}), b"")]
    for pods in ([owner, false], [false, owner]):
        slots = Slots()
        slots.derive(pods, held, {"zpu-mem": ("zpu", False)})
        assert slots.assign("zpu", cards("GPU-c", "GPU-b")) == {0: 0, 1: 1}


def test_a_pod_of_a_file_is_known_by_its_mirror() -> None:
    slots = Slots()
    slots.derive(
        [holder("mirror", "GPU-b", {"kubernetes.io/config.mirror": "hash"})],
        [Allocation("hash", "main", "zpu-mem", frozenset({"7-0"}), b"")],
        {"zpu-mem": ("zpu", False)},
    )
    assert slots.assign("zpu", cards("GPU-b")) == {0: 7}


def holder(uid: str, card: str, annotations: dict[str, str] | None = None) -> NodePod:
    seen = PodSeen(uid, "default", uid, request=(), slices=(Slice("zpu", 0, 1, id=card),))
    return NodePod(seen=seen, parts=(), annotations=annotations or {}, phase="Running", terminating=False)
