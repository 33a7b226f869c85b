"""A machine on which nothing of the local cluster is up."""

import pytest

from cluster.local import LocalCluster
from tests.e2e.local.traces import Traces, look


@pytest.fixture
def nothing_up(root: None) -> Traces:
    """What the machine looks like before; a cluster that another test left for the next is ended first."""
    LocalCluster.take_down()
    return look()
