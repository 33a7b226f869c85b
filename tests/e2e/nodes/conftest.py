"""Fixture: accelshare on three real nodes, once for all tests of this folder."""

import shutil
from collections.abc import Iterator

import pytest

from cluster.local import LocalCluster
from tests.e2e.local.machine_state import machine_state
from tests.e2e.nodes.nodes_cluster import NodesCluster


@pytest.fixture(scope="session")
def nodes_cluster(root: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodesCluster]:
    """Installed by the chart. Each test leaves it as it found it; the last one takes the installation away."""
    if shutil.which("apt-get") is None:
        pytest.skip("a base image of Debian's packages needs Debian or Ubuntu")
    LocalCluster.take_down()
    before = machine_state()
    nodes_cluster = NodesCluster(LocalCluster.up(fake_cards=True, nodes=3), tmp_path_factory.mktemp("nodes"))
    nodes_cluster.install()
    yield nodes_cluster
    LocalCluster.take_down()
    assert machine_state() == before  # processes, mounts, links, routes, cgroups, directories and kernel settings of all nodes
