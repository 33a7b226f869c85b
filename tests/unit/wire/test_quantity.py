"""Kubernetes' quantities, as the API server may send them."""

import pytest

from accelshare.wire.quantity import thousandths, whole_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("4", 4), (4, 4), ("4k", 4000), ("4Ki", 4096), ("4e3", 4000), ("2E3", 2000), ("3E", 3 * 10**18), ("+4", 4), ("4.0", 4)),
        *(("3000m", 3), ("0", 0), ("9223372036854775807", 2**63 - 1)),
        *(
            ("500m", None),
            ("-1", None),
            ("9223372036854775808", None),
            ("1e99", None),
            ("1e99999", None),
            ("", None),
            ("m", None),
        ),
        *(("4x", None), ("４", None), ("1e²", None), ("nan", None), (True, None), (None, None), ("9" * 65, None)),
    ],
)
def test_only_whole_numbers_are_counted(text: object, number: int | None) -> None:
    assert whole_number(text) == number


@pytest.mark.parametrize(
    ("text", "number"), [("1500m", 1500), ("1u", 1), ("1500u", 2), ("0.0001", 1), ("2Ki", 2048000), ("x", 0)]
)
def test_thousandths_are_rounded_up(text: str, number: int) -> None:
    assert thousandths(text) == number
