"""Which versions the local cluster runs, and which programs are built from them. Every pin is here.

The go.mod files beside this file pin the same versions with all they need; a test holds the two together. To move a
pin: change it here and in go.mod (Kubernetes' own libraries are v0.<minor>.<patch> there), run `go mod tidy` in that
directory, and the next build makes the new programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

KUBERNETES_VERSION: Final = "v1.36.4"
ETCD_VERSION: Final = "v3.7.3"
GO_VERSION: Final = (1, 26, 0)  # the oldest Go that Kubernetes' go.mod accepts

# The same stamps that Kubernetes' own release puts in; without them every program says v0.0.0-master.
_MAJOR, _MINOR, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
_KUBERNETES_STAMPS: Final = {
    f"{package}.{name}": value
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    for name, value in {"gitVersion": KUBERNETES_VERSION, "gitMajor": _MAJOR, "gitMinor": _MINOR}.items()
}


@dataclass(frozen=True, slots=True)
class Source:
    """One Go module that builds programs of one version."""

    name: str
    version: str
    packages: Mapping[str, str]  # program → Go package
    stamps: Mapping[str, str]  # Go variable → value, set by the linker

    @property
    def directory(self) -> Path:
        """Where its go.mod and go.sum are."""
        return Path(__file__).parent / self.name


ETCD: Final = Source(
    name="etcd",
    version=ETCD_VERSION,
    packages={"etcd": "go.etcd.io/etcd/server/v3"},
    stamps={},
)

# A name more is a line more; kubelet and kube-proxy are pinned in go.mod already.
KUBERNETES: Final = Source(
    name="kubernetes",
    version=KUBERNETES_VERSION,
    packages={
        "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
        "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
        "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
        "kubectl": "k8s.io/kubernetes/cmd/kubectl",
        "kubeadm": "k8s.io/kubernetes/cmd/kubeadm",
    },
    stamps=_KUBERNETES_STAMPS,
)

SOURCES: Final = (ETCD, KUBERNETES)
PROGRAMS: Final = tuple(program for source in SOURCES for program in source.packages)
