"""A house with a porter and an operator."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.install.operator import Operator
from tests.e2e.install.porter import on_duty
from tests.e2e.scheduling_cluster import SchedulingCluster


@pytest.fixture
async def operator(scheduling_cluster: SchedulingCluster, tmp_path: Path) -> AsyncIterator[Operator]:
    async with on_duty(scheduling_cluster, tmp_path) as porter:
        operator = Operator(scheduling_cluster, porter)
        await nothing_left(operator)
        for name in ("n1", "n2", "n3"):
            await scheduling_cluster.node(name, {})
        scheduling_cluster.plane.kubectl("label", "node", "n1", "gpushare=true")
        yield operator
        # Whatever a test left: delete.sh takes a release away, and what failed Jobs keep.
        porter.refuses = ()
        done = await operator.script("delete.sh")
        assert done.returncode == 0, done.stderr


async def nothing_left(operator: Operator) -> None:
    """Namespaces of tests before take their Secrets along when they are gone, which takes the control plane a while."""
    try:
        await operator.scheduling_cluster.until(lambda: operator.ours() == [], "nothing is left of the tests before")
    except AssertionError as error:
        raise AssertionError(f"{error}: {', '.join(operator.ours())}") from error
