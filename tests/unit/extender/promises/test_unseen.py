"""Nominations on their way: few at first, and more as they are seen."""

from itertools import count

import pytest

from accelshare.extender.promises.unseen import FIRST_UNSEEN, REMEMBERED_S, UnseenNominations

numbers = count()


@pytest.fixture
def unseen() -> UnseenNominations:
    return UnseenNominations()


def send(unseen: UnseenNominations, most_promises: int = 10_000, *, at: float = 10.0) -> list[str]:
    """Send as many more nominations as may be on their way."""
    sent: list[str] = []
    while unseen.allows_more(most_promises, at):
        sent.append(f"sent{next(numbers)}")
        unseen.sent(sent[-1], at)
    return sent


def test_few_nominations_are_on_their_way_at_first_and_one_more_for_each_that_was_seen(unseen: UnseenNominations) -> None:
    sent = send(unseen)
    assert len(sent) == FIRST_UNSEEN
    unseen.seen(sent[0], 10.1)
    assert len(send(unseen)) == 2
    unseen.forget(sent[1])
    assert len(send(unseen)) == 1


def test_at_most_a_part_of_the_promises_is_on_its_way(unseen: UnseenNominations) -> None:
    for number in range(100):
        unseen.sent(str(number), 10.0)
        unseen.seen(str(number), 10.0)
    assert len(send(unseen, most_promises=80)) == 20
    assert not unseen.allows_more(80, 10.0)
    assert unseen.allows_more(160, 10.0)


def test_after_a_while_with_none_on_its_way_it_begins_with_few_again(unseen: UnseenNominations) -> None:
    for number in range(50):
        unseen.sent(str(number), 10.0)
        unseen.seen(str(number), 10.0)
    unseen.sent("on its way", 10.0)
    assert len(send(unseen, at=10.0 + 2 * REMEMBERED_S)) == FIRST_UNSEEN + 50 - 1
    unseen = UnseenNominations()
    for number in range(50):
        unseen.sent(str(number), 10.0)
        unseen.seen(str(number), 10.0)
    assert len(send(unseen, at=10.1 + REMEMBERED_S)) == FIRST_UNSEEN
