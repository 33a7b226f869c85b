"""Commands on a node: the agent beside a fake kubelet, and the configuration of a real containerd."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from accelshare.testing.fake_kubelet import FakeKubelet
from accelshare.wire import inventory
from cluster.build import binaries
from cluster.https import free_port
from tests.contract.docs.machine import Machine, possible
from tests.contract.docs.page_runner import PageRunner
from tests.contract.docs.pages import block, commands
from tests.e2e.scheduling_cluster import SchedulingCluster, annotations
from tests.fakes.build import build
from tests.fakes.hardware import Hardware

pytestmark = pytest.mark.real
CONTAINERD = """[Service]
Type=notify
ExecStart={program}
"""
# The page's node has a file of its own.
CONFIG = 'version = 3\nroot = "/var/lib/containerd"\n'


@pytest.fixture
def kubelets_directory() -> Iterator[Path]:
    """With a short name: a socket's path has at most 107 characters."""
    directory = Path(tempfile.mkdtemp(prefix="k-"))
    yield directory
    shutil.rmtree(directory)


async def test_agent(scheduling_cluster: SchedulingCluster, kubelets_directory: Path, tmp_path: Path) -> None:
    """A kubelet in memory, and a card that NVIDIA's library tells of: the cluster hears of it."""
    if why := possible():
        pytest.skip(why)
    hardware = Hardware(build("nvidia", tmp_path / "hardware"))
    hardware.has({"index": 0, "uuid": "GPU-1", "memory_mib": 16384, "minor": 0})
    await scheduling_cluster.node("worker-0", {})
    port = free_port()
    environment = {"KUBECONFIG": str(scheduling_cluster.plane.kubeconfig), "LD_LIBRARY_PATH": str(hardware.folder)}
    seen = [scheduling_cluster.plane.directory, kubelets_directory, hardware.folder]
    with Machine(tmp_path / "docs", seen=seen, environment=environment) as machine:
        machine.must(f"rm -rf /var/lib/kubelet; ln -s {kubelets_directory} /var/lib/kubelet")
        async with FakeKubelet(scheduling_cluster.client, "worker-0", kubelets_directory):
            page_runner = PageRunner(machine, {r"--port 12346": f"--port {port}"})
            await page_runner.run(commands("docs/how-to/agent.md"))

            async def node_delivers() -> bool:
                text = annotations(await scheduling_cluster.read("/api/v1/nodes/worker-0")).get(inventory.KEY, "{}")
                found = inventory.entries_of(text).get("nvidia")
                return found is not None and found.delivers

            await scheduling_cluster.until(node_delivers, "the node says that it delivers")
            assert machine.must(f"curl -s http://127.0.0.1:{port}/readyz") == "ok"
            await page_runner.end()


async def test_delivery(machine: Machine) -> None:
    """The plan is the one that the page shows; after the restart the runtime insists; put back, every file is as it was."""
    page = "docs/how-to/delivery.md"
    machine.write("/etc/containerd/config.toml", CONFIG)
    unit = CONTAINERD.format(program=binaries(["containerd"], lambda _words: None)["containerd"])
    machine.write("/etc/systemd/system/containerd.service", unit)
    page_runner = PageRunner(machine)
    await page_runner.run(commands(page))
    assert page_runner.out("accelshare runtime-config plan") == block(page, "diff")
    assert page_runner.out("accelshare runtime-config status").startswith("enabled\n")
    assert machine.read("/etc/containerd/config.toml") == CONFIG
    machine.must("systemctl stop containerd")
