"""Refusals in plain words, for profiles whose vendor never had words of its own.

Belongs here: the texts and the words a profile fills them with. Never: numbers that change from pod to pod, because
kube-scheduler counts equal texts together; a final full stop, because kube-scheduler adds one.
"""

from collections.abc import Mapping
from typing import Final

from accelshare.ledger.refusals import Reason

# How any pod may ask for several cards where its vendor has no label for that.
CARD_COUNT_ANNOTATION: Final = "accelshare.io/card-count"

DEFAULT_TEXTS: Final[Mapping[Reason, str]] = {
    Reason.NO_CARD_HAS_ROOM: "no {noun} has enough free memory",
    Reason.TOO_FEW_CARDS_HAVE_ROOM: "too few {noun}s have enough free memory",
    Reason.NO_CARD_IS_EMPTY: "no {noun} is empty",
    Reason.TOO_FEW_CARDS_ARE_EMPTY: "too few {noun}s are empty",
    Reason.LARGER_THAN_ANY_CARD: "no {noun} is large enough",
    Reason.TOO_FEW_CARDS: "node has too few {noun}s",
    Reason.DELIVERY_PAUSED: "node cannot hand out {noun}s at the moment",
    Reason.CARDS_UNHEALTHY: "{noun}s that could serve are unhealthy",
    Reason.NO_CARDS: "node has no {noun} to share",
    Reason.UNKNOWN_NODE: "node is not known to accelshare yet",
    Reason.CARD_COUNT_UNREADABLE: "{count_key} must be a whole number from 1 to {max_cards}",
    Reason.CARD_COUNT_LEAVES_REMAINDER: "{memory} does not divide equally by the number of cards asked",
    Reason.TOO_MANY_WHOLE_CARDS: "{most_whole}",
    Reason.AMOUNT_UNREADABLE: "amount of {either} is not a whole number that a card could have",
    Reason.WHOLE_AND_SLICE_IN_ONE_CONTAINER: "one container may ask for {memory} or {whole_resource}, not for both",
}


def default_texts(
    *, noun: str, memory: str | None, whole: str | None, cards_label: str | None, max_cards: int, max_whole_cards: int | None
) -> dict[Reason, str]:
    """A text for every reason, in this profile's names and settings."""
    words = {
        "noun": noun,
        # A vendor without one of the two resources can still be asked wrongly, through the annotation above.
        "memory": memory or f"{noun} memory",
        "whole_resource": whole or f"whole {noun}s",
        "either": " or ".join(name for name in (memory, whole) if name),
        "count_key": f"label {cards_label}" if cards_label else f"annotation {CARD_COUNT_ANNOTATION}",
        "max_cards": max_cards,
        "most_whole": _most(max_whole_cards, whole or f"whole {noun}"),
    }
    return {reason: text.format_map(words) for reason, text in DEFAULT_TEXTS.items()}


def _most(number: int | None, resource: str) -> str:
    if number is None:
        return f"too many {resource} asked"
    return f"at most {'one' if number == 1 else number} {resource} may be asked"
