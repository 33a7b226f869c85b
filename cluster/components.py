"""Command lines and configuration of each program of the control plane. No I/O.

Everything listens on 127.0.0.1 with our CA's certificates; only the API server can be given another address, for nodes that are
other machines. Data is thrown away, so etcd does not wait for the disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

HOST: Final = "127.0.0.1"

# Those that a workload on fake nodes needs. Not node-lifecycle-controller: it taints nodes whose kubelet renews no lease.
DEFAULT_CONTROLLERS: Final = (
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "job-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "pod-garbage-collector-controller",
    "resourcequota-controller",
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
)

# ServiceAccount would refuse pods in a namespace until its default account is there; TaintNodesByCondition would taint
# every node we create as not ready.
DISABLED_ADMISSION: Final = ("ServiceAccount", "TaintNodesByCondition")


@dataclass(frozen=True, slots=True)
class Pki:
    """The files of certificates and keys that command lines name."""

    ca: Path
    etcd: tuple[Path, Path]
    etcd_client: tuple[Path, Path]
    serving: tuple[Path, Path]
    kubelet_client: tuple[Path, Path]
    service_account_key: Path


def etcd(program: Path, port: int, data: Path, pki: Pki) -> list[str]:
    """One member that talks to no peer."""
    certificate, key = pki.etcd
    return [
        f"{program}",
        f"--data-dir={data}",
        f"--listen-client-urls=https://{HOST}:{port}",
        f"--advertise-client-urls=https://{HOST}:{port}",
        f"--listen-peer-urls=http://{HOST}:0",
        f"--cert-file={certificate}",
        f"--key-file={key}",
        f"--trusted-ca-file={pki.ca}",
        "--client-cert-auth",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def api_server(program: Path, address: str, port: int, etcd_url: str, tokens: Path, pki: Pki, extra: Sequence[str]) -> list[str]:
    """Tokens and client certificates for authentication, RBAC for authorization."""
    etcd_certificate, etcd_key = pki.etcd_client
    certificate, key = pki.serving
    kubelet_certificate, kubelet_key = pki.kubelet_client
    return [
        f"{program}",
        f"--etcd-servers={etcd_url}",
        f"--etcd-cafile={pki.ca}",
        f"--etcd-certfile={etcd_certificate}",
        f"--etcd-keyfile={etcd_key}",
        f"--bind-address={address}",
        f"--advertise-address={address}",
        f"--secure-port={port}",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
        f"--client-ca-file={pki.ca}",
        f"--token-auth-file={tokens}",
        f"--kubelet-client-certificate={kubelet_certificate}",  # for the logs of pods, and exec
        f"--kubelet-client-key={kubelet_key}",
        "--kubelet-preferred-address-types=InternalIP",  # by name, it would ask this machine's DNS for the node
        "--authorization-mode=Node,RBAC",
        f"--disable-admission-plugins={','.join(DISABLED_ADMISSION)}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki.service_account_key}",
        f"--service-account-signing-key-file={pki.service_account_key}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--endpoint-reconciler-type=none",  # an endpoint on loopback is not valid, so it would complain for ever
        "--allow-privileged=true",
        *extra,
    ]


def controller_manager(program: Path, port: int, kubeconfig: Path, pki: Pki, controllers: Sequence[str]) -> list[str]:
    """Only the named controllers, at a client rate that does not hold up a test."""
    certificate, key = pki.serving
    return [
        f"{program}",
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={HOST}",
        f"--secure-port={port}",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
        f"--service-account-private-key-file={pki.service_account_key}",
        f"--root-ca-file={pki.ca}",
        f"--controllers={','.join(controllers)}",
        "--leader-elect=false",
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
    ]


def scheduler(program: Path, port: int, kubeconfig: Path, config: Path, pki: Pki, extra: Sequence[str]) -> list[str]:
    """Serves its readiness and its metrics; all else is in its configuration file."""
    certificate, key = pki.serving
    return [
        f"{program}",
        f"--config={config}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={HOST}",
        f"--secure-port={port}",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
        *extra,
    ]


def scheduler_configuration(kubeconfig: Path, wanted: Mapping[str, object]) -> dict[str, Any]:
    """A KubeSchedulerConfiguration: ours where the wanted one is silent, key by key."""
    ours: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 1000, "burst": 2000},
    }
    return _merged(ours, wanted)


def _merged(ours: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    both = {key: _merged(ours[key], wanted[key]) for key in ours.keys() & wanted.keys() if isinstance(ours[key], Mapping)}
    return {**ours, **wanted, **both}


def extender_entry(url: str, resources: Sequence[str], **changes: object) -> dict[str, Any]:
    """An entry of kube-scheduler's configuration that calls all verbs; keyword arguments change single keys."""
    entry = {
        "urlPrefix": url,
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "bindVerb": "bind",
        "weight": 1000,
        "nodeCacheCapable": True,
        "httpTimeout": "5s",
        "managedResources": [{"name": name, "ignoredByScheduler": False} for name in resources],
    }
    return entry | changes
