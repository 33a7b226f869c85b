"""The delivery mode: who gives containers their cards, decided from the flag, the runtime's validator and served pods."""

import pytest

from accelshare.agent.delivery_mode import UNDECIDED, CurrentMode, Deliverer, DeliveryMode, decide
from accelshare.runtimes.validator_status import ValidatorState, ValidatorStatus

ON = ValidatorStatus(ValidatorState.ENABLED, "the validator is on")
OFF = ValidatorStatus(ValidatorState.OFF, "the validator is off")
UNKNOWN = ValidatorStatus(ValidatorState.UNKNOWN, "no container runtime has answered")
POD = "default/trains"


@pytest.mark.parametrize(
    ("requested", "validator", "connected", "served", "name", "validated"),
    [
        ("auto", ON, True, [], "nri", True),
        ("auto", ON, True, [POD], "device-plugin+nri", False),
        ("auto", OFF, True, [], "device-plugin+nri", False),
        ("auto", OFF, True, [POD], "device-plugin+nri", False),
        ("auto", UNKNOWN, False, [], "device-plugin", False),
        ("nri", ON, True, [], "nri", True),
        ("nri", ON, True, [POD], "nri", True),
        ("nri", OFF, True, [], "nri", False),
        ("nri", UNKNOWN, False, [], "nri", False),
        ("device-plugin", UNKNOWN, False, [], "device-plugin", False),
        ("device-plugin", ON, True, [], "device-plugin", False),
    ],
)
def test_the_mode_for_each_input(
    requested: str, validator: ValidatorStatus, connected: bool, served: list[str], name: str, validated: bool
) -> None:
    mode = decide(requested, validator=validator, connected=connected, served_pods=served, correctable_kinds=["zpu"])
    assert (mode.name, mode.validated) == (name, validated)
    assert mode.by_nri is (name == "nri")
    assert mode.corrected_kinds == (frozenset({"zpu"}) if name == "device-plugin+nri" else frozenset())


def test_the_reason_names_the_pods_that_keep_device_plugins() -> None:
    mode = decide("auto", validator=ON, connected=True, served_pods=["b/two", "a/one"], correctable_kinds=[])
    assert mode.reason.endswith("a/one, b/two")


@pytest.mark.parametrize("requested", ["auto", "nri"])
@pytest.mark.parametrize("validator", [ON, OFF, UNKNOWN])
def test_the_reason_has_what_is_known_of_the_validator(requested: str, validator: ValidatorStatus) -> None:
    mode = decide(requested, validator=validator, connected=True, served_pods=[], correctable_kinds=[])
    assert validator.why in mode.reason


def test_a_flag_that_decides_alone_is_the_reason() -> None:
    mode = decide("device-plugin", validator=UNKNOWN, connected=False, served_pods=[], correctable_kinds=[])
    assert "--delivery=device-plugin" in mode.reason


def test_the_mode_is_undecided_until_it_is_set() -> None:
    current = CurrentMode()
    assert current.get() is UNDECIDED
    assert not current.get().by_nri
    current.set(DeliveryMode(Deliverer.NRI, "a test"))
    assert current.get().by_nri
