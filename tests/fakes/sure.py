"""Checks the invariants of a driver's listing, for any text that it was read from."""

from accelshare.vendors.drivers.driver import MOST_MEMORY_MIB, Listing


def assert_sure(found: Listing) -> None:
    """Each card has an index and an id of its own, and a size if it reports one; the order is by index.

    Problems are only on unhealthy cards.
    """
    indexes = [card.index for card in found.cards]
    assert indexes == sorted(set(indexes))
    assert len({card.id for card in found.cards}) == len(found.cards)
    assert all(card.id and (0 < card.memory_mib <= MOST_MEMORY_MIB or not card.measured) for card in found.cards)
    assert all(card.healthy == (card.problem == "") for card in found.cards)
