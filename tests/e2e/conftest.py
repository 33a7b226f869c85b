"""Fixtures: a scheduling cluster in the run's control plane, or the machine's one local cluster."""

import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from cluster.control_plane import ControlPlane
from cluster.local import LocalCluster
from tests.e2e.scheduling_cluster import SchedulingCluster, open_scheduling_cluster


@pytest.fixture(scope="session")
def machine() -> None:
    """Used, directly or indirectly, by tests of what a machine has once: kubelet, container runtimes, mounts, devices.

    Such tests run on one worker (tests/workers.py).
    """


@pytest.fixture
async def scheduling_cluster(
    control_plane: ControlPlane, tmp_path: Path, extender_flags: list[str]
) -> AsyncIterator[SchedulingCluster]:
    """An empty cluster: no extender, no scheduler, no node yet."""
    async with open_scheduling_cluster(control_plane, tmp_path, extender_flags) as opened:
        yield opened


@pytest.fixture
async def served(scheduling_cluster: SchedulingCluster) -> SchedulingCluster:
    """A cluster whose kube-scheduler calls our extender."""
    scheduling_cluster.begin_extender()
    scheduling_cluster.start_scheduler()  # which asks the extender only when there is a pod
    await scheduling_cluster.until(scheduling_cluster.extender_is_ready, "the extender is ready")
    return scheduling_cluster


@pytest.fixture(scope="session")
def cluster_was_up(machine: None) -> bool:
    """Whether somebody else's local cluster is used, which stays as it was."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("a real kubelet needs root on Linux")
    return all(LocalCluster.parts().values())


@pytest.fixture(scope="session")
def root(cluster_was_up: bool) -> Iterator[None]:
    """The right to run a kubelet. A cluster that the run started is ended with it; one that was up before stays."""
    yield
    if not cluster_was_up:
        LocalCluster.take_down()


@pytest.fixture
def local(root: None) -> LocalCluster:
    """A kubeadm cluster on this machine, in a mount namespace of its own: the one that is up, or a new one."""
    return LocalCluster.up(fake_cards=True)
