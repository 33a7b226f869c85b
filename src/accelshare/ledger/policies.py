"""Which of the cards and nodes that could serve a request does serve it: a table of orders.

Belongs here: rows. A policy is two orders, the smallest key wins: over the cards of one node, and over the nodes. Cards
keep their index and nodes their name as the last word, so that the same question always has the same answer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

# (room on the card, share asked) → key; the card's index is appended by the caller.
CardOrder: TypeAlias = Callable[[int, int], int]
# (what stays free on the chosen cards, cards of the node that nobody has touched) → key; the node's name is appended.
NodeOrder: TypeAlias = Callable[[int, int], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Policy:
    name: str
    card: CardOrder
    node: NodeOrder


POLICIES: Final[Mapping[str, Policy]] = {
    policy.name: policy
    for policy in (
        # The tightest card in the whole cluster; among equals the node that keeps fewer cards untouched.
        Policy("binpack", card=lambda room, share: room - share, node=lambda left, untouched: (left, untouched)),
        # The emptiest card; among equals the node with more cards untouched.
        Policy("spread", card=lambda room, share: share - room, node=lambda left, untouched: (-left, -untouched)),
    )
}
DEFAULT: Final = POLICIES["binpack"]
