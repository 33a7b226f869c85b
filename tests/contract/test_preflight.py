"""`accelshare preflight` asks a real API server and the in-memory one, and both tell it the same."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from accelshare.install.preflight.checks.control_plane import IN_CLUSTER, IN_NAMESPACE
from accelshare.testing.api_server import FakeApiServer
from cluster.control_plane import ControlPlane

ROOT = Path(__file__).parents[2]
LIMIT_S = 120.0
# No node has this label, so that no pod of theirs runs anywhere.
TEMPLATE = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {"nodeSelector": {"no": "node"}, "containers": [{"name": "main", "image": "none"}]},
}
SELECTED = {"selector": {"matchLabels": {"app": "x"}}, "template": TEMPLATE}
SEED_DEPLOYMENT = {"metadata": {"name": "gpushare-schd-extender"}, "spec": SELECTED}
SEED_PLUGIN = {"metadata": {"name": "gpushare-device-plugin-ds"}, "spec": SELECTED}
SEED_SERVICE = {
    "metadata": {"name": "gpushare-schd-extender"},
    "spec": {"type": "NodePort", "ports": [{"port": 12345, "nodePort": 32766}], "selector": {"app": "x"}},
}
SEED_NODE = {
    "metadata": {"name": "preflight-node", "labels": {"gpushare": "true"}},
    "status": {"nodeInfo": {"kubeletVersion": "v1.36.4", "containerRuntimeVersion": "containerd://2.4.2"}},
}
# The real API server fills these in for nobody, and does not take a node's information without them.
INFO = ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "kubeProxyVersion", "operatingSystem", "architecture")


@dataclass(frozen=True, slots=True)
class PreflightRun:
    """The exit code and the output of one run."""

    code: int
    out: str
    err: str

    @property
    def findings(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.out)["findings"]
        return found

    def says(self, check: str) -> str:
        return "\n".join(f"{each['grade']} {each['says']} {each['do']}" for each in self.findings if each["check"] == check)


def run(kubeconfig: Path, *words: str) -> PreflightRun:
    command = [sys.executable, "-m", "accelshare", "preflight", "--kubeconfig", str(kubeconfig), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return PreflightRun(done.returncode, done.stdout, done.stderr)


def expect_a_seed_cluster(result: PreflightRun) -> None:
    """A cluster with gpushare: it could be installed on, and all that matters is named."""
    assert (result.code, result.err) == (0, "")
    assert result.says("unread") == ""
    assert "Kubernetes v1.36.4" in result.says("versions")
    assert "containerd 2.4.2 on preflight-node can deliver cards by pod identity" in result.says("runtimes")
    assert "fine you have all rights that an install needs" in result.says("permissions")
    assert "preflight-node with gpushare=true" in result.says("labels")
    assert "Service kube-system/gpushare-schd-extender has node port 32766" in result.says("ports")
    originals = result.says("originals")
    assert (
        "gpushare is installed (Deployment/gpushare-schd-extender in kube-system, DaemonSet/gpushare-device-plugin-ds in"
        in originals
    )
    assert "http://127.0.0.1:32766/gpushare-scheduler" in originals


async def test_a_cluster_with_an_original_in_memory(tmp_path: Path) -> None:
    async with FakeApiServer() as api:
        kubeconfig = api.write_kubeconfig(tmp_path / "kubeconfig")
        api.store.create("nodes", SEED_NODE)
        api.store.create("services", SEED_SERVICE, namespace="kube-system")
        api.store.create("deployments", SEED_DEPLOYMENT, namespace="kube-system")
        api.store.create("daemonsets", SEED_PLUGIN, namespace="kube-system")
        expect_a_seed_cluster(await asyncio.to_thread(run, kubeconfig, "-o", "json"))
        text = await asyncio.to_thread(run, kubeconfig)
        assert text.out.endswith(")\n")
        assert "\nready for accelshare (" in text.out


async def test_a_wanted_memory_unit_is_refused_while_pods_of_another_one_live(tmp_path: Path) -> None:
    """Exit code 1 and the pods' names; with --only nothing else is read or reported."""
    annotations = {"accelshare.io/inventory": json.dumps({"nvidia": {"unit": "GiB", "cards": []}})}
    limits = {"limits": {"aliyun.com/gpu-mem": "3"}}
    spec = {"nodeName": "preflight-node", "containers": [{"name": "main", "image": "none", "resources": limits}]}
    async with FakeApiServer() as api:
        kubeconfig = api.write_kubeconfig(tmp_path / "kubeconfig")
        api.store.create("nodes", {**SEED_NODE, "metadata": {"name": "preflight-node", "annotations": annotations}})
        api.store.create("pods", {"metadata": {"name": "trains"}, "spec": spec}, namespace="default")
        refused = await asyncio.to_thread(run, kubeconfig, "-o", "json", "--only", "memory-units", "--memory-unit", "nvidia=MiB")
        kept = await asyncio.to_thread(run, kubeconfig, "-o", "json", "--only", "memory-units", "--memory-unit", "nvidia=")
    assert (refused.code, {each["check"] for each in refused.findings}) == (1, {"memory-units"})
    assert "problem nvidia: the memory unit of preflight-node is 'GiB' and cannot become 'MiB'" in refused.says("memory-units")
    (finding,) = refused.findings
    assert finding["says"].endswith(": default/trains")
    assert finding["do"] == ["delete them first, or keep 'GiB' (in the chart vendors.nvidia.memoryUnit)"]
    assert (kept.code, kept.says("memory-units")[:4]) == (0, "fine")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--memory-unit", "MiB"), "'MiB' is not VENDOR=UNIT"),
        (("--only", "memory-units"), "needs --memory-unit VENDOR=UNIT"),
        (("--namespace", "A B"), "namespace 'A B': it must be lower-case letters"),
        (("--only", "everything"), "'everything' is not one of 'unread', 'versions'"),
    ],
    ids=str,
)
def test_an_invalid_flag_is_refused_with_a_message(tmp_path: Path, words: tuple[str, ...], error: str) -> None:
    (tmp_path / "kubeconfig").touch()
    refused = run(tmp_path / "kubeconfig", *words)
    assert refused.code == 2
    assert error in refused.err


async def test_nothing_is_written(tmp_path: Path) -> None:
    async with FakeApiServer() as api:
        before = api.store.revision
        await asyncio.to_thread(run, api.write_kubeconfig(tmp_path / "kubeconfig"))
        assert api.store.revision == before


@pytest.fixture
def seed_cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The real API server with gpushare's objects in it, taken away afterwards."""
    info = {**dict.fromkeys(INFO, "x"), **SEED_NODE["status"]["nodeInfo"]}  # type: ignore[index]
    objects = [
        {"apiVersion": "v1", "kind": "Node", **SEED_NODE, "status": {"nodeInfo": info}},
        {"apiVersion": "v1", "kind": "Service", **SEED_SERVICE},
        {"apiVersion": "apps/v1", "kind": "Deployment", **SEED_DEPLOYMENT},
        {"apiVersion": "apps/v1", "kind": "DaemonSet", **SEED_PLUGIN},
    ]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    control_plane.kubectl("create", "--namespace=kube-system", "-f", "-", stdin=listed)
    yield control_plane
    control_plane.kubectl("delete", "--namespace=kube-system", "--cascade=background", "-f", "-", stdin=listed)


@pytest.mark.real
def test_a_cluster_with_an_original_on_the_real_api_server(seed_cluster: ControlPlane) -> None:
    expect_a_seed_cluster(run(seed_cluster.kubeconfig, "-o", "json"))


@pytest.mark.real
def test_somebody_without_rights_is_told_which_are_missing(seed_cluster: ControlPlane) -> None:
    """Exit code 1, and what could not be read is not passed off as absent."""
    result = run(seed_cluster.kubeconfig_for("somebody"), "-o", "json", "-n", "ml")
    assert result.code == 1
    for what in ("nodes", "pods", "services", "deployments", "daemonsets"):
        assert f"warning {what} could not be read" in result.says("unread")
    assert "problem you may not: create configmaps in namespace ml; " in result.says("permissions")
    assert "create clusterroles.rbac.authorization.k8s.io in the whole cluster" in result.says("permissions")
    assert result.says("originals") == result.says("labels") == result.says("ports") == ""


def test_a_cluster_that_does_not_answer_is_an_error_in_words(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    entry = {"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}], "users": [{"name": "u", "user": {}}]}
    contexts = {"contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x"}
    kubeconfig.write_text(yaml.safe_dump(entry | contexts))
    result = run(kubeconfig)
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("Error: the cluster cannot be checked: ")
    assert "Traceback" not in result.err


def test_every_kind_that_the_chart_makes_is_asked_for() -> None:
    """A right that preflight forgets is an install that fails in the middle."""
    templates = ROOT / "deploy/chart/accelshare/templates"
    kinds = {
        kind
        for file in templates.rglob("*")
        if file.is_file()
        for kind in re.findall(r"^kind: (\w+)$", file.read_text(), re.MULTILINE)
    }
    of_operators = {"PodMonitor", "PrometheusRule", "SecurityContextConstraints"}
    optional = of_operators | {"KubeSchedulerConfiguration"}  # which is no object at all
    plurals = {kind.lower().removesuffix("y") + ("ies" if kind.endswith("y") else "s") for kind in kinds - optional}
    assert plurals
    assert plurals <= {resource for resource, _ in (*IN_NAMESPACE, *IN_CLUSTER)}
