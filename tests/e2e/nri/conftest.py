"""Runs each of these tests alone: they start container runtimes, which the local cluster's cleanup would take for its own."""

import pytest


@pytest.fixture(autouse=True)
def _alone(machine: None) -> None:
    """Also for tests that start a runtime without a fixture."""
