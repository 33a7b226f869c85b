"""`accelshare doctor` on a real API server: an installation by the chart is healthy, and each fault is named.

There is no kubelet: the test creates the pods of DaemonSets and writes the status of pods, as kubelet would.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from accelshare.doctor.checks import CHECKS
from accelshare.install.certificates import x509
from tests.contract.test_doctor import DoctorRun, run
from tests.e2e.install.cluster_admin import ClusterAdmin
from tests.e2e.install.hook_runner import NAMESPACE

pytestmark = pytest.mark.real
EXTENDER = "gpushare-schd-extender"
AGENT = "gpushare-device-plugin-ds"
MANAGER = "accelshare-scheduler-manager"
INVENTORY = {
    "nvidia": {
        "cards": [{"index": index, "size": 16, "id": f"GPU-{index}"} for index in range(2)],
        "unit": "GiB",
        "delivery": "nri",
        "insists": True,
    }
}
INFO = ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "kubeProxyVersion", "operatingSystem", "architecture")
Change = Callable[["Installation"], Awaitable[None]]


class Installation:
    """The chart on the cluster, with pods that look as if kubelets ran them."""

    def __init__(self, admin: ClusterAdmin) -> None:
        self.admin = admin
        self.cluster = admin.scheduling_cluster

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        return self.cluster.plane.kubectl(*words, stdin=stdin)

    async def doctor(self, *words: str) -> DoctorRun:
        return await asyncio.to_thread(run, self.cluster.plane.kubeconfig, "-o", "json", "--patience=0", *words)

    async def set_up(self) -> None:
        # The policy refuses records that this test writes by hand.
        await self.admin.install("--set=admissionPolicy.enabled=false")
        for name in ("n1", "n2", "n3"):
            info = dict.fromkeys(INFO, "x") | {"kubeletVersion": "v1.36.4", "containerRuntimeVersion": "containerd://2.4.2"}
            conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
            await self.cluster.patch(f"/api/v1/nodes/{name}/status", {"status": {"nodeInfo": info, "conditions": conditions}})
        await self.annotate_node({"accelshare.io/inventory": json.dumps(INVENTORY)})
        await self.pod_of("daemonset", AGENT, "agent-1", "n1")
        await self.pod_of("daemonset", MANAGER, "manager-1", "n1")
        for extender in await self.cluster.until(self.extender_pods, "the extender's pod is created"):
            await self.make_ready(extender)
        await self.scheduler_pod(configured=True)
        state = {"data": {"node.n1": "applied"}}
        await self.cluster.patch(f"/api/v1/namespaces/{NAMESPACE}/configmaps/accelshare-scheduler-config", state)

    async def extender_pods(self) -> list[str]:
        pods = await self.cluster.pods(NAMESPACE)
        labels = {name: pod["metadata"].get("labels") or {} for name, pod in pods.items()}
        return [name for name in pods if labels[name].get("app.kubernetes.io/component") == "extender"]

    async def pod_of(self, kind: str, owner: str, name: str, node: str) -> None:
        """A pod of this workload's template on this node, ready."""
        template = self.admin.read(kind, owner)["spec"]["template"]
        metadata = {"name": name, "labels": template["metadata"]["labels"]}
        content = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**template["spec"], "nodeName": node}}
        await self.cluster.create(f"/api/v1/namespaces/{NAMESPACE}/pods", content)
        await self.make_ready(name)

    async def make_ready(self, name: str, *, ready: bool = True, namespace: str = NAMESPACE) -> None:
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        status = {"status": {"phase": "Running", "conditions": conditions}}
        await self.cluster.patch(f"/api/v1/namespaces/{namespace}/pods/{name}/status", status)

    async def scheduler_pod(self, *, configured: bool) -> None:
        """The mirror pod of kube-scheduler on n1; only kubelet can create a real one, so it is a pod with its annotations."""
        own = {"checksum/accelshare-scheduler-config": "1"} if configured else {}
        metadata = {
            "name": "kube-scheduler-n1",
            "labels": {"component": "kube-scheduler"},
            "annotations": {"kubernetes.io/config.mirror": "hash", "kubernetes.io/config.source": "file", **own},
        }
        container = {"name": "kube-scheduler", "image": "none", "command": ["kube-scheduler"]}
        spec = {"nodeName": "n1", "hostNetwork": True, "containers": [container], "automountServiceAccountToken": False}
        content = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        await self.delete_pod("kube-scheduler-n1")
        await self.cluster.create(f"/api/v1/namespaces/{NAMESPACE}/pods", content)
        await self.make_ready("kube-scheduler-n1")

    async def delete_pod(self, name: str) -> None:
        await self.cluster.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{name}")

    async def annotate_node(self, annotations: dict[str, str], name: str = "n1") -> None:
        await self.cluster.patch(f"/api/v1/nodes/{name}", {"metadata": {"annotations": annotations}})

    async def lease(self, name: str, skew: timedelta, namespace: str = "kube-node-lease") -> None:
        renewed = (datetime.now(UTC) + skew).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        await self.delete_lease(name, namespace)
        body = {"metadata": {"name": name}, "spec": {"holderIdentity": name, "renewTime": renewed}}
        await self.cluster.create(path, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **body})

    async def delete_lease(self, name: str, namespace: str) -> None:
        await self.cluster.delete(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}")

    async def waiting(self, name: str, message: str) -> None:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        await self.cluster.patch(f"/api/v1/namespaces/default/pods/{name}/status", {"status": {"conditions": [condition]}})


@pytest.fixture
async def installation(admin: ClusterAdmin) -> AsyncIterator[Installation]:
    made = Installation(admin)
    await made.set_up()
    yield made
    # No manager runs here that could restore kube-scheduler; the uninstall would wait for it.
    state = {"data": {"node.n1": None}}
    await made.cluster.patch(f"/api/v1/namespaces/{NAMESPACE}/configmaps/accelshare-scheduler-config", state)
    # And no controller runs here that ends the agents' pods, for which the uninstall would wait as well.
    for pod in ("agent-1", "manager-1"):
        await made.delete_pod(pod)


async def no_ready_extender(it: Installation) -> None:
    for name in await it.extender_pods():
        await it.make_ready(name, ready=False)


async def two_extenders(it: Installation) -> None:
    """The chart installs two, and a Lease that no extender of this test writes."""
    await it.delete_lease(EXTENDER, NAMESPACE)


async def no_agent(it: Installation) -> None:
    await it.delete_pod("agent-1")


async def garbage_inventory(it: Installation) -> None:
    await it.annotate_node({"accelshare.io/inventory": "{]"})


async def drift(it: Installation) -> None:
    record = json.dumps({"nvidia": [{"index": 0, "id": "GPU-0", "units": 4}]})
    pod = await it.cluster.pod(
        "drifts", {"aliyun.com/gpu-mem": 4}, nodeName="n1", annotations={"accelshare.io/assignment": record}
    )
    other = json.dumps({"nvidia": [{"index": 1, "id": "GPU-1", "units": 4}]})
    await it.annotate_node({"accelshare.io/corrected-assignments": json.dumps({pod["metadata"]["uid"]: other})})


async def oversold(it: Installation) -> None:
    record = {"accelshare.io/assignment": json.dumps({"nvidia": [{"index": 0, "id": "GPU-0", "units": 12}]})}
    for name in ("a", "b"):
        await it.cluster.pod(name, {"aliyun.com/gpu-mem": 12}, nodeName="n1", annotations=record)


async def scheduler_not_configured(it: Installation) -> None:
    await it.scheduler_pod(configured=False)


async def dead_address(it: Installation) -> None:
    await it.cluster.pod("calls", {"aliyun.com/gpu-mem": 400})
    await it.waiting("calls", 'Post "http://127.0.0.1:1/accelshare/filter": dial tcp 127.0.0.1:1: connect: connection refused')


async def certificate_ends(it: Installation) -> None:
    now = datetime.now(UTC)
    authority = x509.authority("test", now=now - timedelta(days=88), life=timedelta(days=90))
    it.kubectl(
        "patch",
        "secret",
        "accelshare-ca",
        f"--namespace={NAMESPACE}",
        "--type=merge",
        "-p",
        json.dumps({"stringData": {"ca.crt": authority.certificate}}),
    )


async def mixed_versions(it: Installation) -> None:
    patch = {"spec": {"containers": [{"name": "agent", "image": "accelshare:older"}]}}
    it.kubectl("patch", "pod", "agent-1", f"--namespace={NAMESPACE}", "-p", json.dumps(patch))


async def validator_off(it: Installation) -> None:
    kind = {**INVENTORY["nvidia"], "insists": False, "delivery": "device-plugin"}
    await it.annotate_node({"accelshare.io/inventory": json.dumps({"nvidia": kind})})


async def tenant_label(it: Installation) -> None:
    await it.cluster.pod("liar", {}, nodeName="n1", labels={"accelshare.io/agent": "true"})


async def clock_skew(it: Installation) -> None:
    await it.lease("n1", timedelta(minutes=10))


async def waits_though_it_fits(it: Installation) -> None:
    await it.cluster.pod("waits", {"aliyun.com/gpu-mem": 4})
    await it.waiting("waits", "0/3 nodes are available")


async def labelled_too_late(it: Installation) -> None:
    amounts = {"aliyun.com/gpu-mem": "32", "aliyun.com/gpu-count": "2"}
    await it.cluster.patch("/api/v1/nodes/n2/status", {"status": {"capacity": amounts, "allocatable": amounts}})


async def original_installed(it: Installation) -> None:
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "x"}}, "template": template}
    body = {"metadata": {"name": "xpushare-scheduler-extender"}, "spec": spec}
    await it.cluster.create(
        f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments", {"apiVersion": "apps/v1", "kind": "Deployment", **body}
    )


async def no_record(it: Installation) -> None:
    await it.cluster.pod("unrecorded", {"aliyun.com/gpu-mem": 4}, nodeName="n1")


async def old_kubelet(it: Installation) -> None:
    await it.cluster.patch("/api/v1/nodes/n3/status", {"status": {"nodeInfo": {"kubeletVersion": "v1.18.0"}}})


TROUBLES: dict[str, tuple[Change, str]] = {
    "extender": (no_ready_extender, f"deployment/{NAMESPACE}/{EXTENDER}"),
    "leases": (two_extenders, f"deployment/{NAMESPACE}/{EXTENDER}"),
    "agents": (no_agent, "node/n1"),
    "inventories": (garbage_inventory, "node/n1"),
    "drift": (drift, "pod/default/drifts"),
    "oversold": (oversold, "card/n1/nvidia/0"),
    "scheduler": (scheduler_not_configured, f"pod/{NAMESPACE}/kube-scheduler-n1"),
    "scheduler-address": (dead_address, "http://127.0.0.1:1/accelshare"),
    "certificates": (certificate_ends, f"secret/{NAMESPACE}/accelshare-ca"),
    "versions": (mixed_versions, f"namespace/{NAMESPACE}"),
    "validator": (validator_off, "node/n1"),
    "tenant-labels": (tenant_label, "pod/default/liar"),
    "clocks": (clock_skew, "node/n1"),
    "waiting-pods": (waits_though_it_fits, "pod/default/waits"),
    "labels": (labelled_too_late, "cluster"),
    "originals": (original_installed, "cluster"),
    "cards-in-use": (no_record, "cluster"),
    "kubernetes": (old_kubelet, "cluster"),
}


def test_every_check_has_its_trouble() -> None:
    """`watches` needs a running agent or extender: tests/unit/doctor has it."""
    assert set(TROUBLES) == set(CHECKS) - {"watches"}


async def test_an_installed_cluster_is_healthy_and_each_trouble_is_named(installation: Installation) -> None:
    """The troubles come one after the other and stay: later ones must be named beside earlier ones."""
    await installation.lease("n1", timedelta(0))
    await installation.lease(EXTENDER, timedelta(0), NAMESPACE)
    healthy = await installation.doctor()
    assert (healthy.code, healthy.objects()) == (0, {}), healthy
    # One that removes what others need comes last.
    order = [name for name in TROUBLES if name not in ("inventories", "agents", "extender")]
    for check in (*order, "inventories", "agents", "extender"):
        change, name = TROUBLES[check]
        await change(installation)
        found = await installation.doctor()
        assert found.code == 1, found
        assert name in found.objects().get(check, []), f"{check}: {found.out}"


async def test_somebody_without_rights_is_told_what_was_not_looked_at(installation: Installation, tmp_path: Path) -> None:
    """Exit code 2, and what could not be read is not passed off as healthy or wrong."""
    result = await asyncio.to_thread(run, installation.cluster.plane.kubeconfig_for("somebody"), "-o", "json")
    content: dict[str, Any] = json.loads(result.out)
    assert (result.code, content["findings"]) == (2, [])
    unread = {each["what"] for each in content["unread"]}
    assert {"nodes", "pods", "services", "deployments", "daemonsets", "leases"} <= unread
    assert all("403" in each["why"] for each in content["unread"])
