"""Fixture: an administrator on a scheduling cluster whose hook Jobs are run."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster.errors import ClusterError
from tests.e2e.install.cluster_admin import ClusterAdmin
from tests.e2e.install.hook_runner import run_hooks
from tests.e2e.scheduling_cluster import SchedulingCluster


@pytest.fixture
async def admin(scheduling_cluster: SchedulingCluster, tmp_path: Path) -> AsyncIterator[ClusterAdmin]:
    async with run_hooks(scheduling_cluster, tmp_path) as hook_runner:
        admin = ClusterAdmin(scheduling_cluster, hook_runner)
        await nothing_left(admin)
        for name in ("n1", "n2", "n3"):
            await scheduling_cluster.node(name, {})
        scheduling_cluster.plane.kubectl("label", "node", "n1", "gpushare=true")
        yield admin
        # Whatever a test left: delete.sh takes a release away, and what failed Jobs keep.
        hook_runner.refuses = ()
        done = await admin.script("delete.sh")
        assert done.returncode == 0, done.stderr


async def nothing_left(admin: ClusterAdmin) -> None:
    """Secrets of a test before are deleted with its namespace, which takes the control plane a while."""
    try:
        await admin.scheduling_cluster.until(lambda: admin.ours() == [], "nothing is left of the tests before")
    except ClusterError as error:
        raise ClusterError(f"{error}: {', '.join(admin.ours())}") from error
