"""Whether eviction could help is exactly whether the node would serve the request without pods, for any cards and any request."""

from hypothesis import given, settings
from hypothesis import strategies as st

from accelshare.ledger.facts import NodeSeen, PodSeen
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.nouns import Ask, Assignment, Card, LimitNeed, Request, Slice
from accelshare.ledger.placing import Fit, fit
from accelshare.ledger.preemption import victims
from accelshare.ledger.refusals import Refusal

cards = st.builds(
    Card,
    kind=st.just("gpu"),
    index=st.just(0),
    size=st.sampled_from([0, 4, 8, 16]),
    healthy=st.sampled_from([True, True, True, False]),
    limited=st.booleans(),
    min_units=st.sampled_from([0, 0, 2, 5]),
)
slices = st.builds(Ask, kind=st.just("gpu"), cards=st.integers(1, 2), share=st.integers(1, 9), limits=st.sampled_from(LimitNeed))
wholes = st.builds(Ask, kind=st.just("gpu"), cards=st.integers(1, 2), whole=st.just(True))
requests = st.one_of(st.tuples(slices), st.tuples(wholes), st.tuples(slices, wholes))
# (index of the card or none: it is not known, units or 0: the whole card, priority)
pods = st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 3)), st.integers(0, 8), st.integers(0, 2)), max_size=5)


def cluster(given_cards: list[Card], given_pods: list[tuple[int | None, int, int]]) -> Ledger:
    ledger = Ledger()
    numbered = tuple(
        Card("gpu", index, card.size, card.healthy, f"g{index}", card.limited, card.min_units)
        for index, card in enumerate(given_cards)
    )
    ledger.apply(NodeSeen("n1", 1, numbered))
    for number, (index, units, priority) in enumerate(given_pods):
        there = ledger.node("n1")
        assert there is not None
        slices: tuple[Slice, ...] = ()
        if index is not None:
            free = [card for card in there.cards["gpu"] if card.card.index == index and (card.empty if not units else True)]
            if not free or units > free[0].free_units:
                continue  # facts that oversell a card are another matter
            slices = (Slice("gpu", index, units, whole=not units, id=f"g{index}"),)
        ask = Ask("gpu", share=units) if units else Ask("gpu", whole=True)
        ledger.apply(PodSeen(f"u{number}", "default", f"p{number}", (ask,), 2 + number, "n1", slices, priority=priority))
    return ledger


@settings(max_examples=1000)
@given(st.lists(cards, min_size=1, max_size=4), pods, requests)
def test_eviction_could_help_exactly_where_the_empty_node_serves(
    given_cards: list[Card], given_pods: list[tuple[int | None, int, int]], request: Request
) -> None:
    ledger = cluster(given_cards, given_pods)
    answer, node = ledger.offer("n1", request), ledger.node("n1")
    assert node is not None
    if isinstance(answer, Refusal):
        assert answer.reason.eviction_could_help == isinstance(fit(node.without(node.pods), request, ledger.policy), Fit)
    ledger.ranking(request)
    assert ledger.check() == []


@settings(max_examples=1000)
@given(st.lists(cards, min_size=1, max_size=4), pods, requests, st.integers(0, 3), st.data())
def test_no_pod_is_evicted_in_vain(
    given_cards: list[Card], given_pods: list[tuple[int | None, int, int]], request: Request, priority: int, data: st.DataObject
) -> None:
    """After the evictions the node serves the request, with limits where they are required and above every minimum."""
    ledger = cluster(given_cards, given_pods)
    node = ledger.node("n1")
    assert node is not None
    assert node.fact is not None
    lower = [uid for uid in node.pods if (pod := ledger.pod(uid)) is not None and pod.seen.priority < priority]
    proposed = data.draw(st.lists(st.sampled_from(lower), unique=True)) if lower else []
    before = ledger.offer("n1", request)
    chosen = victims(ledger, "n1", request, priority=priority, proposed=proposed)
    if chosen is None:
        return
    if isinstance(before, Refusal):
        assert before.reason.eviction_could_help or not chosen
    after = fit(node.without(chosen), request, ledger.policy)
    assert isinstance(after, Fit)
    by_index = {card.index: card for card in node.fact.cards}
    required = any(ask.limits is LimitNeed.REQUIRED for ask in request)
    for slice_ in after.assignment.slices:
        if not slice_.whole:
            assert by_index[slice_.index].limited or not required
            assert slice_.units >= by_index[slice_.index].min_units


@settings(max_examples=1000)
@given(st.lists(cards, min_size=1, max_size=4), requests)
def test_an_empty_node_serves_whatever_any_choice_of_cards_would(given_cards: list[Card], request: Request) -> None:
    """Whole cards and slices of one pod compete for cards: if any way to share them out exists, it is found."""
    ledger = cluster(given_cards, [])
    node = ledger.node("n1")
    assert node is not None
    assert node.fact is not None
    healthy = [card for card in node.fact.cards if card.healthy]
    needed = next((ask for ask in request if not ask.whole), None)
    fitting = [
        card
        for card in healthy
        if needed is not None
        and card.size >= needed.share >= card.min_units
        and (card.limited or needed.limits is not LimitNeed.REQUIRED)
    ]
    whole_count = sum(ask.cards for ask in request if ask.whole)
    slice_count = needed.cards if needed is not None else 0
    possible = len(fitting) >= slice_count and len(healthy) >= whole_count + slice_count
    assert isinstance(ledger.offer("n1", request), Assignment) == possible
