"""The plain manifests, with kubectl alone: applied, taken back, and nothing of ours is left."""

import pytest

from deploy.render import MANIFESTS
from tests.e2e.install.operator import Operator

pytestmark = pytest.mark.real


async def test_apply_and_delete(operator: Operator) -> None:
    """Twice changes nothing; the end is as docs/how-to/install.md says it."""
    here = MANIFESTS / "nvidia"
    await operator.apply(here)
    assert set(operator.certificates()) == {"accelshare-ca", "accelshare-extender-tls", "accelshare-scheduler-tls"}
    assert "deployment.apps/gpushare-schd-extender" in operator.ours()
    await operator.apply(here)
    await operator.take_back(here)
    assert [run.container for run in operator.porter.runs if run.code != 0] == []
    await operator.scheduling_cluster.until(lambda: operator.ours() == [], "nothing of ours is left")
