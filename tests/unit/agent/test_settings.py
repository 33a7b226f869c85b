"""The agent's node name has four sources, in order, and the cluster must have the node."""

from pathlib import Path

import pytest

from accelshare.agent.settings import UnknownNodeError, node_name
from accelshare.kube.client import Client
from accelshare.kube.config import Cluster
from accelshare.testing.api_server import FakeApiServer


async def ask(tmp_path: Path, *, flag: str | None = None, namespace: str = "", **environ: str) -> str:
    file = tmp_path / "namespace"
    if namespace:
        file.write_text(namespace)
    async with FakeApiServer() as api, Client(Cluster(api.url), user_agent="tests") as client:
        for name in ("by-flag", "by-variable", "by-pod", "by-host"):
            api.store.create("nodes", {"metadata": {"name": name}})
        spec = {"containers": [{"name": "c", "image": "i"}]}
        pod = {"metadata": {"name": "agent-x"}, "spec": {**spec, "nodeName": "by-pod"}}
        api.store.create("pods", pod, namespace="kube-system")
        other = {"metadata": {"name": "agent-w"}, "spec": {**spec, "nodeName": "by-host"}}
        api.store.create("pods", other, namespace="kube-system")
        api.faults.answer(403, method="GET", path="/pods/agent-x", times=9)  # agents may list pods and not get them
        return await node_name(client, flag=flag, environ=environ, namespace_file=file)


async def test_the_node_name_comes_from_the_flag_first(tmp_path: Path) -> None:
    assert await ask(tmp_path, flag="by-flag", NODE_NAME="by-variable", HOSTNAME="by-host") == "by-flag"


async def test_the_node_name_comes_from_the_variable_next(tmp_path: Path) -> None:
    assert await ask(tmp_path, NODE_NAME="by-variable", HOSTNAME="agent-x", namespace="kube-system") == "by-variable"


async def test_the_node_name_comes_from_the_agents_pod_next(tmp_path: Path) -> None:
    assert await ask(tmp_path, HOSTNAME="agent-x", namespace="kube-system") == "by-pod"


async def test_the_node_name_comes_from_the_host_last(tmp_path: Path) -> None:
    assert await ask(tmp_path, HOSTNAME="by-host") == "by-host"
    assert await ask(tmp_path, HOSTNAME="By-Host", namespace="kube-system") == "by-host"


async def test_a_node_that_the_cluster_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownNodeError, match=r"no node 'elsewhere' \(from NODE_NAME\)"):
        await ask(tmp_path, NODE_NAME="elsewhere")
    with pytest.raises(UnknownNodeError, match=r"it must be lower-case.*from --node-name"):
        await ask(tmp_path, flag="../pods")
