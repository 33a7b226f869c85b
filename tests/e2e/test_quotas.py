"""ResourceQuota and LimitRange on resources of cards: the API server counts and refuses, `inspect --quota` shows it."""

import json
from collections.abc import Mapping

import pytest

from accelshare.kube.errors import Forbidden
from tests.e2e.scheduling_cluster import SchedulingCluster, container
from tests.e2e.test_inspect import accelshare

pytestmark = pytest.mark.real
MEMORY = "aliyun.com/gpu-mem"
QUOTAS, RANGES = "/api/v1/namespaces/default/resourcequotas", "/api/v1/namespaces/default/limitranges"


async def counted(cluster: SchedulingCluster, used: str) -> None:
    async def shown() -> bool:
        (quota,) = (await cluster.read(QUOTAS))["items"]
        return bool(quota.get("status", {}).get("used", {}).get(f"requests.{MEMORY}") == used)

    await cluster.until(shown, f"the quota counts {used}")


async def test_a_quota_counts_slices_and_refuses_what_is_beyond_it(served: SchedulingCluster) -> None:
    """The pod's total counts: the API server adds up what its containers request."""
    await served.example_node("nvidia")
    path = f"{QUOTAS}/cards"
    await served.create(QUOTAS, {"metadata": {"name": "cards"}, "spec": {"hard": {f"requests.{MEMORY}": "8"}}})
    try:
        await counted(served, "0")
        await served.until(lambda: quota_allows(served, 9, allowed=False), "admission knows the quota")
        await served.pod("first", {MEMORY: 5})
        with pytest.raises(Forbidden, match="exceeded quota: cards"):
            await served.pod("beyond", {MEMORY: 4})
        await served.bound("first")
        await counted(served, "5")
        code, out, _ = await accelshare(served, "inspect", "--quota")
        assert code == 0
        assert [line.split() for line in out.splitlines()][1:] == [["default", "cards", MEMORY, "5", "8", "3"]]
        await served.delete("/api/v1/namespaces/default/pods/first")
        await counted(served, "0")
        await served.until(lambda: quota_allows(served, 8, allowed=True), "admission knows that the quota is free again")
        await served.pod("beyond", {MEMORY: 8})
        await served.bound("beyond")
    finally:
        await served.delete(path)


async def quota_allows(cluster: SchedulingCluster, units: int, *, allowed: bool) -> bool:
    """Whether the API server's admission, which learns of quotas a moment after others do, allows or refuses such a pod."""
    spec = {"containers": [container("main", {MEMORY: units})]}
    body = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "dry-run"}, "spec": spec}).encode()
    try:
        await cluster.client.request("POST", "/api/v1/namespaces/default/pods", body=body, params={"dryRun": "All"})
    except Forbidden:
        return not allowed
    return allowed


async def test_a_limit_range_bounds_what_one_container_may_request(served: SchedulingCluster) -> None:
    await served.example_node("nvidia")
    bounds = [{"type": "Container", "max": {MEMORY: "4"}}, {"type": "Pod", "max": {MEMORY: "6"}}]
    await served.create(RANGES, {"metadata": {"name": "slices"}, "spec": {"limits": bounds}})
    try:
        await served.until(lambda: refused(served, {MEMORY: 5}), "a slice beyond the maximum is refused")
        await served.pod("within", {MEMORY: 4})
        await served.bound("within")
    finally:
        await served.delete(f"{RANGES}/slices")


async def refused(cluster: SchedulingCluster, limits: Mapping[str, object]) -> bool:
    """The API server's admission learns of a new LimitRange a moment after it was created."""
    try:
        await cluster.pod("too-large", limits)
    except Forbidden as error:
        return f"maximum {MEMORY} usage per" in str(error)
    await cluster.delete("/api/v1/namespaces/default/pods/too-large")
    return False
