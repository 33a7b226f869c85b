"""The configuration of each program of each node of the local cluster. No I/O.

Everything listens on the node's own address or on loopback. Data is thrown away, so etcd does not wait for the disk.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from cluster import audit
from cluster.local.layout import (
    API_SERVER_PORT,
    CONTAINERD_METRICS_PORT,
    CONTAINERD_SOCKET,
    MAX_PODS,
    NODE_ADDRESS,
    NODE_NAME,
    NODE_POD_MASK,
    POD_NETWORK,
    SERVICE_NETWORK,
    Layout,
)
from cluster.versions import ETCD_VERSION, KUBERNETES_VERSION

# How the runtime offers NRI: not at all; as it comes; or with the validator, which refuses a container whose pod requires a
# plugin that is not there.
Nri = Literal["off", "on", "validated"]

KUBEADM_FILE: Final = "kubeadm.yaml"
KUBE_PROXY_KUBECONFIG: Final = "/etc/kubernetes/kube-proxy.conf"


def kubeadm(layout: Layout, audit_directory: Path | None = None) -> str:
    """The configuration for `kubeadm init`, with the extra settings that this machine needs.

    Of a further node, kubeadm reads only what concerns its kubelet.
    `audit_directory`: has the API server's audit policy, and gets its log; none: there is no audit.
    """
    etcd_arguments = [{"name": "unsafe-no-fsync", "value": "true"}]
    api_server: dict[str, Any] = {"certSANs": ["localhost", "127.0.0.1", NODE_NAME]}
    api_server_arguments = {"bind-address": NODE_ADDRESS}
    if audit_directory is not None:
        api_server_arguments |= audit.flags(audit_directory)
        place = str(audit_directory)
        api_server["extraVolumes"] = [{"name": "audit", "hostPath": place, "mountPath": place, "pathType": "Directory"}]
    api_server["extraArgs"] = [{"name": name, "value": value} for name, value in api_server_arguments.items()]
    mask = {"name": "node-cidr-mask-size", "value": str(NODE_POD_MASK)}
    return _documents(
        {
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "InitConfiguration",
            "localAPIEndpoint": {"advertiseAddress": NODE_ADDRESS, "bindPort": API_SERVER_PORT},
            "nodeRegistration": {
                "name": layout.node_name,
                "criSocket": f"unix://{CONTAINERD_SOCKET}",
                "taints": [],  # the first node may be the only one, so it has to take pods
            },
        },
        {
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "ClusterConfiguration",
            "kubernetesVersion": KUBERNETES_VERSION,
            "clusterName": NODE_NAME,
            "encryptionAlgorithm": "ECDSA-P256",
            "networking": {"serviceSubnet": SERVICE_NETWORK, "podSubnet": POD_NETWORK},
            "apiServer": api_server,
            "controllerManager": {"extraArgs": [mask]},
            "etcd": {"local": {"imageTag": f"{ETCD_VERSION.removeprefix('v')}-0", "extraArgs": etcd_arguments}},
        },
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": layout.address,
            "healthzBindAddress": layout.health_address,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": layout.cgroup_root,
            "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
            "enforceNodeAllocatable": [],
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
            "failCgroupV1": False,
            "failSwapOn": False,
            "imageGCHighThresholdPercent": 100,
            "makeIPTablesUtilChains": False,
            "maxPods": MAX_PODS,
        },
    )


def kubelet_command(program: Path, layout: Layout) -> list[str]:
    return [
        str(program),
        "--config=/var/lib/kubelet/config.yaml",
        "--kubeconfig=/etc/kubernetes/kubelet.conf",
        f"--hostname-override={layout.node_name}",
        f"--node-ip={layout.address}",
        # kubeadm always enables rotation; the first one would cut kubelet's connections some seconds after the node is ready.
        "--rotate-certificates=false",
    ]


def kube_proxy(layout: Layout) -> str:
    """In nftables mode; connection tracking's limits stay as the machine has them."""
    return _documents(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "bindAddress": layout.address,
            "healthzBindAddress": f"{layout.health_address}:10256",
            "metricsBindAddress": "127.0.0.1:10249",
            "hostnameOverride": layout.node_name,
            "clusterCIDR": POD_NETWORK,
            "clientConnection": {"kubeconfig": KUBE_PROXY_KUBECONFIG},
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpCloseWaitTimeout": "0s", "tcpEstablishedTimeout": "0s"},
            "nftables": {"minSyncPeriod": "0.1s"},
        }
    )


def pod_network(addresses: str) -> str:
    """For the runtime: a pair of links for each pod, addresses from this range, the node's own."""
    ranges = [[{"subnet": addresses}]]
    ipam = {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]}
    plugins = [{"type": "ptp", "ipMasq": False, "ipam": ipam}]
    return json.dumps({"cniVersion": "1.0.0", "name": NODE_NAME, "plugins": plugins}, indent=2)


def containerd(
    *, root: Path, programs: Path, pause_image: str, may_raise_oom_score: bool, nri: Nri, systemd_cgroup: bool = False
) -> str:
    """Of containerd 2.x. It must not ask for an OOM score below its own where the kernel would refuse."""
    images = "io.containerd.cri.v1.images"
    runtime = "io.containerd.cri.v1.runtime"
    tables: dict[str, Mapping[str, object]] = {
        "grpc": {"address": CONTAINERD_SOCKET},
        "metrics": {"address": f"127.0.0.1:{CONTAINERD_METRICS_PORT}"},
        f"plugins.'{images}'": {"snapshotter": "overlayfs"},
        f"plugins.'{images}'.pinned_images": {"sandbox": pause_image},
        f"plugins.'{runtime}'": {"restrict_oom_score_adj": not may_raise_oom_score},
        f"plugins.'{runtime}'.cni": {"bin_dirs": [str(programs)], "conf_dir": "/etc/cni/net.d"},
        f"plugins.'{runtime}'.containerd.runtimes.runc": {"runtime_type": "io.containerd.runc.v2"},
        f"plugins.'{runtime}'.containerd.runtimes.runc.options": {
            "BinaryName": str(programs / "runc"),
            "SystemdCgroup": systemd_cgroup,
        },
        "plugins.'io.containerd.internal.v1.opt'": {"path": str(root / "opt")},
        "plugins.'io.containerd.nri.v1.nri'": {"disable": nri == "off", "socket_path": "/var/run/nri/nri.sock"},
        "plugins.'io.containerd.nri.v1.nri'.default_validator": {"enable": nri == "validated"},
    }
    lines = ["version = 3", f"root = {json.dumps(str(root))}", 'state = "/run/containerd"']
    for name, content in tables.items():
        # A JSON string, number, boolean or list of strings is the same in TOML.
        lines += [f"\n[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in content.items())]
    return "\n".join(lines) + "\n"


def scheduler(extenders: list[Mapping[str, Any]], wanted: Mapping[str, object]) -> str:
    """A KubeSchedulerConfiguration for kubeadm's kube-scheduler."""
    return _documents(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": "/etc/kubernetes/scheduler.conf"},
            "percentageOfNodesToScore": 100,
            "extenders": [dict(extender) for extender in extenders],
            **wanted,
        }
    )


def with_scheduler_configuration(manifest: str, file: str, content: str) -> str:
    """kubeadm's manifest of kube-scheduler, reading this configuration file too; another content makes another pod."""
    pod: dict[str, Any] = yaml.safe_load(manifest)
    pod["metadata"]["annotations"] = {"accelshare.local/configuration": hashlib.sha256(content.encode()).hexdigest()[:16]}
    container = pod["spec"]["containers"][0]
    # Else the next one waits until the lease of the one before has run out.
    container["command"] = [word for word in container["command"] if not word.startswith("--leader-elect")]
    container["command"] += ["--leader-elect=false", f"--config={file}"]
    container["volumeMounts"].append({"name": "configuration", "mountPath": file, "readOnly": True})
    pod["spec"]["volumes"].append({"name": "configuration", "hostPath": {"path": file, "type": "File"}})
    return _documents(pod)


def _documents(*contents: Mapping[str, object]) -> str:
    return "---\n".join(yaml.safe_dump(dict(content), sort_keys=False) for content in contents)
