"""Which cards a node has lost, judged by the records of its pods.

Belongs here: whether such records are believed. Never: counting pods on cards (node_ledger.py).

A pod on a lost card takes nothing from the node's other cards, so a forged record of a lost card would free a real one. Before
Kubernetes 1.30 users can forge records. Therefore records are believed only as far as they can be true together: at a missing
index there was one card, with one id, and it had no more pods than one card can have. The judgement depends on the set of all
records and not on the order in which they came.
"""

from collections.abc import Iterable, Mapping, Sequence

from accelshare.ledger.nouns import Card, Slice


def names_lost_card(cards: Sequence[Card], slice_: Slice) -> bool:
    """Whether the node may have lost the card of this slice, which none of these cards of its kind is.

    A node has lost a card if an index below its highest is missing. A node that has all of them has lost none.
    """
    indexes = [card.index for card in cards]
    return bool(slice_.id) and slice_.index not in indexes and slice_.index < max(indexes, default=-1)


def lost_cards(cards: Mapping[str, Sequence[Card]], slices: Iterable[Slice]) -> list[Card]:
    """The lost cards that all these slices together are believed to name. `cards`: what the node has, by kind."""
    by_index: dict[tuple[str, int], list[Slice]] = {}
    indexes: dict[tuple[str, str], set[int]] = {}
    for slice_ in slices:
        by_index.setdefault((slice_.kind, slice_.index), []).append(slice_)
        indexes.setdefault((slice_.kind, slice_.id), set()).add(slice_.index)
    return [
        Card(kind, index, size=0, healthy=False, id=named[0].id)
        for (kind, index), named in by_index.items()
        if len(indexes[kind, named[0].id]) == 1 and _fit_on_one(named, max(card.size for card in cards[kind]))
    ]


def _fit_on_one(slices: Sequence[Slice], size: int) -> bool:
    """Whether these slices may all be on one card of this size."""
    if len({slice_.id for slice_ in slices}) > 1:
        return False
    if any(slice_.whole for slice_ in slices):
        return len(slices) == 1
    return sum(slice_.units for slice_ in slices) <= size
