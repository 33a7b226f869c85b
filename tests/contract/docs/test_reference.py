"""The commands of the reference pages on a real API server."""

import pytest

from tests.contract.docs.machine import Machine
from tests.contract.docs.page_runner import PageRunner
from tests.contract.docs.pages import block, commands
from tests.e2e.scheduling_cluster import SchedulingCluster

pytestmark = pytest.mark.real
AGENTS = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: accelshare-agent, namespace: kube-system}
spec:
  selector: {matchLabels: {accelshare.io/agent: "true"}}
  template:
    metadata: {labels: {accelshare.io/agent: "true"}}
    spec: {containers: [{name: agent, image: example.com/none}]}
"""


async def test_cli(scheduling_cluster: SchedulingCluster, throwaway_machine: Machine) -> None:
    page = "docs/reference/cli.md"
    for name in ("worker-0", "worker-1"):
        await scheduling_cluster.node(
            name, {"aliyun.com/gpu-mem": 16}, inventory={"nvidia": {"cards": [{"index": 0, "size": 16}]}}
        )
    scheduling_cluster.plane.kubectl("create", "--filename=-", stdin=AGENTS)
    throwaway_machine.write("my-vendor.toml", block("docs/reference/profiles.md", "toml", 1))
    page_runner = PageRunner(throwaway_machine)
    page_commands = commands(page)
    remove = next(number for number, command in enumerate(page_commands) if command.words == "accelshare node-labels remove")
    await page_runner.run(page_commands[:remove])
    assert await labelled(scheduling_cluster) == ["worker-0", "worker-1"]
    await page_runner.run(page_commands[remove:])
    assert await labelled(scheduling_cluster) == []
    for name in ("worker-0", "worker-1"):
        node = await scheduling_cluster.read(f"/api/v1/nodes/{name}")
        assert "accelshare.io/inventory" not in node["metadata"].get("annotations", {})
        assert "aliyun.com/gpu-mem" not in node["status"]["capacity"]
    assert scheduling_cluster.plane.kubectl("get", "daemonsets", "--namespace=kube-system", "--output=name") == ""


async def labelled(scheduling_cluster: SchedulingCluster) -> list[str]:
    nodes = (await scheduling_cluster.read("/api/v1/nodes"))["items"]
    return [node["metadata"]["name"] for node in nodes if node["metadata"]["labels"].get("gpushare") == "true"]
