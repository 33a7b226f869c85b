"""Each test here starts container runtimes, which a look for what is left of the local cluster would take for its own."""

import pytest


@pytest.fixture(autouse=True)
def _alone(machine: None) -> None:
    """Also for tests that start theirs without a fixture."""
