"""`accelshare doctor` reads an API server and prints what is wrong, as lines and as JSON, with its exit code."""

import asyncio
import json
import os
import pty
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from accelshare.doctor.checks import CHECKS
from accelshare.testing.api_server import FakeApiServer
from tests.contract import test_docs as docs
from tests.unit.doctor.builders import NAMESPACE, Json, Objects, asking, part_pod

ROOT = Path(__file__).parents[2]
LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class DoctorRun:
    """The exit code and the output of one run."""

    code: int
    out: str
    err: str

    def objects(self) -> dict[str, list[str]]:
        """The objects of the findings, by check."""
        found: dict[str, list[str]] = {}
        for each in json.loads(self.out)["findings"]:
            found.setdefault(each["check"], []).append(each["object"])
        return found


def run(kubeconfig: Path, *words: str) -> DoctorRun:
    command = [sys.executable, "-m", "accelshare", "doctor", "--kubeconfig", str(kubeconfig), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return DoctorRun(done.returncode, done.stdout, done.stderr)


def store(api: FakeApiServer, objects: Objects) -> None:
    """Create the objects as their writers would: the status of a pod is written after the pod."""
    api.store.create("namespaces", {"metadata": {"name": "ml"}})
    parts: Mapping[str, list[Json]] = {
        "nodes": objects.nodes,
        "pods": objects.pods,
        "services": objects.services,
        "deployments": objects.deployments,
        "daemonsets": objects.daemon_sets,
        "leases": objects.leases,
    }
    for plural, items in parts.items():
        for item in items:
            namespace = item["metadata"].get("namespace", "")
            metadata = {key: value for key, value in item["metadata"].items() if key not in ("uid", "resourceVersion")}
            body: dict[str, Any] = {**item, "metadata": metadata}
            if plural == "pods":
                containers = [{"image": "none", **container} for container in item["spec"]["containers"]]
                body["spec"] = {**item["spec"], "containers": containers}
            api.store.create(plural, body, namespace=namespace)
            if plural == "pods":
                made = api.store.get("pods", metadata["name"], namespace=namespace).object
                changed = {**made, "status": item["status"]}
                api.store.update("pods", metadata["name"], changed, namespace=namespace, subresource="status")
    for place, data in objects.config_maps.items():
        api.store.create("configmaps", {"metadata": {"name": place.name}, "data": dict(data)}, namespace=place.namespace)


async def test_a_healthy_cluster_ends_with_0_and_says_so(tmp_path: Path) -> None:
    """Extenders and agents here have no address, so their metrics could not be read: the run says that, too."""
    async with FakeApiServer() as api:
        kubeconfig = api.write_kubeconfig(tmp_path / "kubeconfig")
        store(api, Objects())
        before = api.store.revision
        text = await asyncio.to_thread(run, kubeconfig)
        assert api.store.revision == before
    assert (text.code, text.err) == (0, "")
    assert text.out.splitlines()[-1] == (f"nothing wrong ({len(CHECKS)} checks of 1 node and 4 pods); not all could be read")
    assert text.out.startswith("unread   metrics of extenders and agents: kube-system/")


async def test_findings_end_with_1_and_are_one_line_each(tmp_path: Path) -> None:
    objects = Objects()
    objects.pods = [part_pod("extender-1", "extender", ready=False), objects.pods[3], asking("waits")]
    async with FakeApiServer() as api:
        kubeconfig = api.write_kubeconfig(tmp_path / "kubeconfig")
        store(api, objects)
        found, text = [await asyncio.to_thread(run, kubeconfig, "--patience=0", *words) for words in (("-o", "json"), ())]
    assert (found.code, text.code) == (1, 1)
    assert found.objects() == {
        "extender": [f"deployment/{NAMESPACE}/accelshare-extender"],
        "agents": ["node/n1"],
        "waiting-pods": ["pod/ml/waits"],
    }
    lines = text.out.splitlines()
    assert lines[0].startswith("problem  extender          deployment/kube-system/accelshare-extender: has no ready pod")
    assert " → kubectl describe pods -n kube-system" in lines[0]
    assert lines[-1].startswith("2 problems, 1 warning (")


async def test_an_object_that_cannot_be_read_is_named_and_the_rest_is_examined(tmp_path: Path) -> None:
    objects = Objects()
    objects.leases.append({"metadata": {"name": "n2", "namespace": "kube-node-lease"}, "spec": {"renewTime": 5}})
    async with FakeApiServer() as api:
        kubeconfig = api.write_kubeconfig(tmp_path / "kubeconfig")
        store(api, objects)
        text = await asyncio.to_thread(run, kubeconfig)
    assert text.code == 0
    assert "unread   one of the leases: " in text.out


async def test_progress_is_printed_on_a_terminal_if_it_takes_long(tmp_path: Path) -> None:
    """The API server does not answer for a while."""
    silent = socket.create_server(("127.0.0.1", 0))  # accepts nothing: connections wait in its queue
    port = silent.getsockname()[1]
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "accelshare", "doctor", "--kubeconfig", str(kubeconfig_of(tmp_path, port))]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        try:
            line = await asyncio.wait_for(asyncio.to_thread(os.read, ours, 200), LIMIT_S)
        finally:
            process.kill()
            process.wait()
            os.close(ours)
            silent.close()
    assert line.decode().startswith("reading nodes …")


def kubeconfig_of(directory: Path, port: int) -> Path:
    entry = {"clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}], "users": [{"name": "u", "user": {}}]}
    contexts = {"contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x"}
    file = directory / "kubeconfig"
    file.write_text(yaml.safe_dump(entry | contexts))
    return file


def test_a_cluster_that_does_not_answer_ends_with_2(tmp_path: Path) -> None:
    result = run(kubeconfig_of(tmp_path, 1))
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("Error: the cluster cannot be read: ")
    assert "Traceback" not in result.err


def test_every_check_has_a_section_in_both_languages() -> None:
    """`## agents`, with what it means and what to do."""
    for page in ("docs/how-to/doctor.md", "docs/zh/how-to/doctor.md"):
        sections = docs.sections(ROOT / page)
        assert [name for name in CHECKS if len(sections.get(f"`{name}`", "")) < 40] == [], page
