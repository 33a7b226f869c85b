"""The plain manifests, with kubectl alone: applied, taken back, and nothing of ours is left."""

import asyncio

import pytest

from deploy.render import MANIFESTS
from tests.e2e.install.operator import Operator
from tests.e2e.install.porter import NAMESPACE

pytestmark = pytest.mark.real


async def test_apply_and_delete(operator: Operator) -> None:
    """As docs/how-to/install.md says it."""
    kubectl = operator.house.plane.kubectl
    here = MANIFESTS / "nvidia"

    async def complete(job: str) -> None:
        wait = ("wait", "--for=condition=complete", f"job/{job}", f"--namespace={NAMESPACE}", "--timeout=110s")
        await asyncio.to_thread(kubectl, *wait)

    kubectl("apply", "--filename", str(here))
    await complete("accelshare-certificates")
    assert set(operator.certificates()) == {"accelshare-ca", "accelshare-extender-tls", "accelshare-scheduler-tls"}
    assert "deployment.apps/gpushare-schd-extender" in operator.ours()
    kubectl("apply", "--filename", str(here))

    kubectl("apply", "--filename", str(here / "uninstall"))
    await complete("accelshare-uninstall")
    kubectl("delete", "--ignore-not-found", "--filename", str(here / "uninstall"), "--filename", str(here))
    assert [run.container for run in operator.porter.runs if run.code != 0] == []
    await operator.house.until(lambda: operator.ours() == [], "nothing of ours is left")
