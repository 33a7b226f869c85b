"""One node of the local cluster: run programs on it, break parts of it, start them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster.local import bring_up, images
from cluster.local.configuration import Nri
from cluster.local.daemon import Daemon, environment
from cluster.local.images import Content
from cluster.local.layout import Layout
from cluster.process import Process


class LocalNode:
    """A node with kubelet, containerd and kube-proxy of its own."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.node_name = layout.node_name
        self.address = layout.address
        self.state = layout.state
        self.tools = layout.tools  # programs put here are first on the PATH of all that runs inside
        self.fakes = layout.fakes
        self.number = layout.number
        self.kubelet = Daemon(layout, "kubelet")
        self.containerd = Daemon(layout, "containerd")
        self.kube_proxy = Daemon(layout, "kube-proxy")

    def path(self, path: str) -> Path:
        """Where one of the node's paths, such as /var/lib/kubelet/device-plugins, is for those outside of its namespace."""
        return self._layout.covering(path)

    # Running things in it.

    def run_inside(
        self, name: str, command: Sequence[str | Path], log: Path, *, variables: Mapping[str, str] | None = None
    ) -> Process:
        """A program of this machine that sees the node's paths as a node's own; it ends with us or with the cluster."""
        return Process(
            name, bring_up.inside(self._layout, command), log, environment={**environment(self._layout), **(variables or {})}
        )

    def call_inside(self, *command: str | Path) -> str:
        """What a short command prints that sees the node's paths as a node's own."""
        return bring_up.run_inside(self._layout, command)

    def ctr(self, *arguments: str | Path) -> str:
        """What containerd's own client prints, in Kubernetes' namespace."""
        return bring_up.ctr(self._layout, *arguments)

    def make_image(
        self, name: str, files: Mapping[str, Content], entrypoint: Sequence[str], *, variables: Mapping[str, str] | None = None
    ) -> None:
        """An image of these files, ready for pods that pull IfNotPresent or Never."""
        tar = self.state / "images" / f"{name.replace('/', '_').replace(':', '_')}.tar"
        self.load_image(images.make_image(tar, name, files, entrypoint, environment=variables))
        tar.unlink()

    def load_image(self, tar: Path) -> None:
        """An archive as `docker save` or `make_image` writes it."""
        bring_up.load_image(self._layout, tar)

    # Breaking and mending it.

    def kill_kubelet(self) -> None:
        """SIGKILL; its pods run on."""
        self.kubelet.kill()

    def start_kubelet(self) -> None:
        bring_up.start_kubelet(self._layout)

    def restart_kubelet(self) -> None:
        self.kill_kubelet()
        self.start_kubelet()

    def kill_containerd(self) -> None:
        """SIGKILL; containers run on."""
        self.containerd.kill()

    def start_containerd(self, *, nri: Nri | None = None) -> None:
        """With NRI as it was, or in another way."""
        if nri is not None:
            bring_up.write_containerd_configuration(self._layout, nri)
        bring_up.start_containerd(self._layout)

    def restart_containerd(self, *, nri: Nri | None = None) -> None:
        self.kill_containerd()
        self.start_containerd(nri=nri)
