"""The pinned versions of the local cluster and the programs that are built from them.

The go.mod files beside this file pin the same versions with all they need; a test holds the two together. To move a
pin: change it here and in go.mod (Kubernetes' own libraries are v0.<minor>.<patch> there), run `go mod tidy` in that
directory, and the next build makes the new programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

KUBERNETES_VERSION: Final = "v1.36.4"
ETCD_VERSION: Final = "v3.7.3"
CONTAINERD_VERSION: Final = "v2.4.2"
RUNC_VERSION: Final = "v1.5.2"
HELM_VERSION: Final = "v3.22.0"
KUEUE_VERSION: Final = "v0.19.2"
SCHEDULER_PLUGINS_VERSION: Final = "v0.34.7"
GO_VERSION: Final = (1, 26, 6)  # the oldest Go that containerd's go.mod accepts, the most demanding of them

# The same stamps as in Kubernetes' own release; without them every program reports v0.0.0-master.
_MAJOR, _MINOR, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
_KUBERNETES_STAMPS: Final = {
    f"{package}.{name}": value
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    for name, value in {"gitVersion": KUBERNETES_VERSION, "gitMajor": _MAJOR, "gitMinor": _MINOR}.items()
}


@dataclass(frozen=True, slots=True)
class ProgramSource:
    """One Go module that builds programs of one version."""

    name: str
    version: str
    packages: Mapping[str, str]  # program → Go package
    stamps: Mapping[str, str]  # Go variable → value, set by the linker
    tags: tuple[str, ...] = ()
    c_libraries: tuple[str, ...] = ()  # linked in statically, found by pkg-config; then a C compiler is needed too
    files: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # name beside the programs → Go module, path in it

    @property
    def directory(self) -> Path:
        """Where its go.mod and go.sum are."""
        return Path(__file__).parent / self.name


ETCD: Final = ProgramSource(
    name="etcd",
    version=ETCD_VERSION,
    packages={"etcd": "go.etcd.io/etcd/server/v3"},
    stamps={},
)

KUBERNETES: Final = ProgramSource(
    name="kubernetes",
    version=KUBERNETES_VERSION,
    packages={
        "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
        "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
        "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
        "kubectl": "k8s.io/kubernetes/cmd/kubectl",
        "kubeadm": "k8s.io/kubernetes/cmd/kubeadm",
        "kubelet": "k8s.io/kubernetes/cmd/kubelet",
        "kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy",
    },
    stamps=_KUBERNETES_STAMPS,
)

# The network plugins are at the version that containerd itself names.
CONTAINERD: Final = ProgramSource(
    name="containerd",
    version=CONTAINERD_VERSION,
    packages={
        "containerd": "github.com/containerd/containerd/v2/cmd/containerd",
        "containerd-shim-runc-v2": "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
        "ctr": "github.com/containerd/containerd/v2/cmd/ctr",
        "ptp": "github.com/containernetworking/plugins/plugins/main/ptp",
        "loopback": "github.com/containernetworking/plugins/plugins/main/loopback",
        "host-local": "github.com/containernetworking/plugins/plugins/ipam/host-local",
    },
    stamps={"github.com/containerd/containerd/v2/version.Version": CONTAINERD_VERSION},
)

# With seccomp, because kubeadm's static pods ask for the runtime's default profile and fail without it. Not Debian's runc,
# which is years older than the containerd it would serve.
RUNC: Final = ProgramSource(
    name="runc",
    version=RUNC_VERSION,
    packages={"runc": "github.com/opencontainers/runc"},
    stamps={},
    tags=("seccomp", "netgo", "osusergo"),
    c_libraries=("libseccomp",),
)

# What installs our chart in tests. It is no part of the cluster and runs without root.
HELM: Final = ProgramSource(
    name="helm",
    version=HELM_VERSION,
    packages={"helm": "helm.sh/helm/v3/cmd/helm"},
    stamps={"helm.sh/helm/v3/internal/version.version": HELM_VERSION},
)

# The controllers of the queue tests. JobSet is at the version that Kueue itself names.
KUEUE: Final = ProgramSource(
    name="kueue",
    version=KUEUE_VERSION,
    packages={"kueue": "sigs.k8s.io/kueue/cmd/kueue", "jobset": "sigs.k8s.io/jobset"},
    stamps={"sigs.k8s.io/kueue/pkg/version.GitVersion": KUEUE_VERSION},
    files={"kueue-config": ("sigs.k8s.io/kueue", "config"), "jobset-config": ("sigs.k8s.io/jobset", "config")},
)

# A kube-scheduler with the coscheduling plugin, for the gang tests. It is made of Kubernetes 1.34.4: scheduler-plugins names
# 1.34.7, of which the module proxy lacks parts.
SCHEDULER_PLUGINS: Final = ProgramSource(
    name="scheduler_plugins",
    version=SCHEDULER_PLUGINS_VERSION,
    packages={"scheduler-with-plugins": "sigs.k8s.io/scheduler-plugins/cmd/scheduler"},
    stamps={"k8s.io/component-base/version.gitVersion": "v1.34.4"},  # it refuses to start as v0.34
    files={"scheduler-plugins-crds": ("sigs.k8s.io/scheduler-plugins", "config/crd/bases")},
)

SOURCES: Final = (ETCD, KUBERNETES, CONTAINERD, RUNC, HELM)
PROGRAMS: Final = tuple(program for source in SOURCES for program in source.packages)

# Built only for tests, because they take as long as Kubernetes itself.
TEST_SOURCES: Final = (KUEUE, SCHEDULER_PLUGINS)
TEST_PROGRAMS: Final = tuple(program for source in TEST_SOURCES for program in source.packages)

# What runs without root, and what needs no C compiler to be built.
CONTROL_PLANE_PROGRAMS: Final = (
    "etcd",
    "kube-apiserver",
    "kube-scheduler",
    "kube-controller-manager",
    "kubectl",
)
