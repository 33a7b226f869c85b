"""Default refusal texts: one for every reason, constant, and with the profile's names."""

import pytest
from msgspec import convert

from accelshare.ledger.refusals import Reason
from accelshare.vendors.refusal_texts import DEFAULT_TEXTS
from accelshare.vendors.validation import parse
from accelshare.vendors.value_types import RefusalText
from tests.unit.vendors.builders import NOTHING, SMALLEST, profile, saying

ACME = {
    Reason.NO_CARD_HAS_ROOM: "no ZPU has enough free memory",
    Reason.TOO_FEW_CARDS_HAVE_ROOM: "too few ZPUs have enough free memory",
    Reason.NO_CARD_IS_EMPTY: "no ZPU is empty",
    Reason.TOO_FEW_CARDS_ARE_EMPTY: "too few ZPUs are empty",
    Reason.CARDS_HAVE_MOST_SLICES: "ZPUs with enough free memory have as many slices as they can have",
    Reason.LARGER_THAN_ANY_CARD: "no ZPU is large enough",
    Reason.TOO_FEW_CARDS: "node has too few ZPUs",
    Reason.LIMITS_NOT_ENFORCED: "node has too few ZPUs with enforced memory limits",
    Reason.SMALLER_THAN_MINIMUM: "slice is smaller than the minimum of the node's ZPUs",
    Reason.DELIVERY_PAUSED: "node cannot allocate ZPUs at the moment",
    Reason.CARDS_UNHEALTHY: "ZPUs that could serve are unhealthy",
    Reason.NO_CARDS: "node has no ZPU to share",
    Reason.UNKNOWN_NODE: "node is not known to accelshare yet",
    Reason.CARD_COUNT_UNREADABLE: "label acme.example/cards must be a whole number from 1 to 16",
    Reason.CARD_COUNT_LEAVES_REMAINDER: "acme.example/zpu-mem does not divide equally by the number of requested cards",
    Reason.TOO_MANY_WHOLE_CARDS: "at most 4 acme.example/zpu may be requested",
    Reason.AMOUNT_UNREADABLE: "amount of acme.example/zpu-mem or acme.example/zpu is not a whole number that a card could have",
    Reason.LARGER_THAN_ANY_SHAPE: "acme.example/zpu-mem is more than the largest slice of one ZPU",
    Reason.WHOLE_AND_SLICE_IN_ONE_CONTAINER: "one container may request acme.example/zpu-mem or acme.example/zpu, not both",
    Reason.ENFORCEMENT_UNREADABLE: "annotation accelshare.io/enforcement must be required or preferred",
}


def test_every_reason_has_a_default_text() -> None:
    assert set(DEFAULT_TEXTS) == set(Reason) == set(ACME)


@pytest.mark.parametrize("reason", Reason)
def test_a_default_text_uses_the_profiles_names(reason: Reason) -> None:
    assert profile(texts={}, unverified=[]).text(reason) == ACME[reason]


@pytest.mark.parametrize("reason", Reason)
def test_a_default_text_keeps_the_rules_of_a_profiles_own_text(reason: Reason) -> None:
    """No placeholder left over, no final full stop: also for a vendor that has next to nothing."""
    text = parse(SMALLEST, file="tiny.toml").text(reason)
    assert convert(text, RefusalText) == text


def test_without_a_label_of_its_own_the_general_annotation_is_named() -> None:
    text = parse(saying("request.cards_label", NOTHING), file="acme.toml").text(Reason.CARD_COUNT_UNREADABLE)
    assert text == "annotation accelshare.io/card-count must be a whole number from 1 to 16"


@pytest.mark.parametrize(
    ("most", "text"), [(1, "at most one tiny.example/tpu may be requested"), (NOTHING, "too many tiny.example/tpu requested")]
)
def test_the_limit_of_whole_cards_is_named_if_there_is_one(most: object, text: str) -> None:
    request = {} if most is NOTHING else {"max_whole_cards": most}
    assert parse({**SMALLEST, "request": request}, file="tiny.toml").text(Reason.TOO_MANY_WHOLE_CARDS) == text


def test_a_profiles_text_replaces_only_its_own_default() -> None:
    acme = profile(texts={"no-cards": "Nothing Here"})
    assert acme.text(Reason.NO_CARDS) == "Nothing Here"
    assert acme.text(Reason.NO_CARD_IS_EMPTY) == "no ZPU is empty"


def test_the_vendors_own_annotation_for_several_cards_is_named() -> None:
    data = saying("request.cards_label", NOTHING, saying("request.cards_annotation", "acme.example/count"))
    text = parse(data, file="acme.toml").text(Reason.CARD_COUNT_UNREADABLE)
    assert text == "annotation acme.example/count must be a whole number from 1 to 16"


def test_one_card_is_no_range() -> None:
    data = saying("request.max_cards", 1)
    assert parse(data, file="acme.toml").text(Reason.CARD_COUNT_UNREADABLE) == "label acme.example/cards must be 1"
