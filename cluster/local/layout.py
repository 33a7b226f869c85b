"""Names, addresses, ports and paths of the local cluster and of each of its nodes. No I/O."""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MOST_NODES: Final = 9
NODE_NAME: Final = "accelshare-local"  # of the first node
BRIDGE: Final = "accelshare0"
NODE_NETWORK: Final = "10.98.0.0/24"
NODE_ADDRESS: Final = "10.98.0.1"  # of the first node
SERVICE_NETWORK: Final = "10.96.0.0/16"
POD_NETWORK: Final = "10.244.0.0/16"
NODE_POD_MASK: Final = 22  # 1,021 pods of each node; kubelet takes MAX_PODS of them
MAX_PODS: Final = 500
API_SERVER_PORT: Final = 6443
CGROUP: Final = "accelshare-local"
NFT_TABLE: Final = "kube-proxy"  # the name is kube-proxy's own, in the families ip and ip6
TEST_IMAGE: Final = "accelshare.local/busybox:1"
CONTAINERD_METRICS_PORT: Final = 1338
CONTAINERD_SOCKET: Final = "/run/containerd/containerd.sock"

_FAKES: Final = "fakes"  # the directory of the fake vendor tools

# A process that has this variable with the cluster's directory as its value was started by us.
MARK: Final = "_ACCELSHARE_LOCAL_CLUSTER"

PORTS: Final[Mapping[int, str]] = {
    CONTAINERD_METRICS_PORT: "containerd's metrics",
    API_SERVER_PORT: "kube-apiserver",
    2379: "etcd",
    2380: "etcd's peers",
    2381: "etcd's health",
    10248: "kubelet's health",
    10249: "kube-proxy's metrics",
    10250: "kubelet",
    10256: "kube-proxy's health",
    10257: "kube-controller-manager",
    10259: "kube-scheduler",
}

# Each is covered by a directory of ours inside the namespace. /run and not /var/run, which is a link to it.
COVERED: Final = (
    "/etc/cdi",
    "/etc/cni",
    "/etc/containerd",
    "/etc/kubernetes",
    "/etc/nri",
    "/opt/nri",
    "/run/cdi",
    "/run/containerd",
    "/run/mount",
    "/run/netns",
    "/run/nri",
    "/usr/libexec/kubernetes",
    "/var/lib/cni",
    "/var/lib/etcd",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
)

# What kubelet, kube-proxy and the network plugins set for the whole machine; their values of before come back at the end.
KERNEL_SETTINGS: Final = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "net/ipv4/conf/all/route_localnet",
    "net/ipv4/conf/all/src_valid_mark",
    "net/ipv4/ip_forward",
    "net/netfilter/nf_conntrack_max",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)


@dataclass(frozen=True, slots=True)
class Layout:
    """One node of the one cluster that a machine can have. The files of the first node are the cluster's too."""

    number: int = 1
    cluster: Path = Path("/var/lib/accelshare-local")

    def node(self, number: int) -> Layout:
        """Another node of the same cluster."""
        return Layout(number, self.cluster)

    @property
    def first(self) -> bool:
        """The first node has the control plane, and all namespaces of the machine but the one of mounts."""
        return self.number == 1

    @property
    def node_name(self) -> str:
        return NODE_NAME if self.first else f"{NODE_NAME}-{self.number}"

    @property
    def address(self) -> str:
        return str(ipaddress.IPv4Network(NODE_NETWORK)[self.number])

    @property
    def health_address(self) -> str:
        """Where kubelet and kube-proxy report their health; a further node's loopback cannot be reached from outside."""
        return "127.0.0.1" if self.first else self.address

    @property
    def pod_network(self) -> str:
        """Its part of POD_NETWORK. kube-controller-manager allocates the first one to the first node."""
        networks = ipaddress.IPv4Network(POD_NETWORK).subnets(new_prefix=NODE_POD_MASK)
        return str(next(itertools.islice(networks, self.number - 1, None)))

    @property
    def cgroup(self) -> str:
        """In every hierarchy of the machine. Those of further nodes are below the first one's, beside its pods."""
        return CGROUP if self.first else f"{CGROUP}/node-{self.number}"

    @property
    def cgroup_root(self) -> str:
        """The same, as kubelet sees it: a further node's cgroup is the root of its cgroup namespace."""
        return f"/{CGROUP}" if self.first else "/"

    @property
    def covered(self) -> tuple[str, ...]:
        """The paths that are the node's own."""
        return COVERED if self.first else (*COVERED, str(self.cluster / _FAKES))

    @property
    def state(self) -> Path:
        return self.cluster if self.first else self.cluster / "nodes" / str(self.number)

    @property
    def ready(self) -> Path:
        """There once a start has come to its end."""
        return self.state / "ready"

    @property
    def journal(self) -> Path:
        return self.cluster / "journal"

    @property
    def bin(self) -> Path:
        """For a user's PATH: kubectl."""
        return self.cluster / "bin"

    @property
    def programs(self) -> Path:
        """All programs of the cluster, as links into the cache."""
        return self.cluster / "programs"

    @property
    def tools(self) -> Path:
        """For fake vendor tools: first on the PATH of every process that is started inside."""
        return self.state / "tools"

    @property
    def fakes(self) -> Path:
        """Vendors' tools that report the node's fake cards. Pods of every node find them at the first node's path."""
        path = self.cluster / _FAKES
        return path if self.first else self.covering(str(path))

    @property
    def logs(self) -> Path:
        return self.state / "logs"

    @property
    def pids(self) -> Path:
        return self.state / "pids"

    @property
    def configuration(self) -> Path:
        return self.state / "configuration"

    @property
    def audit(self) -> Path:
        """The API server's audit policy and log, if the cluster was started with an audit."""
        return self.cluster / "audit"

    @property
    def containerd_root(self) -> Path:
        return self.state / "containerd"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.cluster / "kubeconfig"

    def covering(self, path: str) -> Path:
        """Where a path of the node, for example /etc/kubernetes/admin.conf, is for those outside of its namespace."""
        return self.state / "private" / path.replace("/var/run/", "/run/", 1).removeprefix("/")
