"""The status line of one certificate."""

from datetime import UTC, datetime, timedelta

import pytest

from accelshare.install.certificates import secrets, x509

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("days", "good", "words"),
    [
        (1, True, "accelshare-ca, until 2026-04-01 00:00 UTC, 89.0 days left"),
        (61, True, "29.0 days left, to be renewed"),
        (91, False, "accelshare-ca, expired 2026-04-01 00:00 UTC"),
        (-1, False, "accelshare-ca, not valid before 2025-12-31 23:55 UTC"),
    ],
)
def test_each_has_its_line(days: int, good: bool, words: str) -> None:
    pair = x509.authority("accelshare-ca", now=START, life=timedelta(days=90))
    line = secrets.status_line("ca.crt", pair.certificate, START + timedelta(days=days))
    assert (line.good, line.text.startswith("ca.crt: "), words in line.text) == (good, True, True), line.text
