"""`accelshare scheduler-config` applied to kubeadm's own manifest and restored, with a real kube-scheduler started from it.

Only kubelet is ours here: a thread that starts what the manifest says, anew when it changes, as the real one does.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from accelshare.install.scheduler.health import HttpsScheduler
from accelshare.kube.errors import NotFound
from cluster.build import Binaries, binaries, missing
from cluster.certificates import Authority
from cluster.control_plane import ControlPlane
from cluster.https import free_port
from cluster.process import Process
from cluster.versions import KUBERNETES_VERSION
from tests.e2e.scheduling_cluster import SchedulingCluster, cards

pytestmark = pytest.mark.real
LIMIT_S = 120.0
ROOT = Path(__file__).parents[2]


class Kubelet(threading.Thread):
    """Watches one manifest. Mounts are not its business: on this machine every path is what it says."""

    def __init__(self, manifest: Path, programs: Binaries, logs: Path) -> None:
        super().__init__(daemon=True)
        self.manifest = manifest
        self._programs = programs
        self._logs = logs / "kube-system_kube-scheduler-here_1" / "kube-scheduler"
        self._logs.mkdir(parents=True)
        self._over = threading.Event()
        self._process: Process | None = None
        self._runs: bytes | None = None
        self.starts = 0
        self.hides: Path | None = None  # a file that a kube-scheduler with a configuration file does not find

    def run(self) -> None:
        while not self._over.wait(0.1):
            content = self.manifest.read_bytes()
            if content != self._runs or (self._process is not None and not self._process.running):
                self._start(content)
                self._over.wait(0.5)  # a crash is not repeated at once
        if self._process is not None:
            self._process.stop()

    def _start(self, content: bytes) -> None:
        if self._process is not None:
            self._process.stop()
        self.starts += 1
        if self.hides is not None and b"--config=" in content:
            self.hides.unlink(missing_ok=True)
        _, *words = yaml.safe_load(content)["spec"]["containers"][0]["command"]
        command = [str(self._programs["kube-scheduler"]), *words]
        self._process = Process("kube-scheduler", command, self._logs / f"{self.starts}.log")
        self._runs = content

    def end(self) -> None:
        self._over.set()
        self.join()


class Node:
    """A control-plane node: kubeadm's manifest and a kubelet."""

    def __init__(self, plane: ControlPlane, root: Path) -> None:
        if lacking := missing(["kubeadm"]):
            pytest.skip(f"{lacking[0]} is not built: python -m cluster build")
        self.programs = binaries(["kubeadm", "kube-scheduler"])
        self.root = root
        self.port = free_port()
        self.kubeconfig = plane.kubeconfig_for("system:kube-scheduler")
        self.manifest = root / "manifests" / "kube-scheduler.yaml"
        self.manifest.parent.mkdir()
        self.kubeadm()
        self.original = self.manifest.read_bytes()
        self.kubelet = Kubelet(self.manifest, self.programs, root / "logs")

    def kubeadm(self) -> None:
        """What `kubeadm init` and `kubeadm upgrade` write, with the paths and the port of this test."""
        arguments = {
            name: str(self.kubeconfig) for name in ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
        }
        config = {
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "ClusterConfiguration",
            "kubernetesVersion": KUBERNETES_VERSION,
            "scheduler": {
                "extraArgs": [
                    {"name": name, "value": value} for name, value in (arguments | {"secure-port": str(self.port)}).items()
                ]
            },
        }
        file, out = self.root / "kubeadm.yaml", self.root / "kubeadm"
        file.write_text(yaml.safe_dump(config))
        out.mkdir(exist_ok=True)
        words = [str(self.programs["kubeadm"]), "init", "phase", "control-plane", "scheduler", f"--config={file}", "--dry-run"]
        environ = {"KUBEADM_INIT_DRYRUN_DIR": str(out), "PATH": os.environ["PATH"], "HOME": str(self.root)}
        done = subprocess.run(words, env=environ, capture_output=True, text=True, check=False, timeout=LIMIT_S)
        assert done.returncode == 0, done.stderr
        fresh = self.root / "kube-scheduler.fresh.yaml"  # so that the kubelet never reads half of it
        fresh.write_bytes((out / "kube-scheduler.yaml").read_bytes())
        fresh.replace(self.manifest)

    @property
    def health(self) -> HttpsScheduler:
        return HttpsScheduler(f"https://127.0.0.1:{self.port}/readyz")

    def run(self, command: str, *words: str) -> subprocess.CompletedProcess[str]:
        places = [
            f"--manifest={self.manifest}",
            f"--directory={self.root / 'accelshare'}",
            f"--backup-directory={self.root / 'backup'}",
        ]
        if command in ("apply", "restore"):
            places += (
                [f"--log-directory={self.root / 'logs'}", f"--wait-s={LIMIT_S}"] if "--wait-s" not in " ".join(words) else []
            )
        whole = [sys.executable, "-m", "accelshare", "scheduler-config", command, *places, *words]
        return subprocess.run(whole, cwd=ROOT, capture_output=True, text=True, check=False, timeout=3 * LIMIT_S)

    def ours(self) -> set[str]:
        """Everything that is not kubeadm's or the test's."""
        own = {"manifests", "manifests/kube-scheduler.yaml", "kubeadm.yaml", "kubeadm", "kubeadm/kube-scheduler.yaml"}
        there = {str(path.relative_to(self.root)) for path in self.root.rglob("*")}
        return {path for path in there - own if path.partition("/")[0] not in ("logs", "pki")}


@pytest.fixture
async def node(scheduling_cluster: SchedulingCluster, tmp_path: Path) -> AsyncIterator[Node]:
    """It runs kube-scheduler as kubeadm wants it."""
    root = tmp_path / "node"
    root.mkdir()
    made = Node(scheduling_cluster.plane, root)
    made.kubelet.start()
    try:
        await scheduling_cluster.until(lambda: made.health.check_health().healthy, "kubeadm's kube-scheduler is healthy")
        yield made
    finally:
        made.kubelet.end()


async def test_the_real_scheduler_asks_the_extender_and_forgets_it_again(
    scheduling_cluster: SchedulingCluster, node: Node
) -> None:
    """Put in, used, put in again, taken out: kubeadm's bytes are back, and nothing of ours is left."""
    assert node.run("status").returncode == 3
    assert node.ours() == set()
    await scheduling_cluster.start_extender()
    await scheduling_cluster.node("n1", {"aliyun.com/gpu-mem": 32, "aliyun.com/gpu-count": 2})
    words = [
        f"--url={scheduling_cluster.extender_url}/accelshare",
        "--vendor=nvidia",
        f"--kube-scheduler={node.programs['kube-scheduler']}",
    ]

    planned = node.run("plan", *words[:2])
    assert (planned.returncode, node.manifest.read_bytes()) == (0, node.original)
    applied = node.run("apply", *words)
    assert applied.returncode == 0, applied.stderr
    assert applied.stdout == planned.stdout
    assert node.run("status").returncode == 0

    await scheduling_cluster.pod("slice", {"aliyun.com/gpu-mem": 8})
    bound = await scheduling_cluster.bound("slice")
    assert cards(bound["slice"], "nvidia") == [0]

    starts = node.kubelet.starts
    again = node.run("apply", *words)
    assert (again.returncode, again.stdout, again.stderr.splitlines()[-1]) == (0, "", "unchanged")
    assert node.kubelet.starts == starts

    restored = node.run("restore")
    assert restored.returncode == 0, restored.stderr
    assert node.manifest.read_bytes() == node.original
    assert node.ours() == set()
    assert scheduling_cluster.extender is not None
    scheduling_cluster.extender.stop()
    await scheduling_cluster.pod("without", {"aliyun.com/gpu-mem": 8})
    assert cards((await scheduling_cluster.bound("without"))["without"], "nvidia") == []  # nobody asked the extender any more


async def test_over_mutual_tls(scheduling_cluster: SchedulingCluster, node: Node) -> None:
    pki = node.root / "pki"
    authority = Authority(pki)
    certificate, key = authority.serving_certificate("extender")
    client, client_key = authority.client_certificate("kube-scheduler")
    scheduling_cluster.begin_extender(f"--tls-cert={certificate}", f"--tls-key={key}", f"--client-ca={authority.file}")
    await scheduling_cluster.node("n1", {"aliyun.com/gpu-mem": 32, "aliyun.com/gpu-count": 2})
    url = f"https://127.0.0.1:{scheduling_cluster.port}/accelshare"
    words = [f"--ca-file={authority.file}", f"--cert-file={client}", f"--key-file={client_key}"]
    applied = node.run("apply", f"--url={url}", *words, "--accept-proposals")
    assert applied.returncode == 0, applied.stderr
    await scheduling_cluster.pod("slice", {"aliyun.com/gpu-mem": 8})
    assert cards((await scheduling_cluster.bound("slice"))["slice"], "nvidia") == [0]
    assert node.run("restore").returncode == 0
    assert node.manifest.read_bytes() == node.original


async def test_a_scheduler_that_does_not_start_is_rolled_back(scheduling_cluster: SchedulingCluster, node: Node) -> None:
    """A CA that goes while kube-scheduler starts: it ends at its start, and its own words are the reason given."""
    authority = Authority(node.root / "pki")
    url = "--url=https://127.0.0.1:1/accelshare"
    checked = node.run("apply", url, f"--ca-file={node.root}/nowhere.crt")
    assert checked.returncode == 1
    assert f"{node.root}/nowhere.crt does not exist" in checked.stderr
    assert node.ours() == set()

    node.kubelet.hides = authority.file
    applied = node.run("apply", url, f"--ca-file={authority.file}", "--wait-s=15", f"--log-directory={node.root / 'logs'}")
    assert applied.returncode == 1
    assert str(authority.file) in applied.stderr
    assert "the former files are restored, and kube-scheduler is healthy" in applied.stderr
    assert node.manifest.read_bytes() == node.original
    assert node.ours() == set()
    await scheduling_cluster.until(lambda: node.health.check_health().healthy, "kubeadm's kube-scheduler is healthy again")


async def test_beside_a_leader_on_another_host_it_is_a_standby(scheduling_cluster: SchedulingCluster, node: Node) -> None:
    """Then `apply` does not say that this host's kube-scheduler schedules pods. When the other host is gone, it does."""
    await scheduling_cluster.start_extender()
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"

    async def leads() -> bool:
        with contextlib.suppress(NotFound):
            return bool((await scheduling_cluster.read(lease))["spec"].get("holderIdentity"))
        return False

    await scheduling_cluster.until(leads, "kubeadm's kube-scheduler leads")

    async def lead() -> None:
        while True:
            now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
            spec = {"holderIdentity": "cp-9_77aa", "leaseDurationSeconds": 15, "renewTime": now}
            await scheduling_cluster.patch(lease, {"spec": spec})
            await asyncio.sleep(0.5)

    url = f"--url={scheduling_cluster.extender_url}/accelshare"
    other = asyncio.create_task(lead())
    try:
        applied = await asyncio.to_thread(node.run, "apply", url, "--vendor=nvidia")
        assert applied.returncode == 0, applied.stderr
        assert applied.stderr.endswith("applied as standby\n")
        assert "host cp-9 holds the Lease" in applied.stderr
        ready = "it has read its configuration, and its caches are filled"
        await scheduling_cluster.until(lambda: node.health.not_ready() is None, ready)
    finally:
        other.cancel()
    await scheduling_cluster.node("n1", {"aliyun.com/gpu-mem": 32, "aliyun.com/gpu-count": 2})
    await scheduling_cluster.pod("slice", {"aliyun.com/gpu-mem": 8})
    assert cards((await scheduling_cluster.bound("slice"))["slice"], "nvidia") == [0]
    again = node.run("apply", url, "--vendor=nvidia", "--timeout-ms=4000")
    assert again.returncode == 0, again.stderr
    assert again.stderr.endswith("\napplied\n")
    assert node.run("restore").returncode == 0


async def test_kubeadm_upgrade_is_noticed_and_healed(scheduling_cluster: SchedulingCluster, node: Node) -> None:
    await scheduling_cluster.start_extender()
    url = f"--url={scheduling_cluster.extender_url}/accelshare"
    assert node.run("apply", url).returncode == 0
    node.kubeadm()
    told = node.run("status", "-o", "json")
    assert (told.returncode, json.loads(told.stdout)["state"]) == (5, "overwritten")
    healed = node.run("apply", url)
    assert healed.returncode == 0, healed.stderr
    await scheduling_cluster.node("n1", {"aliyun.com/gpu-mem": 32, "aliyun.com/gpu-count": 2})
    await scheduling_cluster.pod("slice", {"aliyun.com/gpu-mem": 8})
    assert cards((await scheduling_cluster.bound("slice"))["slice"], "nvidia") == [0]
    assert node.run("restore").returncode == 0
    assert node.manifest.read_bytes() == node.original


async def test_the_version_is_asked_from_the_api_server(scheduling_cluster: SchedulingCluster) -> None:
    words = ["-m", "accelshare", "scheduler-config", "render", "--url=http://127.0.0.1:1/accelshare"]
    done = subprocess.run(
        [sys.executable, *words, f"--kubeconfig={scheduling_cluster.plane.kubeconfig}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout)["apiVersion"] == "kubescheduler.config.k8s.io/v1"


def test_the_sample_that_unit_tests_use_is_what_kubeadm_writes(tmp_path: Path) -> None:
    if lacking := missing(["kubeadm"]):
        pytest.skip(f"{lacking[0]} is not built: python -m cluster build")
    words = [str(binaries(["kubeadm"])["kubeadm"]), "init", "phase", "control-plane", "scheduler", "--dry-run"]
    environ = {"KUBEADM_INIT_DRYRUN_DIR": str(tmp_path), "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(
        [*words, f"--kubernetes-version={KUBERNETES_VERSION}"],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    sample = ROOT / "tests/unit/install/scheduler/kubeadm-1.36.yaml"
    assert (tmp_path / "kube-scheduler.yaml").read_bytes() == sample.read_bytes()
