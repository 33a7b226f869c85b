"""Whatever records say of cards that a node has lost: the order does not matter, and no more than one card for each is freed."""

from dataclasses import dataclass, replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from accelshare.ledger.facts import Fact, NodeSeen, PodGone, PodSeen
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.node_ledger import NodeLedger
from accelshare.ledger.nouns import Ask, Assignment, Card, Request, Slice

KIND = "gpu"
INDEXES = range(6)
IDS = ("A", "B", "X", "Y")


@st.composite
def nodes(draw: st.DrawFn) -> NodeSeen:
    """A node that has lost some of its cards; the last one is there."""
    here = sorted(draw(st.sets(st.sampled_from(INDEXES[:-1]), max_size=4)) | {INDEXES[-1]})
    return NodeSeen("n1", 1, tuple(Card(KIND, index, draw(st.sampled_from([4, 8])), id=f"card-{index}") for index in here))


@st.composite
def records(draw: st.DrawFn, seen: NodeSeen, whole: bool, cards: int) -> tuple[Slice, ...]:
    """Any cards: those of the node, lost ones, and others that no node can have lost."""
    units = 0 if whole else draw(st.integers(1, 8))
    known = [(card.index, card.id) for card in seen.cards]
    anywhere = st.tuples(st.integers(0, 7), st.sampled_from(["", *IDS]))
    named = draw(st.lists(st.one_of(st.sampled_from(known), anywhere), min_size=cards, max_size=cards))
    return tuple(Slice(KIND, index, units, whole, id) for index, id in named)


@st.composite
def pods(draw: st.DrawFn, seen: NodeSeen) -> list[PodSeen]:
    drawn = []
    for number in range(draw(st.integers(1, 6))):
        whole, cards = draw(st.booleans()), draw(st.integers(1, 2))
        slices = draw(records(seen, whole, cards))
        request: Request = (Ask(KIND, cards, whole=True) if whole else Ask(KIND, cards, slices[0].units),)
        drawn.append(PodSeen(f"u{number}", "default", f"p{number}", request, 2, node="n1", slices=slices))
    return drawn


def sums(ledger: Ledger) -> object:
    node = node_of(ledger)
    on_cards = {(card.card.kind, card.card.index, card.card.id): (card.holders, card.wholes) for card in node.all_cards()}
    return on_cards, node.unplaced


def node_of(ledger: Ledger) -> NodeLedger:
    node = ledger.node("n1")
    assert node is not None
    return node


@given(data=st.data(), shuffling=st.randoms(use_true_random=False))
def test_records_of_lost_cards_count_the_same_in_any_order(data: st.DataObject, shuffling: Random) -> None:
    """Also if other pods came and went in between, and if the cards were lost only later."""
    seen = data.draw(nodes())
    everybody = data.draw(pods(seen))
    left = data.draw(st.sets(st.sampled_from([pod.uid for pod in everybody]), max_size=3))
    straight = Ledger()
    straight.apply(seen)
    for pod in everybody:
        if pod.uid not in left:
            straight.apply(pod)

    ledger = Ledger()
    if data.draw(st.booleans()):
        whole_node = tuple(Card(KIND, index, 8, id=f"card-{index}") for index in INDEXES)
        ledger.apply(replace(seen, version=0, cards=whole_node))
    facts: list[Fact] = [seen, *everybody]
    shuffling.shuffle(facts)
    for fact in facts:
        ledger.apply(fact)
    for uid in sorted(left):
        ledger.apply(PodGone(uid))
    assert sums(ledger) == sums(straight)
    without = node_of(ledger).without(set())
    again = Ledger()
    again._nodes["n1"] = without  # what preemption would see
    assert sums(again) == sums(straight)


@dataclass(frozen=True)
class FullNode:
    """A node whose cards are all full, and the pods on them."""

    seen: NodeSeen
    pods: list[PodSeen]


@st.composite
def full_nodes(draw: st.DrawFn) -> FullNode:
    seen = draw(nodes())
    on_it: list[PodSeen] = []
    for card in seen.cards:
        left = 0 if (whole := draw(st.booleans())) else card.size
        slices = [Slice(KIND, card.index, whole=True, id=card.id)] if whole else []
        while left:
            units = draw(st.integers(1, left))
            slices.append(Slice(KIND, card.index, units, id=card.id))
            left -= units
        for slice_ in slices:
            uid = f"u{len(on_it)}"
            request: Request = (Ask(KIND, 1, slice_.units, slice_.whole),)
            on_it.append(PodSeen(uid, "default", uid, request, 2, node="n1", slices=(slice_,)))
    return FullNode(seen, on_it)


@given(full=full_nodes(), data=st.data())
def test_forged_records_free_at_most_one_card_for_each_lost_one(full: FullNode, data: st.DataObject) -> None:
    """And they free nothing at all if more is claimed of each lost card than one card can have."""
    largest = max(card.size for card in full.seen.cards)
    gaps = sorted(set(INDEXES) - {card.index for card in full.seen.cards})
    ledger = Ledger()
    ledger.apply(full.seen)
    claims: dict[int, list[Slice]] = {}
    for pod in full.pods:
        fact = pod
        if data.draw(st.booleans()) and gaps:
            forged = replace(pod.slices[0], index=data.draw(st.sampled_from(gaps)), id=data.draw(st.sampled_from(IDS)))
            claims.setdefault(forged.index, []).append(forged)
            fact = replace(pod, slices=(forged,))
        ledger.apply(fact)

    freed = 0
    while isinstance(offer := ledger.offer("n1", (Ask(KIND, share=1),)), Assignment):
        freed += 1
        ledger.apply(PodSeen(f"new{freed}", "default", f"new{freed}", (Ask(KIND, share=1),), 3))
        ledger.hold(f"new{freed}", offer)
    believable = [
        named
        for named in claims.values()
        if len({slice_.id for slice_ in named}) == 1
        and (len(named) == 1 or not any(slice_.whole for slice_ in named))
        and sum(slice_.units for slice_ in named) <= largest
    ]
    assert freed <= len(believable) * largest <= len(gaps) * largest
    assert ledger.check() == []
