"""Whole cards of a pod, distributed over its containers as kubelet distributes devices."""

from dataclasses import replace

from hypothesis import given as for_all
from hypothesis import strategies as st

from accelshare.agent.container_cards import whole_cards
from accelshare.agent.discovery.device_inventory import InventoryCard, VendorCards
from accelshare.ledger.facts import PodSeen
from accelshare.ledger.nouns import Ask, Slice
from accelshare.vendors.catalog import load
from accelshare.vendors.drivers.driver import HostCard
from accelshare.wire.node_pods import ContainerNeeds, NodePod
from accelshare.wire.pods import InitAmount, peak

PROFILE = load()["enflame"]
HERE = VendorCards(PROFILE, "1", 1024, {index: InventoryCard(HostCard(index, f"id{index}", 16384), 16) for index in range(64)})


def part(name: str, amount: int, *, ends_first: bool = False) -> ContainerNeeds:
    return ContainerNeeds(name, (("enflame", True, amount),), ends_first=ends_first)


def pod(cards: list[int], *parts: ContainerNeeds) -> NodePod:
    slices = tuple(Slice("enflame", card, 0, True, f"id{card}") for card in cards)
    seen = PodSeen("u", "default", "p", request=(Ask("enflame", len(cards), whole=True),), slices=slices)
    return NodePod(seen=seen, parts=parts, annotations={}, phase="Pending", terminating=False)


def test_containers_that_run_side_by_side_have_different_cards() -> None:
    both = pod([3, 5], part("a", 1), part("b", 1))
    assert (whole_cards(both, HERE, "a"), whole_cards(both, HERE, "b")) == ([3], [5])


def test_an_ordinary_init_container_uses_cards_of_later_containers() -> None:
    inits = part("init", 2, ends_first=True), part("sidecar", 1), part("second", 2, ends_first=True)
    many = pod([0, 1, 2], *inits, part("app", 2))
    assert whole_cards(many, HERE, "init") == [0, 1]
    assert whole_cards(many, HERE, "sidecar") == [0]
    assert whole_cards(many, HERE, "second") == [1, 2]
    assert whole_cards(many, HERE, "app") == [1, 2]


def test_cards_that_containers_are_known_to_have_stay_theirs() -> None:
    """kubelet may have distributed them in another order."""
    both = pod([3, 5], part("a", 1), part("b", 1))
    assert whole_cards(both, HERE, "b", {"a": [5]}) == [3]
    assert whole_cards(both, HERE, "a", {"b": [3]}) == [5]


def test_a_record_with_too_few_cards_leaves_containers_without() -> None:
    both = pod([3], part("a", 1), part("b", 1))
    assert whole_cards(both, HERE, "b") == []


@for_all(st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=4), st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_the_peak_of_a_pod_is_enough_for_all_of_its_containers(inits: list[tuple[int, bool]], apps: list[int]) -> None:
    cards = list(range(peak(apps, [InitAmount(amount, stays) for amount, stays in inits])))
    parts = [part(f"i{n}", amount, ends_first=not stays) for n, (amount, stays) in enumerate(inits)]
    parts += [part(f"a{n}", amount) for n, amount in enumerate(apps)]
    one = replace(pod(cards), parts=tuple(parts))
    by_container = {each.container: whole_cards(one, HERE, each.container) for each in parts}
    assert {name: len(set(mine)) for name, mine in by_container.items()} == {each.container: each.wants[0][2] for each in parts}
    for number, first in enumerate(parts):
        for second in parts[number + 1 :]:
            if not first.ends_first:
                assert set(by_container[first.container]).isdisjoint(by_container[second.container]), by_container
