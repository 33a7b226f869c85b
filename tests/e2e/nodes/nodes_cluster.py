"""accelshare installed by the chart on several real nodes: workloads, the nodes and cards that they have, the agents' tokens.

Belongs here: commands, state and waits. Never: assertions about the product.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster.kubeconfig import Token, write_kubeconfig
from cluster.local import LocalCluster
from cluster.local.layout import API_SERVER_PORT
from cluster.local.local_node import LocalNode
from deploy.render import NAMESPACE
from tests.e2e.install.installed_cluster import InstallationState, InstalledCluster, Object
from tests.e2e.workloads import CONTAINER

GPU = "aliyun.com/gpu-mem"
CARD_UNITS = 15  # of one of the fake NVIDIA cards
HOST_NAME = "kubernetes.io/hostname"


class NodesCluster(InstalledCluster):
    def __init__(self, local: LocalCluster, directory: Path) -> None:
        super().__init__(local, directory)
        self.nodes = local.nodes
        self.before_by_node = self.states()

    # Commands.

    def deploy(self, name: str, replicas: int, limits: Mapping[str, int], **spec: Any) -> None:
        """A Deployment of equal pods, found by the label `group`; their container prints the cards that it sees."""
        amounts = {resource: str(amount) for resource, amount in limits.items()}
        container = {"name": "main", **CONTAINER, "resources": {"limits": amounts}}
        labels = {"group": name}
        pods = {"metadata": {"labels": labels}, "spec": {"terminationGracePeriodSeconds": 1, "containers": [container], **spec}}
        deployment = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pods},
        }
        self.local.kubectl("create", "--filename=-", stdin=json.dumps(deployment))

    def remove(self, *names: str) -> None:
        """Deployments, with their pods."""
        for name in names:
            self.local.kubectl("delete", "deployment", name, "--cascade=foreground", "--timeout=240s")
        self.until(lambda: not any(self.pods(f"group={name}") for name in names), f"the pods of {names} are gone")

    @contextmanager
    def only(self, node: LocalNode) -> Iterator[None]:
        """New pods are scheduled to this node alone."""
        others = [other.node_name for other in self.nodes if other.node_name != node.node_name]
        self.local.kubectl("cordon", *others)
        try:
            yield
        finally:
            self.local.kubectl("uncordon", *others)

    # State.

    def states(self) -> dict[str, InstallationState]:
        return {node.node_name: self.state(node) for node in self.nodes}

    def ready(self, node: LocalNode) -> bool:
        conditions = self.read("node", node.node_name)["status"]["conditions"]
        return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)

    def card_ids(self, node: LocalNode, kind: str = "nvidia") -> list[str]:
        """The ids in the inventory that the node's agent wrote."""
        return [card["id"] for card in self.inventory(kind, node)["cards"]]

    def visible_card(self, pod: Object) -> str:
        """The NVIDIA card that the pod's container was given."""
        return self.local.exec(pod["metadata"]["name"], "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES").strip()

    def agents(self) -> dict[str, Object]:
        """Node → its agent's pod."""
        pods = self.pods("app.kubernetes.io/component=agent", NAMESPACE).values()
        return {pod["spec"].get("nodeName", ""): pod for pod in pods}

    def extenders(self) -> list[str]:
        """The nodes of the extenders."""
        pods = self.pods("app.kubernetes.io/component=extender", NAMESPACE).values()
        return [pod["spec"].get("nodeName", "") for pod in pods]

    def agent_kubeconfig(self, node: LocalNode) -> Path:
        """With the token that kubelet gave to the agent of this node, read where kubelet keeps it."""
        uid = self.agents()[node.node_name]["metadata"]["uid"]
        volumes = f"/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~projected"
        token = node.call_inside("sh", "-c", f"cat {volumes}/*/token").strip()
        (self.directory / "ca.crt").write_bytes(self.local.path("/etc/kubernetes/pki/ca.crt").read_bytes())
        url = f"https://{self.local.address}:{API_SERVER_PORT}"
        file = self.directory / f"agent-{node.number}.kubeconfig"
        return write_kubeconfig(file, url=url, ca_file=self.directory / "ca.crt", user=Token(token))
