"""An agent writes only annotations and status, only on its own node and on the pods there.

The chart's own rights and admission policy, on a real API server, with tokens as kubelet would give them.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from accelshare.kube import config
from accelshare.kube.client import Client
from accelshare.kube.errors import KubeError
from accelshare.kube.patches import annotate_node, annotate_pod, check_eviction, delete_pod, set_capacity
from tests.contract.chart.rendered_objects import setting
from tests.e2e.install.accounts import AGENT, agent_of, in_force, refusal, rights, with_token
from tests.e2e.scheduling_cluster import SchedulingCluster, annotations

pytestmark = pytest.mark.real


@pytest.fixture
async def agent(scheduling_cluster: SchedulingCluster) -> AsyncIterator[Path]:
    """A kubeconfig with the token of an agent's pod on n1. The policy is in force: it refuses what RBAC would allow."""
    evicting = setting(agent__usage={"enabled": True, "evictOverUseAfterSeconds": 600})
    async with in_force(scheduling_cluster, rights(*evicting)):
        for name in ("n1", "n2"):
            await scheduling_cluster.node(name, {})
            await scheduling_cluster.pod(f"on-{name}", {}, nodeName=name)
        mine = await agent_of(scheduling_cluster, "n1")
        elsewhere = ("annotate", "node", "n2", "x=y", "--dry-run=server")
        await scheduling_cluster.until(
            lambda: refusal(scheduling_cluster, mine, *elsewhere), "the agents' policy is in force too"
        )
        yield mine


async def test_an_agent_writes_on_its_node_and_its_pods(scheduling_cluster: SchedulingCluster, agent: Path) -> None:
    """By the very calls that the agent makes. It may delete a pod whose container was made without its cards."""
    pod = await scheduling_cluster.one("on-n1")
    async with Client(config.load(agent), user_agent="test") as client:
        await annotate_node(client, "n1", {"accelshare.io/inventory": "{}"})
        await set_capacity(client, "n1", {"aliyun.com/gpu-count": 4})
        await annotate_pod(client, namespace="default", name="on-n1", uid=pod["metadata"]["uid"], annotations={"a": "b"})
    node = await scheduling_cluster.read("/api/v1/nodes/n1")
    assert node["metadata"]["annotations"]["accelshare.io/inventory"] == "{}"
    assert node["status"]["capacity"]["aliyun.com/gpu-count"] == "4"
    assert annotations(await scheduling_cluster.one("on-n1"))["a"] == "b"
    async with Client(config.load(agent), user_agent="test") as client:
        await delete_pod(client, namespace="default", name="on-n1", uid=pod["metadata"]["uid"])


REFUSED = {
    "another node": (("annotate", "node", "n2", "x=y"), "the agent of node n1 may not write on node n2"),
    "its node's labels": (("label", "node", "n1", "x=y"), "an agent may not change labels"),
    "its node's spec": (("patch", "node", "n1", '--patch={"spec":{"unschedulable":true}}'), "may not change the spec"),
    "another pod's life": (("delete", "pod", "on-n2", "--wait=false"), "may not write on pod on-n2, which is not on it"),
    "a node's life": (("delete", "node", "n2", "--wait=false"), "cannot delete resource"),
    "a Secret": (("get", "secrets", "--namespace=kube-system"), "cannot list resource"),
    "one pod": (("get", "pod", "on-n1"), "cannot get resource"),  # it lists and watches them
}
IMAGE: dict[str, object] = {"spec": {"containers": [{"name": "main", "image": "example.com/evil"}]}}
# kubectl would get the pod before it changes it.
REFUSED_CHANGES: dict[str, tuple[str, dict[str, object], str]] = {
    "of a pod elsewhere": ("on-n2", {"metadata": {"annotations": {"x": "y"}}}, "may not write on pod on-n2, which is not on it"),
    "of labels": ("on-n1", {"metadata": {"labels": {"x": "y"}}}, "an agent may not change labels"),
    "of an image": ("on-n1", IMAGE, "may not change the spec"),
}


async def test_an_agent_is_refused_everything_else(scheduling_cluster: SchedulingCluster, agent: Path) -> None:
    for what, (arguments, words) in REFUSED.items():
        assert words in refusal(scheduling_cluster, agent, *arguments), what


async def test_an_agent_is_refused_other_changes_of_pods_and_nodes(agent: Path) -> None:
    kind = "application/strategic-merge-patch+json"
    async with Client(config.load(agent), user_agent="test") as client:
        for name, change, words in REFUSED_CHANGES.values():
            path = f"/api/v1/namespaces/default/pods/{name}"
            with pytest.raises(KubeError, match=words):
                await client.request("PATCH", path, body=json.dumps(change).encode(), content_type=kind)
        with pytest.raises(KubeError, match="the agent of node n1 may not write on node n2"):
            await set_capacity(client, "n2", {"aliyun.com/gpu-count": 4})


async def test_an_agent_may_ask_for_an_eviction_and_evict_nothing(scheduling_cluster: SchedulingCluster, agent: Path) -> None:
    """A policy cannot see the node of an evicted pod. So an agent asks, which changes nothing, and deletes the pod itself."""
    for name in ("on-n1", "on-n2"):
        pod = await scheduling_cluster.one(name)
        async with Client(config.load(agent), user_agent="test") as client:
            await check_eviction(client, namespace="default", name=name, uid=pod["metadata"]["uid"])
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
        path = f"/api/v1/namespaces/default/pods/{name}/eviction"
        said = refusal(scheduling_cluster, agent, "create", f"--raw={path}", "--filename=-", stdin=json.dumps(eviction))
        assert "evicts nothing" in said
        assert "deletionTimestamp" not in (await scheduling_cluster.one(name))["metadata"]


async def test_a_token_that_is_bound_to_no_pod_is_refused_everywhere(scheduling_cluster: SchedulingCluster, agent: Path) -> None:
    """A token that somebody made of the account by hand says of no node that it is the agent's."""
    loose = with_token(scheduling_cluster, AGENT)
    for node in ("n1", "n2"):
        assert "bound to no node" in refusal(scheduling_cluster, loose, "annotate", "node", node, "x=y")


async def test_others_are_left_alone(scheduling_cluster: SchedulingCluster, agent: Path) -> None:
    scheduling_cluster.plane.kubectl("label", "node", "n2", "x=y")
    assert (await scheduling_cluster.read("/api/v1/nodes/n2"))["metadata"]["labels"]["x"] == "y"
