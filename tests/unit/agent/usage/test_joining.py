"""Which process counts for which pod's part of which card."""

from dataclasses import replace

from accelshare.agent.usage.joining import join
from accelshare.ledger.nouns import Slice
from accelshare.vendors.drivers.driver import CardProcess
from accelshare.wire.usage import MOST_LISTED, CardUse, OtherProcess, PodUse
from tests.unit.agent.usage.builders import GIB, KIND, cards, pod, uid


def process(pid: int, gib: int | None, utilisation: float | None = 0.0) -> CardProcess:
    return CardProcess(pid, None if gib is None else gib * GIB, utilisation)


def numbers(uses: list[PodUse]) -> dict[tuple[str, int], tuple[int | None, float | None]]:
    return {(use.name, use.card): (use.used_bytes and use.used_bytes // GIB, use.utilisation) for use in uses}


def test_each_pod_has_the_sum_of_its_own_processes() -> None:
    processes = {"id0": [process(1, 2, 0.25), process(2, 1, 0.5), process(3, 3, 0.125)], "id1": []}
    uids = {1: uid("a"), 2: uid("b"), 3: uid("a")}
    uses, on_cards = join(cards(), processes, uids, [pod("a", 4, 0), pod("b", 8, 0)])
    assert numbers(uses) == {("a", 0): (5, 0.375), ("b", 0): (1, 0.5)}
    assert [use.held_bytes // GIB for use in uses] == [4, 8]
    assert on_cards == [
        CardUse(KIND, 0, 6 * GIB, 0.875, used_by_others_bytes=0),
        CardUse(KIND, 1, 0, 0.0, used_by_others_bytes=0),
    ]


def test_a_pod_with_parts_of_two_cards_has_a_line_for_each() -> None:
    processes = {"id0": [process(1, 2)], "id1": [process(1, 3)]}
    uses, _ = join(cards(), processes, {1: uid("a")}, [pod("a", 4, 0, 1)])
    assert numbers(uses) == {("a", 0): (2, 0.0), ("a", 1): (3, 0.0)}


def test_a_pod_without_processes_uses_nothing() -> None:
    uses, _ = join(cards(), {"id0": [], "id1": []}, {}, [pod("a", 4, 0)])
    assert numbers(uses) == {("a", 0): (0, 0.0)}


def test_a_process_that_holds_nothing_of_the_card_is_another() -> None:
    """A process of the host, of a pod of another card, of a pod without cards, of an ended pod, and of an unknown pod."""
    pods = [pod("a", 4, 0), pod("elsewhere", 4, 1), pod("none", 0), pod("ended", 4, 0, ended=True)]
    uids = {2: uid("elsewhere"), 3: uid("none"), 4: uid("ended"), 5: uid("unknown"), 6: uid("a")}
    processes = {"id0": [process(pid, pid) for pid in range(1, 7)], "id1": []}
    uses, on_cards = join(cards(), processes, uids, pods)
    assert numbers(uses)["a", 0] == (6, 0.0)
    assert on_cards[0].used_by_others_bytes == (1 + 2 + 3 + 4 + 5) * GIB
    assert [(other.pid, other.pod) for other in on_cards[0].others] == [
        (5, ""),
        (4, ""),
        (3, "ml/none"),
        (2, "ml/elsewhere"),
        (1, ""),
    ]


def test_of_many_others_the_largest_are_listed_and_all_are_counted() -> None:
    _, on_cards = join(cards(1), {"id0": [process(pid, 1) for pid in range(50)]}, {}, [])
    assert (len(on_cards[0].others), on_cards[0].used_by_others_bytes) == (MOST_LISTED, 50 * GIB)


def test_a_static_pod_is_known_by_kubelets_uid() -> None:
    static = pod("static", 4, 0, annotations={"kubernetes.io/config.mirror": uid("hash")})
    uses, _ = join(cards(1), {"id0": [process(1, 2)]}, {1: uid("hash")}, [static])
    assert numbers(uses) == {("static", 0): (2, 0.0)}


def test_no_pod_can_take_the_use_of_another_by_an_annotation() -> None:
    liar = pod("liar", 4, 0, annotations={"kubernetes.io/config.mirror": uid("a")})
    uses, _ = join(cards(1), {"id0": [process(1, 2)]}, {1: uid("a")}, [pod("a", 4, 0), liar])
    assert numbers(uses) == {("a", 0): (2, 0.0), ("liar", 0): (0, 0.0)}


def test_a_whole_card_and_all_units_of_a_card_are_its_whole_memory() -> None:
    vendor = cards(2, memory_mib=16900)
    uses, _ = join(vendor, {"id0": [], "id1": []}, {}, [pod("whole", 0, 0, whole=True), pod("all", 16, 1)])
    assert [use.held_bytes for use in uses] == [16900 * 2**20, 16900 * 2**20]


def test_what_is_not_reported_is_not_a_number() -> None:
    uses, on_cards = join(cards(1), {"id0": [process(1, None, None)]}, {1: uid("a")}, [pod("a", 4, 0)])
    assert numbers(uses) == {("a", 0): (None, None)}
    assert (on_cards[0].used_bytes, on_cards[0].used_by_others_bytes) == (None, 0)
    _, on_cards = join(cards(1), {"id0": [process(1, None, None)]}, {}, [])
    assert on_cards[0].others == (OtherProcess(1),)


def test_a_card_that_does_not_tell_has_no_line() -> None:
    uses, on_cards = join(cards(2), {"id1": []}, {}, [pod("a", 4, 0, 1)])
    assert [use.card for use in uses] == [use.card for use in on_cards] == [1]


def test_a_renumbered_card_is_found_by_its_id() -> None:
    known = pod("a", 4, 1)
    moved = replace(known, seen=replace(known.seen, slices=(Slice(KIND, 7, 4, id="id1"),)))
    uses, _ = join(cards(2), {"id0": [], "id1": [process(1, 2)]}, {1: uid("a")}, [moved])
    assert numbers(uses) == {("a", 1): (2, 0.0)}


def test_utilisation_never_exceeds_the_card() -> None:
    uses, _ = join(cards(1), {"id0": [process(1, 1, 0.75), process(2, 1, 0.75)]}, {1: uid("a"), 2: uid("a")}, [pod("a", 4, 0)])
    assert uses[0].utilisation == 1.0
