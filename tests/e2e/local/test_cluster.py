"""The local cluster is a real Kubernetes, isolated from this machine, whose parts tests can break and repair."""

import contextlib
import http.server
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from cluster.errors import ClusterError
from cluster.local import LocalCluster
from cluster.local.layout import COVERED
from cluster.versions import KUBERNETES_VERSION
from cluster.waiting import wait_until
from tests.e2e.local.kubectl_steps import command, container_id, create, delete, pod, read, ready

pytestmark = pytest.mark.real


def test_the_node_is_ready_and_its_control_plane_is_static_pods(local: LocalCluster) -> None:
    node = read(local, "node", local.node_name)
    assert node["status"]["nodeInfo"]["kubeletVersion"] == KUBERNETES_VERSION
    assert "node-role.kubernetes.io/control-plane" in node["metadata"]["labels"]
    pods = local.kubectl("get", "pods", "--namespace=kube-system", "--output=name").split()
    assert {
        f"pod/{part}-{local.node_name}" for part in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
    } == set(pods)


def test_the_commands_say_how_to_use_it(local: LocalCluster) -> None:
    """`up` again changes nothing, and both commands name the kubeconfig that works with the kubectl beside it."""
    for arguments in (["up"], ["status"]):
        done = command(*arguments)
        assert done.returncode == 0, done.stderr
        programs = f"{local.bin}:{Path(sys.executable).parent}"
        assert f"export KUBECONFIG={local.kubeconfig} PATH={programs}:$PATH" in done.stdout
    variables = {"KUBECONFIG": str(local.kubeconfig), "HOME": str(local.state)}
    listed = subprocess.run([local.bin / "kubectl", "get", "nodes"], env=variables, capture_output=True, text=True, check=True)
    assert local.node_name in listed.stdout


def test_a_pod_runs_and_can_be_looked_into(local: LocalCluster) -> None:
    create(local, pod("looked-into"))
    ready(local, "looked-into")
    assert local.kubectl("logs", "looked-into") == "begun\n"
    assert local.exec("looked-into", "hostname") == "looked-into\n"
    delete(local, "looked-into")


def test_service_addresses_work_from_a_pod(local: LocalCluster) -> None:
    """The API server's, and one of pods."""
    create(
        local,
        pod(
            "server", labels={"app": "server"}, command=["sh", "-c", "echo it works > /tmp/index.html; httpd -f -p 8080 -h /tmp"]
        ),
        pod("client"),
    )
    local.kubectl("expose", "pod", "server", "--port=80", "--target-port=8080")
    ready(local, "server", "client")
    assert local.exec("client", "sh", "-c", "nc -w 5 10.96.0.1 443 < /dev/null && echo open") == "open\n"
    address = read(local, "service", "server")["spec"]["clusterIP"]

    def page() -> str:
        with contextlib.suppress(ClusterError):
            return local.exec("client", "wget", "-q", "-O", "-", f"http://{address}/")
        return ""

    assert wait_until(page, "the service answers") == "it works\n"
    local.kubectl("delete", "service", "server")
    delete(local, "server", "client")


def test_pods_survive_a_killed_kubelet_and_a_killed_containerd(local: LocalCluster) -> None:
    create(local, pod("survivor"))
    ready(local, "survivor")
    before = container_id(local, "survivor")

    local.kill_kubelet()
    assert not local.kubelet.running
    local.start_kubelet()
    local.restart_containerd()
    create(local, pod("newcomer"))
    ready(local, "survivor", "newcomer")

    assert container_id(local, "survivor") == before
    assert local.exec("survivor", "echo", "alive") == "alive\n"
    assert read(local, "pod", "survivor")["status"]["containerStatuses"][0]["restartCount"] == 0
    delete(local, "survivor", "newcomer")


def files(directory: Path) -> set[Path]:
    return {found.relative_to(directory) for found in directory.rglob("*") if not found.is_dir()}


def test_the_machine_s_own_directories_stay_as_they_are(local: LocalCluster) -> None:
    """The cluster's files are where they belong for those inside, and nowhere for those outside."""
    assert [path for path in COVERED if files(Path(path)) & files(local.path(path))] == []  # others' files may be there
    assert "kubelet.sock" in local.call_inside("ls", "/var/lib/kubelet/device-plugins")
    assert "nri.sock" in local.call_inside("ls", "/var/run/nri")
    assert local.path("/var/lib/kubelet/device-plugins/kubelet.sock").is_socket()
    assert local.path("/var/run/nri/nri.sock").is_socket()


def test_containerd_comes_back_with_or_without_nri(local: LocalCluster) -> None:
    """Tests of both ways of delivery need both."""
    local.restart_containerd(nri="off")
    assert not accepts(local.path("/var/run/nri/nri.sock"))
    local.restart_containerd(nri="validated")
    assert accepts(local.path("/var/run/nri/nri.sock"))


def accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def test_a_program_of_the_machine_can_run_inside(local: LocalCluster, tmp_path: Path) -> None:
    tool = local.tools / "a-vendor-tool"
    tool.write_text("#!/bin/sh\npwd\nls /var/lib/kubelet/pod-resources\n")
    tool.chmod(0o755)
    process = local.run_inside("guest", ["a-vendor-tool"], tmp_path / "guest.log")
    assert process.wait_ended(print, str) == 0
    assert (tmp_path / "guest.log").read_text() == f"{Path.cwd()}\nkubelet.sock\n"
    tool.unlink()


def test_device_nodes_are_made_once_and_never_over_another(local: LocalCluster) -> None:
    local.make_device_node("/dev/accelshare-test0")
    assert Path("/dev/accelshare-test0").is_char_device()
    with pytest.raises(ClusterError, match="exists already"):
        local.make_device_node("/dev/accelshare-test0")
    with pytest.raises(ClusterError, match="was not made by the local cluster"):
        local.remove_device_node("/dev/null")
    local.remove_device_node("/dev/accelshare-test0")
    assert not Path("/dev/accelshare-test0").exists()


def test_an_image_made_of_files_runs(local: LocalCluster) -> None:
    local.make_image(
        "accelshare.local/greeting:1",
        {"bin/busybox": Path("/bin/busybox"), "greeting": b"good day\n"},
        ["/bin/busybox", "cat", "/greeting"],
    )
    container = {"name": "main", "image": "accelshare.local/greeting:1"}
    create(local, pod("greeter", containers=[container], restartPolicy="Never"))
    wait_until(lambda: read(local, "pod", "greeter")["status"]["phase"] == "Succeeded", "the greeter has ended")
    assert local.kubectl("logs", "greeter") == "good day\n"
    delete(local, "greeter")


class Extender(http.server.BaseHTTPRequestHandler):
    """Lets every node pass, and remembers which pods it was asked about."""

    asked: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        arguments = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(arguments["Pod"]["metadata"]["name"])
        answer = json.dumps({"NodeNames": arguments["NodeNames"]}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def extender_url() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Extender) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_the_scheduler_asks_an_extender_until_it_is_restored(local: LocalCluster, extender_url: str) -> None:
    manifest = local.path("/etc/kubernetes/manifests/kube-scheduler.yaml")
    before = manifest.read_text()
    local.scheduler_config(extender_url, prioritizeVerb="", preemptVerb="", bindVerb="", weight=1)
    create(local, pod("asked-about"))
    ready(local, "asked-about")
    assert Extender.asked == ["asked-about"]

    local.restore_scheduler()
    create(local, pod("not-asked-about"))
    ready(local, "not-asked-about")
    assert Extender.asked == ["asked-about"]
    assert manifest.read_text() == before
    delete(local, "asked-about", "not-asked-about")
