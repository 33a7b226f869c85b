"""The plain manifests, applied and removed with kubectl alone, leave nothing."""

import pytest

from deploy.render import MANIFESTS
from tests.e2e.install.cluster_admin import ClusterAdmin

pytestmark = pytest.mark.real


async def test_apply_and_delete(admin: ClusterAdmin) -> None:
    """Twice changes nothing; the end is as docs/how-to/install.md says it."""
    here = MANIFESTS / "nvidia"
    await admin.apply(here)
    assert set(admin.certificates()) == {"accelshare-ca", "accelshare-extender-tls", "accelshare-scheduler-tls"}
    assert "deployment.apps/gpushare-schd-extender" in admin.ours()
    await admin.apply(here)
    await admin.take_back(here)
    assert [run.container for run in admin.hook_runner.runs if run.code != 0] == []
    await admin.scheduling_cluster.until(lambda: admin.ours() == [], "nothing of ours is left")
