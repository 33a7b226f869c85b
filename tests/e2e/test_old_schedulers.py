"""Real kube-schedulers of older versions, configured by `accelshare scheduler-config`, against a current API server.

They are not built by default: `python -m cluster build-scheduler 1.18.19 1.20.15 …` builds some into the cache, and
ACCELSHARE_OLD_SCHEDULERS names another directory with programs called kube-scheduler-VERSION.
"""

import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from accelshare.install.errors import Rejected
from accelshare.install.host_files.changes import PlannedFile
from accelshare.install.scheduler import static_pod
from accelshare.install.scheduler.health import HttpsScheduler
from accelshare.install.scheduler.plan import Existing, SchedulerPlan
from accelshare.install.scheduler.release import Kind, configurations, parse
from accelshare.install.scheduler.validation import checker
from cluster.build import Binaries
from cluster.https import free_port
from cluster.old_scheduler import built
from tests.e2e.scheduling_cluster import SchedulingCluster, cards
from tests.e2e.test_scheduler_config import Kubelet, Node
from tests.unit.install.scheduler.builders import KUBEADM, intent
from tests.unit.install.scheduler.test_static_pod import POLICY_CONTENT, policy_manifest

PROGRAMS = built()
# What today's API server serves no more; without these a cache never fills, and nothing is scheduled.
GONE = {18: "PodDisruptionBudget=false", 20: "PodDisruptionBudget=false", 22: "CSIStorageCapacity=false"}
KINDS: list[Kind] = ["policy", "configuration"]
CASES = [
    (version, kind)
    for version in PROGRAMS
    for kind in KINDS
    if (kind == "policy") <= (parse(version).minor < 22) and (kind == "configuration") <= bool(configurations(parse(version)))
]
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not CASES, reason="no old kube-scheduler: python -m cluster build-scheduler 1.18.19 1.20.15"),
]


def minor(version: str) -> int:
    return parse(version).minor


class OldNode(Node):
    """A control-plane node of an old version, as its kubeadm made it: --port=0, and health at /healthz."""

    def __init__(self, scheduling_cluster: SchedulingCluster, root: Path, version: str, *, without_gates: bool = False) -> None:
        self.programs = Binaries({"kube-scheduler": PROGRAMS[version]})
        self.root = root
        self.port = free_port()
        kubeconfig = scheduling_cluster.plane.kubeconfig_for("system:kube-scheduler")
        words = [f"--secure-port={self.port}"]
        words += ["--port=0"] if minor(version) < 23 else []
        # By default it would keep Endpoints too, which today's role of kube-scheduler has no right to.
        words += ["--leader-elect-resource-lock=leases"] if minor(version) < 20 else []
        words += [f"--feature-gates={GONE[minor(version)]}"] if minor(version) in GONE and not without_gates else []
        text = KUBEADM.decode().replace("v1.36.4", f"v{version}").replace("/etc/kubernetes/scheduler.conf", str(kubeconfig))
        text = re.sub(r"path: /(readyz|livez)", "path: /healthz", text)
        lines = "".join(f"    - {word}\n" for word in words)
        self.original = text.replace("    - --leader-elect=true\n", f"    - --leader-elect=true\n{lines}").encode()
        self.manifest = root / "manifests" / "kube-scheduler.yaml"
        self.manifest.parent.mkdir()
        self.manifest.write_bytes(self.original)
        self.kubelet = Kubelet(self.manifest, self.programs, root / "logs")

    @property
    def health(self) -> HttpsScheduler:
        return HttpsScheduler(f"https://127.0.0.1:{self.port}/healthz")


@pytest.fixture
async def root(scheduling_cluster: SchedulingCluster, tmp_path: Path) -> AsyncIterator[Path]:
    """The extender beside the API server, and a place for the node."""
    await scheduling_cluster.start_extender()
    place = tmp_path / "node"
    place.mkdir()
    yield place
    await scheduling_cluster.delete("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler")


def listeners(port: int) -> set[str]:
    """The addresses, as the kernel writes them, on which a process listens at this port."""
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {words[1].split(":")[0] for words in lines if words[3] == "0A" and int(words[1].split(":")[1], 16) == port}


@pytest.mark.parametrize(("version", "kind"), CASES)
async def test_pods_of_every_sort_under_an_old_scheduler(
    scheduling_cluster: SchedulingCluster, root: Path, version: str, kind: Kind
) -> None:
    """Applied beside the running one: cards assigned, reasons reported, no useless eviction, no open port, restored."""
    node = OldNode(scheduling_cluster, root, version)
    node.kubelet.start()
    try:
        await scheduling_cluster.until(lambda: node.health.check_health().healthy, "the old kube-scheduler is healthy")
        program = f"--kube-scheduler={node.programs['kube-scheduler']}"
        applied = node.run(
            "apply", f"--url={scheduling_cluster.extender_url}/accelshare", "--vendor=nvidia", f"--kind={kind}", program
        )
        assert applied.returncode == 0, applied.stderr
        assert applied.stderr.endswith("applied\n")
        assert "health is checked" not in applied.stderr
        assert listeners(10251) <= {"0100007F"}  # 127.0.0.1

        await scheduling_cluster.node("n1", {"aliyun.com/gpu-mem": 32, "aliyun.com/gpu-count": 2})
        await scheduling_cluster.pod("slice", {"aliyun.com/gpu-mem": 8})
        assert cards((await scheduling_cluster.bound("slice"))["slice"], "nvidia") == [0]
        await scheduling_cluster.pod("large", {"aliyun.com/gpu-mem": 20})
        await scheduling_cluster.refused("large", "Insufficient GPU Memory in one device")
        await scheduling_cluster.delete("/api/v1/namespaces/default/pods/large")

        await scheduling_cluster.node("small", {"aliyun.com/gpu-mem": 16, "aliyun.com/gpu-count": 2})
        await scheduling_cluster.pod("beside", {"aliyun.com/gpu-mem": 16})
        await scheduling_cluster.pod("low", {"aliyun.com/gpu-mem": 8}, nodeSelector={"kubernetes.io/hostname": "small"})
        await scheduling_cluster.bound("beside", "low")
        level = {"metadata": {"name": "high", "labels": {"accelshare-test": "true"}}, "value": 1000}
        await scheduling_cluster.create("/apis/scheduling.k8s.io/v1/priorityclasses", level)
        await scheduling_cluster.pod("high", {"aliyun.com/gpu-mem": 16}, priorityClassName="high")
        victims: list[str] = await scheduling_cluster.until(
            lambda: terminating(scheduling_cluster), "a pod is asked to make room"
        )
        assert set(victims) < {"slice", "beside"}  # small's cards have 8 units: no eviction there could help
        for victim in victims:  # as their kubelet would
            await scheduling_cluster.delete(f"/api/v1/namespaces/default/pods/{victim}")
        assert cards((await scheduling_cluster.bound("high"))["high"], "nvidia") in ([0], [1])
        assert (await scheduling_cluster.one("high"))["spec"]["nodeName"] == "n1"
        assert await terminating(scheduling_cluster) == []

        restored = node.run("restore")
        assert restored.returncode == 0, restored.stderr
        assert node.manifest.read_bytes() == node.original
    finally:
        node.kubelet.end()


async def terminating(scheduling_cluster: SchedulingCluster) -> list[str]:
    return [name for name, pod in (await scheduling_cluster.pods()).items() if "deletionTimestamp" in pod["metadata"]]


@pytest.mark.parametrize("version", [version for version in PROGRAMS if minor(version) in GONE])
async def test_a_healthy_old_scheduler_that_schedules_nothing_is_not_called_applied(
    scheduling_cluster: SchedulingCluster, root: Path, version: str
) -> None:
    """One of its caches never fills: /healthz is ok, and no pod would ever be scheduled."""
    node = OldNode(scheduling_cluster, root, version, without_gates=True)
    node.kubelet.start()
    try:
        await scheduling_cluster.until(lambda: node.health.check_health().healthy, "the old kube-scheduler is healthy")
        words = [f"--url={scheduling_cluster.extender_url}/accelshare", "--wait-s=20", f"--log-directory={node.root / 'logs'}"]
        applied = node.run("apply", *words)
        assert applied.returncode == 1
        assert "does not schedule" in applied.stderr
        assert node.manifest.read_bytes() == node.original
    finally:
        node.kubelet.end()


@pytest.mark.parametrize("version", [version for version in PROGRAMS if minor(version) == 22])
def test_any_policy_fails_on_122_and_ours_is_still_checked(
    scheduling_cluster: SchedulingCluster, tmp_path: Path, version: str
) -> None:
    kubeconfig = scheduling_cluster.plane.kubeconfig_for("system:kube-scheduler")
    file = tmp_path / "policy.json"
    file.write_bytes(POLICY_CONTENT)
    words = [str(PROGRAMS[version]), f"--policy-config-file={file}", f"--kubeconfig={kubeconfig}", "--port=0", "--secure-port=0"]
    done = subprocess.run([*words, f"--write-config-to={tmp_path}/out"], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode != 0
    assert "NodeResourcesLeastAllocatedArgs" in done.stderr

    manifest = policy_manifest(version=f"v{version}").replace(b"/etc/kubernetes/scheduler.conf", str(kubeconfig).encode())
    made = static_pod.plan(manifest, "manifest", Existing("/etc/kubernetes/policy.json", POLICY_CONTENT), intent(version=version))
    check = checker(PROGRAMS[version], parse(version))
    check(made)
    broken = PlannedFile(made.configuration.path, made.configuration.content.replace(b"GeneralPredicates", b"NoSuchPredicate"))
    with pytest.raises(Rejected, match="NoSuchPredicate"):
        check(SchedulerPlan(broken, made.trigger, made.words))
