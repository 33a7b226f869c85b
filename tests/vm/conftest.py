"""Fixtures: one control plane, kube-scheduler and extender, and one virtual node at a time, which files of tests share."""

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from cluster.components import extender_entry
from cluster.control_plane import ControlPlane
from cluster.https import Https, free_port
from cluster.process import Process
from cluster.vm import network
from cluster.vm.layout import HOST_ADDRESS
from cluster.vm.virtual_node import Parts, VirtualNode, provide
from tests.vm.virtual_cluster import KIND, MEMORY, PROFILE, VirtualCluster, open_virtual_cluster

ROOT = Path(__file__).parents[2]
RIGHTS = ("deploy/agent-rbac.yaml", "deploy/extender-rbac.yaml")


class Nodes:
    """Boots the node that a file of tests needs; the one before is powered off."""

    def __init__(self, parts: Parts, plane: ControlPlane, directory: Path) -> None:
        self._parts = parts
        self._plane = plane
        self._directory = directory
        self._current: tuple[tuple[str, ...], VirtualNode] | None = None
        self._starts = 0

    def get(self, *kernel_arguments: str) -> VirtualNode:
        if self._current is not None and self._current[0] == kernel_arguments:
            return self._current[1]
        self.stop()
        self._starts += 1
        node = VirtualNode.start(
            self._parts,
            self._plane,
            self._directory / f"node-{self._starts}",
            profiles=[PROFILE],
            agent_flags=["--resize", f"--vendor={KIND}"],  # to look for cards of others takes long under emulation
            kernel_arguments=kernel_arguments,
        )
        self._current = (kernel_arguments, node)
        return node

    def stop(self) -> None:
        if self._current is None:
            return
        _, node = self._current
        self._current = None
        node.stop()
        self._plane.kubectl("delete", "node", node.name)


@pytest.fixture(scope="session")
def vm_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that the virtual node can reach; outside of our network namespace nobody can."""
    network.make_tap()
    directory = tmp_path_factory.mktemp("vm")
    with ControlPlane.start(directory / "plane", say=print, address=HOST_ADDRESS) as plane:
        for file in RIGHTS:
            plane.kubectl("apply", "-f", str(ROOT / file))
        yield plane


@pytest.fixture(scope="session")
def processes(vm_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Process, ...]]:
    """Our extender, and a kube-scheduler that calls it."""
    port = free_port()
    command = [sys.executable, "-m", "accelshare", "extender", f"--listen=127.0.0.1:{port}", f"--profiles={PROFILE.parent}"]
    command += [f"--kubeconfig={vm_plane.kubeconfig_for('accelshare-extender')}", "--resize"]
    extender = Process("extender", command, tmp_path_factory.mktemp("extender") / "log")
    try:
        client = Https(vm_plane.ca_file, *vm_plane.client_certificate("tests"))
        extender.wait_ready(lambda: client.answers(f"http://127.0.0.1:{port}/readyz"))
        entry = extender_entry(f"http://127.0.0.1:{port}/accelshare", [MEMORY])
        scheduler = vm_plane.start_scheduler({"percentageOfNodesToScore": 100, "extenders": [entry]})
        yield (extender, scheduler)
    finally:
        extender.stop()


@pytest.fixture(scope="session")
def nodes(vm_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    found = Nodes(provide(print), vm_plane, tmp_path_factory.mktemp("vm-nodes"))
    yield found
    found.stop()


@pytest.fixture
async def virtual_cluster(vm_plane: ControlPlane, nodes: Nodes, processes: tuple[Process, ...]) -> AsyncIterator[VirtualCluster]:
    """With a node whose kernel limits the memory of cards."""
    async with open_virtual_cluster(vm_plane, nodes.get(), processes) as opened:
        yield opened


@pytest.fixture
async def without_dmem(vm_plane: ControlPlane, nodes: Nodes, processes: tuple[Process, ...]) -> AsyncIterator[VirtualCluster]:
    """With a node whose kernel has no device memory controller: as if it had been built without."""
    async with open_virtual_cluster(vm_plane, nodes.get("cgroup_disable=dmem"), processes) as opened:
        yield opened
