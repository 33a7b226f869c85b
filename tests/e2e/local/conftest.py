"""Fixture: a machine on which no part of the local cluster runs."""

import pytest

from cluster.local import LocalCluster
from tests.e2e.local.machine_state import MachineState, machine_state


@pytest.fixture
def nothing_up(root: None) -> MachineState:
    """What the machine looks like before; a cluster that another test left for the next is ended first."""
    LocalCluster.take_down()
    return machine_state()
