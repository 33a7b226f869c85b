"""Amounts and times of use, as people read them."""

import pytest

from accelshare.report.usage import duration, in_bytes, in_percent


@pytest.mark.parametrize(
    ("amount", "text"), [(None, "-"), (0, "0"), (1, "<1 MiB"), (2**20, "1.0 MiB"), (1536 * 2**20, "1.5 GiB"), (2**41, "2.0 TiB")]
)
def test_bytes(amount: int | None, text: str) -> None:
    assert in_bytes(amount) == text


@pytest.mark.parametrize(("ratio", "text"), [(None, "-"), (0.0, "0%"), (0.254, "25%"), (1.0, "100%")])
def test_utilisation(ratio: float | None, text: str) -> None:
    assert in_percent(ratio) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "-"), (0.0, "0m"), (59.0, "0m"), (61.0, "1m"), (3720.0, "1h2m"), (90061.0, "1d1h")]
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text
