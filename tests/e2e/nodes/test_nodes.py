"""Several real nodes: each has its own kubelet, containerd, network and cards, and its agent serves that node alone.

One installation for the file. The last test takes it away.
"""

import json
from contextlib import suppress
from pathlib import Path

import pytest

from accelshare.kube import config
from accelshare.kube.client import Client
from accelshare.kube.errors import KubeError
from accelshare.kube.patches import annotate_node, set_capacity
from accelshare.wire import inventory
from cluster.errors import ClusterError
from cluster.local import accelshare
from cluster.local.local_node import LocalNode
from cluster.waiting import wait_until
from tests.e2e.install.installed_cluster import Object
from tests.e2e.local.kubectl_steps import create, delete, pod, read, ready
from tests.e2e.nodes.nodes_cluster import CARD_UNITS, GPU, HOST_NAME, NodesCluster

pytestmark = pytest.mark.real
SERVE = ["sh", "-c", "hostname > /tmp/index.html; httpd -f -p 8080 -h /tmp"]


def namespaces(node: LocalNode) -> dict[str, str]:
    identity = node.kubelet.identity
    assert identity is not None
    return {kind: str(Path(f"/proc/{identity.pid}/ns/{kind}").readlink()) for kind in ("mnt", "pid", "net", "cgroup")}


def test_each_node_has_its_own_namespaces_and_cgroup(nodes_cluster: NodesCluster) -> None:
    """Two kubelets in one cgroup tree would end each other's pods."""
    listed = json.loads(nodes_cluster.local.kubectl("get", "nodes", "--output=json"))["items"]
    assert [node["metadata"]["name"] for node in listed] == [node.node_name for node in nodes_cluster.nodes]
    assert [node["spec"]["podCIDR"] for node in listed[1:]] == ["10.244.4.0/22", "10.244.8.0/22"]
    for kind in ("mnt", "pid", "net", "cgroup"):
        assert len({namespaces(node)[kind] for node in nodes_cluster.nodes}) == 3, kind
    for node in nodes_cluster.local.further_nodes:
        identity = node.kubelet.identity
        assert identity is not None
        groups = {line.rpartition(":")[2] for line in Path(f"/proc/{identity.pid}/cgroup").read_text().splitlines()}
        assert groups == {f"/accelshare-local/node-{node.number}/daemons"}


def test_pods_and_services_are_reached_from_every_node(nodes_cluster: NodesCluster) -> None:
    local = nodes_cluster.local
    servers = [f"server-{node.number}" for node in nodes_cluster.nodes]
    labels = {"app": "server"}
    create(
        local,
        *(
            pod(name, labels=labels, command=SERVE, nodeName=node.node_name)
            for name, node in zip(servers, nodes_cluster.nodes, strict=True)
        ),
    )
    local.kubectl("create", "service", "clusterip", "server", "--tcp=80:8080")
    ready(local, *servers)
    address = read(local, "service", "server")["spec"]["clusterIP"]
    addresses = {name: read(local, "pod", name)["status"]["podIP"] for name in servers}

    def page(client: str, url: str) -> str:
        with suppress(ClusterError):
            return local.exec(client, "wget", "-q", "-O", "-", url).strip()
        return ""

    for client in servers:
        for server, its in addresses.items():
            wait_until(lambda c=client, s=server, a=its: page(c, f"http://{a}:8080/") == s, f"{client} reaches {server}")  # type: ignore[misc]
        wait_until(lambda c=client: page(c, f"http://{address}/") in servers, f"{client} reaches the service")  # type: ignore[misc]
        assert local.exec(client, "sh", "-c", "nc -w 5 10.96.0.1 443 < /dev/null && echo open") == "open\n"
    local.kubectl("delete", "service", "server")
    delete(local, *servers)


def test_each_agent_reports_the_cards_of_its_own_node(nodes_cluster: NodesCluster) -> None:
    """There is one agent on each node; no card is in two inventories."""
    assert set(nodes_cluster.agents()) == {node.node_name for node in nodes_cluster.nodes}
    for kind, cards in (("nvidia", 4), ("kunlun", 4), ("enflame", 8), ("stream", 1)):
        ids = [card for node in nodes_cluster.nodes for card in nodes_cluster.card_ids(node, kind)]
        assert len(ids) == len(set(ids)) == 3 * cards, kind


def test_pods_spread_over_nodes_and_each_gets_a_card_of_its_node(nodes_cluster: NodesCluster) -> None:
    """Six pods, each with a whole card: two on each node, as the pods' spread constraint demands."""
    constraint = {
        "maxSkew": 1,
        "topologyKey": HOST_NAME,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"group": "spread"}},
    }
    nodes_cluster.deploy("spread", 6, {GPU: CARD_UNITS}, topologySpreadConstraints=[constraint])
    pods = nodes_cluster.running("group=spread", 6).values()
    for node in nodes_cluster.nodes:
        given = {nodes_cluster.visible_card(pod) for pod in pods if pod["spec"]["nodeName"] == node.node_name}
        assert len(given) == 2
        assert given <= set(nodes_cluster.card_ids(node))
    nodes_cluster.remove("spread")


def test_extenders_are_on_different_nodes(nodes_cluster: NodesCluster) -> None:
    assert len(set(nodes_cluster.extenders())) == 2


async def test_the_token_of_an_agent_writes_on_its_own_node_alone(nodes_cluster: NodesCluster) -> None:
    """An intruder in an agent cannot write another node's inventory or amounts."""
    _, mine, other = nodes_cluster.nodes
    before = nodes_cluster.inventory("nvidia", other)
    words = f"the agent of node {mine.node_name} may not write on node {other.node_name}"
    async with Client(config.load(nodes_cluster.agent_kubeconfig(mine)), user_agent="test") as client:
        await annotate_node(client, mine.node_name, {"accelshare.io/test": "1"})
        with pytest.raises(KubeError, match=words):
            await annotate_node(client, other.node_name, {inventory.KEY: "{}"})
        with pytest.raises(KubeError, match=words):
            await set_capacity(client, other.node_name, {GPU: 0})
    nodes_cluster.local.kubectl("annotate", "node", mine.node_name, "accelshare.io/test-")
    assert nodes_cluster.inventory("nvidia", other) == before


def moved_from(nodes_cluster: NodesCluster, group: str, node: LocalNode) -> Object:
    """The one pod of this group, once it runs on another node."""

    def elsewhere() -> Object | None:
        pods = [pod for pod in nodes_cluster.pods(f"group={group}").values() if "deletionTimestamp" not in pod["metadata"]]
        running = [pod for pod in pods if pod["status"]["phase"] == "Running" and pod["spec"]["nodeName"] != node.node_name]
        return running[0] if len(running) == len(pods) == 1 else None

    found: Object = nodes_cluster.until(elsewhere, f"the pod of {group} runs on another node than {node.node_name}")
    return found


def all_cards_are_free(nodes_cluster: NodesCluster, node: LocalNode) -> None:
    """So many pods as the node has cards get one each, whole."""
    ids = nodes_cluster.card_ids(node)
    nodes_cluster.deploy("whole", len(ids), {GPU: CARD_UNITS}, nodeSelector={HOST_NAME: node.node_name})
    pods = nodes_cluster.running("group=whole", len(ids)).values()
    assert sorted(nodes_cluster.visible_card(pod) for pod in pods) == sorted(ids)
    nodes_cluster.remove("whole")


def test_a_drained_node_gives_its_pods_cards_of_other_nodes(nodes_cluster: NodesCluster) -> None:
    """By evictions, which a disruption budget delays. An extender is among the evicted. The agent stays, and so do its cards."""
    drained = next(node for node in nodes_cluster.local.further_nodes if node.node_name in nodes_cluster.extenders())
    with nodes_cluster.only(drained):
        nodes_cluster.deploy("drained", 1, {GPU: CARD_UNITS})
        (before,) = nodes_cluster.running("group=drained", 1).values()
    assert before["spec"]["nodeName"] == drained.node_name
    agent = nodes_cluster.agents()[drained.node_name]["metadata"]["uid"]
    drain = ("drain", drained.node_name, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=200s")
    nodes_cluster.local.kubectl("create", "poddisruptionbudget", "drained", "--selector=group=drained", "--min-available=1")
    with pytest.raises(ClusterError, match="disruption budget"):
        nodes_cluster.local.kubectl(*drain[:-1], "--timeout=8s")
    assert set(nodes_cluster.pods("group=drained")) == {before["metadata"]["name"]}
    nodes_cluster.local.kubectl("delete", "poddisruptionbudget", "drained")
    nodes_cluster.local.kubectl(*drain)
    after = moved_from(nodes_cluster, "drained", drained)
    assert nodes_cluster.visible_card(after) in nodes_cluster.card_ids(nodes_cluster.node_of(after))
    assert nodes_cluster.agents()[drained.node_name]["metadata"]["uid"] == agent
    assert drained.node_name not in nodes_cluster.extenders()
    nodes_cluster.local.kubectl("uncordon", drained.node_name)
    all_cards_are_free(nodes_cluster, drained)
    nodes_cluster.remove("drained")


def test_a_node_that_is_lost_and_comes_back(nodes_cluster: NodesCluster) -> None:
    """Its kubelet and containerd are killed. Its pod is replaced on another node; its cards are not given to others meanwhile."""
    lost = nodes_cluster.nodes[2]
    at_once = [
        {"key": f"node.kubernetes.io/{reason}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}
        for reason in ("unreachable", "not-ready")
    ]
    with nodes_cluster.only(lost):
        nodes_cluster.deploy("lost", 1, {GPU: CARD_UNITS}, tolerations=at_once)
        (before,) = nodes_cluster.running("group=lost", 1).values()
    lost.kill_kubelet()
    lost.kill_containerd()
    try:
        nodes_cluster.until(lambda: not nodes_cluster.ready(lost), "the node is not ready")
        after = moved_from(nodes_cluster, "lost", lost)
        assert nodes_cluster.visible_card(after) in nodes_cluster.card_ids(nodes_cluster.node_of(after))
        assert before["metadata"]["name"] in nodes_cluster.pods("group=lost")  # nobody has ended its container
    finally:
        lost.start_containerd()
        lost.start_kubelet()
    nodes_cluster.until(lambda: nodes_cluster.ready(lost), "the node is ready again")
    nodes_cluster.until(lambda: len(nodes_cluster.pods("group=lost")) == 1, "the pod of before has ended")
    nodes_cluster.agents_ready()
    all_cards_are_free(nodes_cluster, lost)
    nodes_cluster.remove("lost")


def test_helm_uninstall_leaves_nothing_on_any_node(nodes_cluster: NodesCluster) -> None:
    """Files, labels, annotations and amounts of each node, while a pod with a card runs on each."""
    constraint = {
        "maxSkew": 1,
        "topologyKey": HOST_NAME,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"group": "stays"}},
    }
    nodes_cluster.deploy("stays", 3, {GPU: 1}, topologySpreadConstraints=[constraint])
    before = nodes_cluster.running("group=stays", 3)
    assert {pod["spec"]["nodeName"] for pod in before.values()} == {node.node_name for node in nodes_cluster.nodes}
    nodes_cluster.helm("uninstall", accelshare.RELEASE, "--timeout=300s")
    nodes_cluster.until(lambda: not nodes_cluster.state().ours, "the last pods of ours have ended")
    assert nodes_cluster.agents() == {}
    assert nodes_cluster.states() == nodes_cluster.before_by_node
    assert {name: pod["status"]["containerStatuses"] for name, pod in nodes_cluster.pods("group=stays").items()} == {
        name: pod["status"]["containerStatuses"] for name, pod in before.items()
    }
