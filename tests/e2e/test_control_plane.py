"""The real control plane for tests: it starts empty, knows its users, schedules pods and leaves nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import versions
from cluster.build import binaries
from cluster.certificates import Authority
from cluster.control_plane import ControlPlane
from cluster.errors import BuildError, ClusterError, KubectlError, ProcessError
from cluster.waiting import wait_until

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane.start(tmp_path_factory.mktemp("plane")) as plane:
        yield plane


@pytest.fixture
def namespace(plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    name = re.sub(r"[^a-z]+", "-", request.node.name)[:60].strip("-")
    plane.kubectl("create", "namespace", name)
    yield name
    plane.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def node(plane: ControlPlane) -> Iterator[str]:
    status = {"capacity": {"cpu": "8", "memory": "16Gi", "pods": "110"}}
    create(plane, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "fake-1"}, "status": status})
    yield "fake-1"
    plane.kubectl("delete", "node", "fake-1")


def create(plane: ControlPlane, *objects: dict[str, Any]) -> None:
    plane.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))


def pod(name: str, namespace: str) -> dict[str, Any]:
    spec = {"terminationGracePeriodSeconds": 0, "containers": [{"name": "main", "image": "none"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def node_of(plane: ControlPlane, name: str, namespace: str) -> str:
    return plane.kubectl("get", "pod", name, f"--namespace={namespace}", "--output=jsonpath={.spec.nodeName}")


def bound(plane: ControlPlane, name: str, namespace: str) -> Callable[[], str]:
    return lambda: node_of(plane, name, namespace)


def get(plane: ControlPlane, path: str, ca_file: Path | None = None) -> tuple[int, dict[str, Any]]:
    """Status and first JSON line of a request by the administrator's token."""
    context = ssl.create_default_context(cafile=ca_file or plane.ca_file)
    request = urllib.request.Request(plane.url + path, headers={"Authorization": f"Bearer {plane.token}"})  # noqa: S310 – ours
    try:
        with urllib.request.urlopen(request, context=context, timeout=60) as answer:  # noqa: S310
            return answer.status, json.loads(answer.readline())
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, json.load(refusal)


def gone(pid: int) -> bool:
    """No such process, or only the entry that waits for a parent elsewhere to read its exit code."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


@pytest.mark.parametrize("source", [*versions.SOURCES, *versions.TEST_SOURCES], ids=lambda source: source.name)
def test_the_pins_are_those_of_go_mod(source: versions.ProgramSource) -> None:
    """versions.py and the go.mod files name the same versions, and go.mod needs no newer Go than we search for."""
    go_mod = (source.directory / "go.mod").read_text()
    assert any(f"require {package.split('/cmd/')[0]} {source.version}\n" in go_mod for package in source.packages.values())
    needed = re.search(r"^go (\d+)\.(\d+)\.(\d+)$", go_mod, re.MULTILINE)
    assert needed is not None
    assert tuple(map(int, needed.groups())) <= versions.GO_VERSION


def test_an_unknown_program_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BuildError, match=r"no such program: kubecty; there are etcd, .*kubectl"):
        binaries(["kubecty"])


def test_client_and_server_are_the_pinned_version(plane: ControlPlane) -> None:
    version = json.loads(plane.kubectl("version", "--output=json"))
    assert version["clientVersion"]["gitVersion"] == versions.KUBERNETES_VERSION
    assert version["serverVersion"]["gitVersion"] == versions.KUBERNETES_VERSION
    assert f"{version['serverVersion']['major']}.{version['serverVersion']['minor']}" in versions.KUBERNETES_VERSION


def test_the_servers_certificate_is_verified_by_its_ca(plane: ControlPlane, tmp_path: Path) -> None:
    """The CA file verifies the server's certificate; to another plane's CA the server is a stranger."""
    status, _ = get(plane, "/api/v1/nodes")
    assert status == 200
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        get(plane, "/api/v1/nodes", ca_file=Authority(tmp_path).file)


def test_a_client_certificate_is_its_user_and_groups(plane: ControlPlane) -> None:
    kubeconfig = plane.kubeconfig_for("carla", ["system:masters", "friends"])
    who = json.loads(plane.kubectl("auth", "whoami", "--output=json", kubeconfig=kubeconfig))["status"]["userInfo"]
    assert who["username"] == "carla"
    assert {"system:masters", "friends"} <= set(who["groups"])
    assert "kube-system" in plane.kubectl("get", "namespaces", kubeconfig=kubeconfig)


def test_a_user_without_permissions_is_refused(plane: ControlPlane) -> None:
    """RBAC decides: a valid certificate alone grants nothing, and the error has kubectl's text."""
    with pytest.raises(KubectlError, match='User "stranger" cannot list resource "pods"'):
        plane.kubectl("get", "pods", kubeconfig=plane.kubeconfig_for("stranger"))


def test_the_plain_scheduler_binds_a_pod_to_a_fake_node(plane: ControlPlane, namespace: str, node: str) -> None:
    create(plane, pod("a", namespace))
    scheduler = plane.start_scheduler()
    try:
        assert wait_until(bound(plane, "a", namespace), "pod a is bound") == node
    finally:
        scheduler.stop()


def test_a_killed_scheduler_is_dead_and_a_new_one_takes_over(plane: ControlPlane, namespace: str, node: str) -> None:
    first = plane.start_scheduler()
    first.kill()
    assert not first.running
    create(plane, pod("b", namespace))
    assert node_of(plane, "b", namespace) == ""

    second = plane.start_scheduler()
    try:
        assert second.log != first.log
        assert wait_until(bound(plane, "b", namespace), "pod b is bound") == node
    finally:
        second.stop()


def test_a_scheduler_follows_its_configuration(plane: ControlPlane, namespace: str, node: str) -> None:
    """Profiles reach kube-scheduler unchanged: a pod that names another scheduler waits for that one."""
    other = pod("c", namespace)
    other["spec"]["schedulerName"] = "other"
    create(plane, other)
    scheduler = plane.start_scheduler({"profiles": [{"schedulerName": "other"}], "clientConnection": {"qps": 50}})
    try:
        assert wait_until(bound(plane, "c", namespace), "pod c is bound") == node
    finally:
        scheduler.stop()


def test_a_scheduler_that_cannot_start_reports_why(plane: ControlPlane) -> None:
    with pytest.raises(
        ProcessError, match=r"(?s)kube-scheduler-\d+ ended with exit code 1 before it was ready.*nonsense"
    ) as failure:
        plane.start_scheduler({"nonsense": 1})
    assert str(plane.directory / "logs") in str(failure.value)


def test_a_deployment_creates_its_pods_and_deletes_them(plane: ControlPlane, namespace: str) -> None:
    """Deployment, replica set and garbage collector are at work."""
    plane.kubectl("create", "deployment", "web", "--image=none", "--replicas=3", f"--namespace={namespace}")

    def pods() -> list[str]:
        return plane.kubectl("get", "pods", f"--namespace={namespace}", "--output=name").split()

    wait_until(lambda: len(pods()) == 3, "three pods")
    plane.kubectl("delete", "deployment", "web", f"--namespace={namespace}")
    wait_until(lambda: not pods(), "no pods")


def test_a_deleted_namespace_goes_away_with_all_in_it(plane: ControlPlane) -> None:
    plane.kubectl("create", "namespace", "short-lived")
    create(plane, pod("d", "short-lived"))
    plane.kubectl("delete", "namespace", "short-lived")  # returns once it is empty and gone
    assert "short-lived" not in plane.kubectl("get", "pods", "--all-namespaces")


def test_history_from_before_an_api_server_restart_is_410(plane: ControlPlane, namespace: str) -> None:
    """After compact() and restart_api_server(), an old watch and an old continue token are both expired."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for name in ("x", "y", "z"):
        plane.kubectl("create", "configmap", name, f"--namespace={namespace}")
    _, page = get(plane, f"{path}?limit=1")
    before = page["metadata"]
    plane.kubectl("create", "configmap", "later", f"--namespace={namespace}")
    assert plane.compact() > int(before["resourceVersion"])
    plane.restart_api_server()

    assert get(plane, f"{path}?limit=1&continue={before['continue']}")[0] == 410
    status, event = get(plane, f"{path}?watch=1&resourceVersion={before['resourceVersion']}")
    assert (status, event["type"], event["object"]["code"]) == (200, "ERROR", 410)


def test_nothing_is_left_after_stop(tmp_path: Path) -> None:
    """Every process is gone, the port is closed, and the same directory serves the next start, fresh."""
    with ControlPlane.start(tmp_path / "plane") as plane:
        plane.start_scheduler()
        plane.kubectl("create", "namespace", "remember-me")
        pids = [process.pid for process in plane.processes]
        assert len(pids) == 4
    assert [pid for pid in pids if not gone(pid)] == []
    with pytest.raises(urllib.error.URLError, match="refused"):
        get(plane, "/readyz")

    with ControlPlane.start(tmp_path / "plane", controllers=None) as again:
        assert "remember-me" not in again.kubectl("get", "namespaces")


def test_nothing_survives_the_kill_of_its_starter(tmp_path: Path) -> None:
    """SIGKILL leaves no time to clean up; the kernel ends the programs."""
    starter = (
        "import sys; from pathlib import Path; from cluster.control_plane import ControlPlane\n"
        "plane = ControlPlane.start(Path(sys.argv[1]), lambda words: None)\n"
        "print(*(process.pid for process in plane.processes), flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", starter, str(tmp_path / "plane")]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert len(pids) == 3
        os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: all(gone(pid) for pid in pids), f"{pids} are gone", limit_s=120)


def test_a_failed_start_reports_program_and_reason_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(
        ProcessError, match=r"(?s)kube-apiserver ended with exit code 1 before it was ready.*unknown flag: --nonsense"
    ):
        ControlPlane.start(tmp_path / "plane", api_server_args=["--nonsense"])
    ControlPlane.start(tmp_path / "plane", controllers=None).stop()  # the directory was let go


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("ten years of work")
    with pytest.raises(ClusterError, match="holds other files"):
        ControlPlane.start(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "ten years of work"


def test_two_planes_never_share_a_directory(plane: ControlPlane) -> None:
    with pytest.raises(ClusterError, match="another control plane runs in"):
        ControlPlane.start(plane.directory)
