"""Nodes that leave the cluster while labels or traces are taken from them, as autoscalers let them: nothing is left to take."""

import json

from accelshare.install.cluster.node_cleanup import removing
from accelshare.install.cluster.node_labels import applying, marks
from accelshare.kube.client import Client
from accelshare.kube.config import Cluster
from accelshare.testing.api_server import MemoryApiServer
from accelshare.wire import inventory


def node(name: str) -> dict[str, object]:
    said = {marks.KEY: "sharing=true", inventory.KEY: json.dumps({"acme": {"cards": []}})}
    metadata = {"name": name, "labels": {"sharing": "true"}, "annotations": said}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"capacity": {"acme.example/zpu": "1"}}}


def told(what: str) -> list[str]:
    left = "node n2: it has left the cluster in the meantime"
    return [f"node n1: {what} taken away", left, f"node n3: {what} taken away"]


async def test_labels_are_taken_from_those_that_stay() -> None:
    async with MemoryApiServer() as api, Client(Cluster(api.url), user_agent="tests") as client:
        for name in ("n1", "n2", "n3"):
            await client.request("POST", "/api/v1/nodes", body=json.dumps(node(name)).encode())
        api.faults.answer(404, method="PATCH", path="/nodes/n2$")
        lines = await applying.apply(client, {}, ())
        assert lines == told("label sharing=true")


async def test_traces_are_taken_from_those_that_stay() -> None:
    async with MemoryApiServer() as api, Client(Cluster(api.url), user_agent="tests") as client:
        for name in ("n1", "n2", "n3"):
            await client.request("POST", "/api/v1/nodes", body=json.dumps(node(name)).encode())
        api.faults.answer(404, method="PATCH", path="/nodes/n2/status$")
        said: list[str] = []
        known = {"acme": ("acme.example/zpu",)}
        await removing.remove(client, known, namespace="kube-system", daemon_set=None, wait_s=0, say=said.append)
        assert said == told("inventory, acme.example/zpu")
