"""A node that leaves the cluster during a cleanup, as autoscalers do, does not stop the cleanup of the others."""

import json

from accelshare.install.cluster.node_cleanup import remove_agent_data
from accelshare.install.cluster.node_labels import KEY, apply_labels
from accelshare.kube.client import Client
from accelshare.kube.config import Cluster
from accelshare.testing.api_server import FakeApiServer
from accelshare.wire import inventory


def node(name: str) -> dict[str, object]:
    annotations = {KEY: "sharing=true", inventory.KEY: json.dumps({"acme": {"cards": []}})}
    metadata = {"name": name, "labels": {"sharing": "true"}, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"capacity": {"acme.example/zpu": "1"}}}


def assert_n2_left(lines: list[str], removed: str) -> None:
    assert [line.partition(":")[0] for line in lines] == ["node n1", "node n2", "node n3"]
    assert ["left the cluster" in line for line in lines] == [False, True, False]
    assert all(removed in line for line in (lines[0], lines[2]))


async def test_labels_are_removed_from_nodes_that_stay() -> None:
    async with FakeApiServer() as api, Client(Cluster(api.url), user_agent="tests") as client:
        for name in ("n1", "n2", "n3"):
            await client.request("POST", "/api/v1/nodes", body=json.dumps(node(name)).encode())
        api.faults.answer(404, method="PATCH", path="/nodes/n2$")
        assert_n2_left(await apply_labels(client, {}, ()), "sharing=true")


async def test_agent_data_is_removed_from_nodes_that_stay() -> None:
    async with FakeApiServer() as api, Client(Cluster(api.url), user_agent="tests") as client:
        for name in ("n1", "n2", "n3"):
            await client.request("POST", "/api/v1/nodes", body=json.dumps(node(name)).encode())
        api.faults.answer(404, method="PATCH", path="/nodes/n2/status$")
        lines: list[str] = []
        known = {"acme": ("acme.example/zpu",)}
        await remove_agent_data(client, known, namespace="kube-system", daemon_set=None, wait_s=0, say=lines.append)
        assert_n2_left(lines, "inventory, acme.example/zpu")
