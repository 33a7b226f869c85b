"""A ledger whose invariants are checked when the test is over."""

from collections.abc import Iterator

import pytest

from accelshare.ledger.ledger import Ledger


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    ledger = Ledger()
    yield ledger
    assert ledger.check() == []
