"""Fixtures: a control plane with Kueue and JobSet, and the queues of the page 'Queues and quotas'."""

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import yaml

from cluster.control_plane import ControlPlane
from tests.e2e.queues import controllers
from tests.e2e.queues.queue_cluster import TEAMS, QueueCluster, manifests, pods_that_end
from tests.e2e.scheduling_cluster import open_scheduling_cluster


@pytest.fixture(scope="session")
def queue_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of its own: Kueue's webhooks see every Job and pod."""
    if sys.platform != "linux":
        pytest.skip(f"the real control plane is built for Linux only, this is {sys.platform}")
    (fair_sharing,) = manifests("Borrowing and fair sharing")
    with (
        ControlPlane.start(tmp_path_factory.mktemp("queue-plane"), say=print) as plane,
        controllers.running(plane, controllers.JOBSET),
        controllers.running(plane, controllers.KUEUE, fair_sharing),
    ):
        for team in TEAMS:
            plane.kubectl("create", "namespace", team)
        queues = [*manifests("Queues with Kueue"), *manifests("Preemption gives the cards back")]
        plane.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all(queues))
        yield plane


@pytest.fixture
async def queues(queue_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[QueueCluster]:
    """A cluster with the page's queues, whose kube-scheduler calls our extender."""
    async with open_scheduling_cluster(queue_plane, tmp_path) as cluster, pods_that_end(cluster):
        await cluster.start_extender()
        cluster.start_scheduler()
        opened = QueueCluster(cluster)
        await opened.nodes()
        try:
            yield opened
        finally:
            await opened.clear()
