"""Certificate rotation: a real kube-scheduler, the manager as its own process, mutual TLS, certificates that live for seconds.

Played by the test: kubelet, which starts kube-scheduler from its manifest and mounts the extender's Secret; and kube-proxy, by a
Service network on loopback, where every address is this machine.
"""

import asyncio
import base64
import contextlib
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from accelshare.install.certificates import x509
from accelshare.kube.errors import KubeError
from cluster.control_plane import ControlPlane
from cluster.errors import ClusterError
from cluster.process import Process
from tests.e2e.rights import STATE, grant
from tests.e2e.scheduling_cluster import SchedulingCluster, cards, open_scheduling_cluster
from tests.e2e.test_scheduler_config import Node

pytestmark = pytest.mark.real
ROOT = Path(__file__).parents[2]
NAMESPACE = "kube-system"
MANAGER = "accelshare-scheduler-manager"
SECONDS = 1 / 86400  # in days


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One whose Services have addresses that lead here."""
    directory = tmp_path_factory.mktemp("rotation")
    with ControlPlane.start(directory, api_server_args=["--service-cluster-ip-range=127.97.0.0/16"]) as started:
        yield started


class Scene:
    """Manager, extender and kube-scheduler as the chart would have them."""

    def __init__(self, scheduling_cluster: SchedulingCluster, node: Node, address: str) -> None:
        self.scheduling_cluster = scheduling_cluster
        self.node = node
        self.address = address
        self.tls = node.root / "pki" / "mounted"
        self.manager: Process | None = None

    def start_manager(self, *flags: str) -> None:
        command = [sys.executable, "-m", "accelshare", "scheduler-config", "manage", "--node-name=cp-1"]
        command += [
            f"--namespace={NAMESPACE}",
            f"--port={self.scheduling_cluster.port}",
            "--every-s=0.2",
            "--vendor=nvidia",
            *flags,
        ]
        command += [f"--manifest={self.node.manifest}", f"--directory={self.node.root / 'accelshare'}"]
        command += [f"--backup-directory={self.node.root / 'backup'}", f"--log-directory={self.node.root / 'logs'}"]
        command += [f"--kubeconfig={self.scheduling_cluster.plane.kubeconfig_for(MANAGER)}"]
        self.manager = Process("manager", command, self.scheduling_cluster.directory / "manager.log")

    def start_extender(self) -> None:
        """Its flags as in the chart; the second --listen wins over the house's."""
        files = [f"--tls-cert={self.tls}/tls.crt", f"--tls-key={self.tls}/tls.key", f"--client-ca={self.tls}/ca.crt"]
        self.scheduling_cluster.begin_extender(f"--listen={self.address}:{self.scheduling_cluster.port}", *files)

    async def state(self) -> str:
        found = await self.scheduling_cluster.read(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{STATE}")
        return str(found["data"].get("node.cp-1", ""))

    async def applied(self) -> None:
        async def right() -> bool:
            assert self.manager is not None
            assert self.manager.running, self.manager.last_lines()
            return await self.state() == "applied"

        try:
            await self.scheduling_cluster.until(right, "the manager has put it in")
        except ClusterError as error:
            assert self.manager is not None
            raise ClusterError(f"{error}\n{self.manager.last_lines(40)}") from error

    async def bound(self, *names: str) -> None:
        for name in names:
            await self.scheduling_cluster.pod(name, {"aliyun.com/gpu-mem": 1})
        for pod in (await self.scheduling_cluster.bound(*names)).values():
            assert cards(pod, "nvidia") != []  # the extender chose

    def certificate(self) -> str:
        return (self.node.root / "accelshare" / "client" / "tls.crt").read_text()

    async def renewed_and_expired(self) -> None:
        """kube-scheduler has another pair than now, and the one of now is of no use any more."""
        last = self.certificate()
        until = x509.facts(last).until
        await self.scheduling_cluster.until(lambda: self.certificate() != last, "kube-scheduler's pair is renewed")
        await self.scheduling_cluster.until(lambda: datetime.now(UTC) > until, "the last one has expired")

    async def mount(self) -> None:
        """The Secret as kubelet mounts it: files in a directory of their own, switched by one rename."""
        last: dict[str, str] = {}
        number = 0
        while True:
            with contextlib.suppress(KubeError):
                secret = await self.scheduling_cluster.read(f"/api/v1/namespaces/{NAMESPACE}/secrets/accelshare-extender-tls")
                if secret["data"] != last:
                    last, number = secret["data"], number + 1
                    data = self.tls.parent / f"..data-{number}"
                    data.mkdir(parents=True)
                    for name, value in last.items():
                        (data / name).write_bytes(base64.b64decode(value))
                    fresh = self.tls.with_name("..fresh")
                    fresh.symlink_to(data.name)
                    os.replace(fresh, self.tls)  # noqa: PTH105 – as kubelet does it
                    for old in self.tls.parent.glob("..data-*"):
                        if old != data:
                            shutil.rmtree(old)
            await asyncio.sleep(0.1)


@pytest.fixture
async def scene(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Scene]:
    async with open_scheduling_cluster(plane, tmp_path) as scheduling_cluster:
        await grant(scheduling_cluster, MANAGER, NAMESPACE)
        place = f"/api/v1/namespaces/{NAMESPACE}"
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "accelshare-extender"}}
        made = await scheduling_cluster.create(f"{place}/services", {**service, "spec": {"ports": [{"port": 12345}]}})
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": STATE}, "data": {"wanted": "applied"}}
        await scheduling_cluster.create(f"{place}/configmaps", config_map)
        root = tmp_path / "node"
        root.mkdir()
        node = Node(plane, root)
        opened = Scene(scheduling_cluster, node, made["spec"]["clusterIP"])
        node.kubelet.start()
        mounting = asyncio.create_task(opened.mount())
        try:
            await scheduling_cluster.until(lambda: node.health.check_health().healthy, "kubeadm's kube-scheduler is healthy")
            await scheduling_cluster.node("n1", {"aliyun.com/gpu-mem": 512, "aliyun.com/gpu-count": 2})
            yield opened
        finally:
            mounting.cancel()
            if opened.manager is not None:
                opened.manager.stop()
            node.kubelet.end()
            for path in ("services/accelshare-extender", f"configmaps/{STATE}"):
                await scheduling_cluster.delete(f"{place}/{path}")
            for secret in ("accelshare-ca", "accelshare-extender-tls", "accelshare-scheduler-tls"):
                await scheduling_cluster.delete(f"{place}/secrets/{secret}")
            for kind in ("roles", "rolebindings"):
                await scheduling_cluster.delete(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/{kind}/{MANAGER}")


async def test_client_certificates_are_renewed_under_load_without_a_restart(scene: Scene) -> None:
    """The extender is ended again and again, so that each time kube-scheduler needs a handshake, after the last pair has expired.

    This is also how we know that kube-scheduler reads its files anew: with the pair of its start it would be refused.
    """
    leaf_s = 15
    scene.start_manager(f"--leaf-days={leaf_s * SECONDS}", f"--ca-days={10000 * leaf_s * SECONDS}")
    await scene.scheduling_cluster.until(lambda: scene.tls.exists(), "the extender's Secret is mounted")
    scene.start_extender()
    await scene.applied()
    await scene.bound("first")
    starts, seen = scene.node.kubelet.starts, {scene.certificate()}
    for number in range(2):
        await scene.renewed_and_expired()
        seen.add(scene.certificate())
        assert scene.scheduling_cluster.extender is not None
        scene.scheduling_cluster.extender.stop()
        scene.start_extender()
        await scene.bound(*(f"pod-{number}-{each}" for each in range(5)))
    assert len(seen) == 3
    assert scene.node.kubelet.starts == starts
    assert await scene.state() == "applied"


async def test_a_ca_that_was_thrown_away_is_replaced_on_both_sides(scene: Scene) -> None:
    """kube-scheduler reads a CA at its start only: the manager restarts it with all the usual care."""
    scene.start_manager()
    await scene.scheduling_cluster.until(lambda: scene.tls.exists(), "the extender's Secret is mounted")
    scene.start_extender()
    await scene.applied()
    await scene.bound("before")
    starts, before = scene.node.kubelet.starts, scene.certificate()
    await scene.scheduling_cluster.delete(f"/api/v1/namespaces/{NAMESPACE}/secrets/accelshare-ca")
    await scene.scheduling_cluster.until(lambda: scene.certificate() != before, "kube-scheduler's pair is of the new CA")
    await scene.scheduling_cluster.until(lambda: scene.node.kubelet.starts > starts, "kube-scheduler was restarted")
    await scene.applied()
    await scene.bound("after")  # over a new connection to an extender that was not restarted
    ours = scene.node.root / "accelshare"
    await scene.scheduling_cluster.until(lambda: len(list(ours.glob("ca-*.crt"))) == 1, "the old CA's file is gone")


async def test_the_managers_end_leaves_nothing(scene: Scene) -> None:
    """restore-all while the manager runs: kubeadm's bytes are back, its scheduler runs, and no file of ours is left."""
    scene.start_manager()
    await scene.scheduling_cluster.until(lambda: scene.tls.exists(), "the extender's Secret is mounted")
    scene.start_extender()
    await scene.applied()
    scene.node.kubeadm()  # as kubeadm upgrade does
    await scene.scheduling_cluster.until(lambda: b"accelshare" in scene.node.manifest.read_bytes(), "the manager has healed it")
    await scene.applied()
    await scene.bound("slice")
    words = [sys.executable, "-m", "accelshare", "scheduler-config", "manage", "--restore-all", f"--namespace={NAMESPACE}"]
    ended = await asyncio.create_subprocess_exec(
        *words, f"--kubeconfig={scene.scheduling_cluster.plane.kubeconfig}", cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await ended.communicate()
    assert (ended.returncode, out.decode().splitlines()[-1]) == (0, "cp-1: restored")
    assert scene.node.manifest.read_bytes() == scene.node.original
    assert scene.node.ours() == set()
    await scene.scheduling_cluster.until(lambda: scene.node.health.check_health().healthy, "kubeadm's kube-scheduler is healthy")
    assert scene.manager is not None
    scene.manager.stop()
    assert scene.manager.exit_code == 0
    assert scene.node.ours() == set()
