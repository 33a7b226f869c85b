"""Which pods are asked as agents."""

import json

import msgspec

from accelshare.inspect_cli.usage_reader import AgentPod, find_agents


def pod(name: str, node: str, *, namespace: str = "kube-system", phase: str = "Running", port: int = 12347) -> msgspec.Raw:
    ports = [{"name": "other", "containerPort": 1}, {"name": "probes", "containerPort": port}]
    content = {
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"nodeName": node, "containers": [{"name": "a"}, {"name": "agent", "ports": ports}]},
        "status": {"phase": phase},
    }
    return msgspec.Raw(json.dumps(content).encode())


def test_the_running_agent_of_each_node_that_is_shown() -> None:
    pods = [pod("a", "n1"), pod("b", "n2", phase="Pending"), pod("c", "n3"), pod("d", "n4", port=0), msgspec.Raw(b"[]")]
    agents, notes = find_agents(pods, {"n1", "n2", "n4"})
    assert (agents, notes) == ({"n1": AgentPod("kube-system", "a", 12347)}, [])


def test_the_path_goes_through_the_api_server() -> None:
    assert AgentPod("kube-system", "a", 12347).path == "/api/v1/namespaces/kube-system/pods/http:a:12347/proxy/usage"


def test_agents_of_two_namespaces_on_one_node_are_not_asked() -> None:
    agents, notes = find_agents([pod("a", "n1"), pod("b", "n1", namespace="evil"), pod("c", "n2")], {"n1", "n2"})
    assert agents.keys() == {"n2"}
    assert [note for note in notes if "evil, kube-system" in note and note.startswith("n1: ")] == notes != []
