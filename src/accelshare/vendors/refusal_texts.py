"""Default refusal texts, for profiles that set none of their own.

Belongs here: the texts and what a profile puts into them. Never: numbers that change from pod to pod, because
kube-scheduler counts equal texts together; a final full stop, because kube-scheduler adds one.
"""

from collections.abc import Mapping
from typing import Final

from accelshare.ledger.refusals import Reason
from accelshare.vendors.profile import Profile

# With this annotation a pod of any vendor requests several cards.
CARD_COUNT_ANNOTATION: Final = "accelshare.io/card-count"
# With this one it requires or prefers cards whose memory limits are enforced.
ENFORCEMENT_ANNOTATION: Final = "accelshare.io/enforcement"

DEFAULT_TEXTS: Final[Mapping[Reason, str]] = {
    Reason.NO_CARD_HAS_ROOM: "no {noun} has enough free memory",
    Reason.TOO_FEW_CARDS_HAVE_ROOM: "too few {noun}s have enough free memory",
    Reason.NO_CARD_IS_EMPTY: "no {noun} is empty",
    Reason.TOO_FEW_CARDS_ARE_EMPTY: "too few {noun}s are empty",
    Reason.CARDS_HAVE_MOST_SLICES: "{noun}s with enough free memory have as many slices as they can have",
    Reason.LARGER_THAN_ANY_CARD: "no {noun} is large enough",
    Reason.TOO_FEW_CARDS: "node has too few {noun}s",
    Reason.LIMITS_NOT_ENFORCED: "node has too few {noun}s with enforced memory limits",
    Reason.SMALLER_THAN_MINIMUM: "slice is smaller than the minimum of the node's {noun}s",
    Reason.DELIVERY_PAUSED: "node cannot allocate {noun}s at the moment",
    Reason.CARDS_UNHEALTHY: "{noun}s that could serve are unhealthy",
    Reason.NO_CARDS: "node has no {noun} to share",
    Reason.UNKNOWN_NODE: "node is not known to accelshare yet",
    Reason.CARD_COUNT_UNREADABLE: "{count_key} must be {card_counts}",
    Reason.CARD_COUNT_LEAVES_REMAINDER: "{memory} does not divide equally by the number of requested cards",
    Reason.TOO_MANY_WHOLE_CARDS: "{most_whole}",
    Reason.AMOUNT_UNREADABLE: "amount of {either} is not a whole number that a card could have",
    Reason.LARGER_THAN_ANY_SHAPE: "{memory} is more than the largest slice of one {noun}",
    Reason.WHOLE_AND_SLICE_IN_ONE_CONTAINER: "one container may request {memory} or {whole_resource}, not both",
    Reason.ENFORCEMENT_UNREADABLE: "annotation {enforcement_key} must be required or preferred",
}


def default_texts(profile: Profile) -> dict[Reason, str]:
    """A text for every reason, with this profile's names and limits."""
    noun, memory, whole, request = profile.noun, profile.resources.memory, profile.resources.whole, profile.request
    words = {
        "noun": noun,
        # A pod can use the annotation above wrongly even if the vendor has only one of the two resources.
        "memory": memory or f"{noun} memory",
        "whole_resource": whole or f"whole {noun}s",
        "either": " or ".join(profile.resources.requestable),
        "count_key": count_key(profile),
        "card_counts": card_counts(profile),
        "enforcement_key": ENFORCEMENT_ANNOTATION,
        "most_whole": _most(request.max_whole_cards, whole or f"whole {noun}"),
    }
    return {reason: text.format_map(words) for reason, text in DEFAULT_TEXTS.items()}


def count_key(profile: Profile) -> str:
    """The label or annotation by which the vendor's users request several cards."""
    if profile.request.cards_label is not None:
        return f"label {profile.request.cards_label}"
    return f"annotation {profile.request.cards_annotation or CARD_COUNT_ANNOTATION}"


def card_counts(profile: Profile) -> str:
    """How many cards a pod may request slices of, as the end of the sentence "it must be …"."""
    return "1" if profile.request.max_cards == 1 else f"a whole number from 1 to {profile.request.max_cards}"


def _most(number: int | None, resource: str) -> str:
    if number is None:
        return f"too many {resource} requested"
    return f"at most {'one' if number == 1 else number} {resource} may be requested"
