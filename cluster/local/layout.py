"""Addresses, ports and paths of the local cluster. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NODE_NAME: Final = "accelshare-local"
BRIDGE: Final = "accelshare0"
NODE_ADDRESS: Final = "10.98.0.1"
SERVICE_NETWORK: Final = "10.96.0.0/16"
POD_NETWORK: Final = "10.244.0.0/16"
NODE_POD_NETWORK: Final = "10.244.0.0/22"  # 1,021 pods; kubelet takes MAX_PODS of them
NODE_POD_MASK: Final = 22
MAX_PODS: Final = 500
API_SERVER_PORT: Final = 6443
CGROUP: Final = "accelshare-local"
NFT_TABLE: Final = "kube-proxy"  # the name is kube-proxy's own, in the families ip and ip6
TEST_IMAGE: Final = "accelshare.local/busybox:1"
CONTAINERD_METRICS_PORT: Final = 1338
CONTAINERD_SOCKET: Final = "/run/containerd/containerd.sock"

# A process that has this variable with our state directory as its value was started by us.
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
    """The files of the one cluster that a machine can have."""

    state: Path = Path("/var/lib/accelshare-local")

    @property
    def ready(self) -> Path:
        """There once a start has come to its end."""
        return self.state / "ready"

    @property
    def journal(self) -> Path:
        return self.state / "journal"

    @property
    def bin(self) -> Path:
        """For a user's PATH: kubectl."""
        return self.state / "bin"

    @property
    def programs(self) -> Path:
        """All programs of the cluster, as links into the cache."""
        return self.state / "programs"

    @property
    def tools(self) -> Path:
        """For fake vendor tools: first on the PATH of every process that is started inside."""
        return self.state / "tools"

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
    def containerd_root(self) -> Path:
        return self.state / "containerd"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.state / "kubeconfig"

    def covering(self, path: str) -> Path:
        """Where a path of the cluster, for example /etc/kubernetes/admin.conf, is for those outside of its namespace."""
        return self.state / "private" / path.replace("/var/run/", "/run/", 1).removeprefix("/")
