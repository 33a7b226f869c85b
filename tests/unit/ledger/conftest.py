"""Every test that uses the ledger audits it at the end."""

from collections.abc import Iterator

import pytest

from accelshare.ledger.ledger import Ledger


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    node_ledger = Ledger()
    yield node_ledger
    assert node_ledger.check() == []
