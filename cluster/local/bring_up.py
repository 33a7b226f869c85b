"""Brings the local cluster up step by step. An error names the part that failed and its log."""

from __future__ import annotations

import json
import shutil
import socket
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import grpc

from cluster import audit
from cluster.build import Binaries, binaries, missing
from cluster.cache import cache_directory
from cluster.errors import ClusterError
from cluster.local import cgroups, configuration, devices, namespace, network, packages
from cluster.local.configuration import KUBE_PROXY_KUBECONFIG, KUBEADM_FILE, Nri
from cluster.local.daemon import LAUNCH, Daemon, environment, holder, last_lines, namespace_files, wait_for
from cluster.local.images import Content, busybox_files, make_image
from cluster.local.journal import Journal
from cluster.local.layout import (
    API_SERVER_PORT,
    CONTAINERD_SOCKET,
    NODE_ADDRESS,
    NODE_NAME,
    TEST_IMAGE,
    Layout,
)
from cluster.local.shell import run
from cluster.versions import KUBERNETES_VERSION, PROGRAMS
from cluster.waiting import wait_until

Say = Callable[[str], None]

CONTAINERD_CONFIG: Final = "/etc/containerd/config.toml"
_CA: Final = "/etc/kubernetes/pki/ca.crt"
_STATIC_PODS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_CAP_SYS_RESOURCE: Final = 24  # linux/capability.h
_READY_LIMIT_S: Final = 480.0
_HEALTH_LIMIT_S: Final = 240.0
_PORT_IN_USE: Final = "address already in use"


def provide(say: Say, programs: Sequence[str] = PROGRAMS) -> Binaries:
    """These programs, built or found, and what they need from the system."""
    packages.ensure(packages.TO_RUN, cache_directory() / "logs" / "apt-get.log", say)
    provide_libraries(say)
    return binaries(programs, say)


def provide_libraries(say: Say) -> None:
    """What has to be there before runc can be built, if it has to be."""
    if missing(["runc"]):
        packages.ensure(packages.TO_BUILD_RUNC, cache_directory() / "logs" / "apt-get.log", say)


def bring_up(
    layout: Layout, programs: Binaries, say: Say, *, fake_cards: bool, nri: Nri, audited: bool = False, nodes: int = 1
) -> None:
    """Everything after the programs are there; the first thing that it makes is the journal of what it makes."""
    begun = time.monotonic()
    with _part("directories, cgroup, network", say):
        journal = _make_directories(layout, programs)
        namespace.make_directories(layout, journal)
        cgroups.make(layout)
        network.make(journal)
        if fake_cards:
            devices.make_fake_cards(journal, say)
    with _part("mount namespace", say):
        _start_namespace(layout)
    with _part("containerd", say):
        if audited:
            layout.audit.mkdir()
            audit.policy_file(layout.audit).write_text(audit.policy())
        (layout.configuration / KUBEADM_FILE).write_text(configuration.kubeadm(layout, layout.audit if audited else None))
        write_containerd_configuration(layout, nri)
        start_containerd(layout)
    with _part("images; kubeadm: certificates, kubeconfigs, static pods", say), ThreadPoolExecutor() as pool:
        work = [pool.submit(_load_images, layout, programs), pool.submit(_kubeadm_before, layout)]
        for each in work:
            each.result()
    with _part("kubelet", say):
        start_kubelet(layout)
    with _part("control plane", say):
        _wait_for_api_server(layout)
    with _part("kubeadm: configuration, roles, labels; kube-proxy", say):
        _kubeadm_after(layout)
    with _part("node ready", say):
        _wait_for_node(layout)
    further = [layout.node(number) for number in range(2, nodes + 1)]
    for node in further:
        _add_node(node, layout, programs, say, fake_cards=fake_cards, nri=nri, nodes=nodes)
    for node in further:
        with _part(f"{node.node_name} ready", say):
            _wait_for_node(node)
    layout.ready.touch()
    names = ", ".join(node.node_name for node in (layout, *further))
    say(f"up in {time.monotonic() - begun:.1f} s: Kubernetes {KUBERNETES_VERSION}, node {names}, files in {layout.state}")


# Used again while the cluster runs.


def write_containerd_configuration(layout: Layout, nri: Nri) -> None:
    layout.covering(CONTAINERD_CONFIG).write_text(
        configuration.containerd(
            root=layout.containerd_root,
            programs=layout.programs,
            pause_image=_images(layout)["pause"],
            may_raise_oom_score=_capable_of(_CAP_SYS_RESOURCE),
            nri=nri,
        )
    )


def start_containerd(layout: Layout) -> None:
    """Returns when it answers."""
    daemon = Daemon(layout, "containerd")
    daemon.start([layout.programs / "containerd", "--config", CONTAINERD_CONFIG])

    def answers() -> bool:
        daemon.check()
        return _serves_kubelet(layout.covering(CONTAINERD_SOCKET))

    _wait(answers, daemon)


def start_kubelet(layout: Layout) -> None:
    """Returns when it reports that it is healthy. As systemd does, it is started again if its port was still in use."""
    daemon = Daemon(layout, "kubelet")
    command = configuration.kubelet_command(layout.programs / "kubelet", layout)
    daemon.start(command)

    def healthy() -> bool:
        if not daemon.running and _PORT_IN_USE in daemon.evidence():
            daemon.start(command)
        daemon.check()
        return _answers(f"http://{layout.health_address}:10248/healthz")

    _wait(healthy, daemon)


def start_kube_proxy(layout: Layout) -> None:
    """Returns when its rules are in place."""
    daemon = Daemon(layout, "kube-proxy")
    daemon.start([layout.programs / "kube-proxy", f"--config={layout.configuration / 'kube-proxy.yaml'}"])

    def healthy() -> bool:
        daemon.check()
        return _answers(f"http://{layout.health_address}:10256/healthz")

    _wait(healthy, daemon)


def inside(layout: Layout, command: Sequence[str | Path]) -> list[str | Path]:
    """The same command, run in the node's namespaces and cgroup."""
    return [sys.executable, "-I", "-S", LAUNCH, "", cgroups.daemons(layout), namespace_files(layout), *command]


def run_inside(layout: Layout, command: Sequence[str | Path], limit_s: float = 300.0) -> str:
    return run(inside(layout, command), environment=environment(layout), limit_s=limit_s)


def ctr(layout: Layout, *arguments: str | Path, limit_s: float = 300.0) -> str:
    command: list[str | Path] = [layout.programs / "ctr", "--address", CONTAINERD_SOCKET, "--namespace", "k8s.io", *arguments]
    return run_inside(layout, command, limit_s)


# The steps.


def _add_node(node: Layout, first: Layout, programs: Binaries, say: Say, *, fake_cards: bool, nri: Nri, nodes: int) -> None:
    """Start a further node and return before it is ready."""
    with _part(f"{node.node_name}: namespaces, network, containerd, images", say):
        _make_directories(node, programs)
        namespace.make_directories(node, Journal(node.journal))
        cgroups.make(node)
        (node.configuration / KUBEADM_FILE).write_text(configuration.kubeadm(node))
        write_containerd_configuration(node, nri)
        _start_namespace(node)
        _connect(node, nodes)
        if fake_cards:
            devices.make_fake_cards_of(Path(f"/proc/{holder(node)}/root"))
        start_containerd(node)
        _load_images(node, programs)
    with _part(f"{node.node_name}: kubeadm: certificates, kubeconfigs; kubelet, kube-proxy", say):
        _kubeadm_for_node(node, first)
        _make_node_object(node)
        start_kubelet(node)
        start_kube_proxy(node)
    node.ready.touch()


def _make_directories(layout: Layout, programs: Binaries) -> Journal:
    layout.state.mkdir(parents=True, mode=0o755)
    layout.state.chmod(0o755)
    for directory in (layout.tools, layout.logs, layout.pids, layout.configuration):
        directory.mkdir()
    if layout.first:
        _link_programs(layout, programs)
    return Journal(layout.journal)


def _link_programs(layout: Layout, programs: Binaries) -> None:
    for directory in (layout.bin, layout.programs):
        directory.mkdir()
    for program, path in programs.paths.items():
        (layout.programs / program).symlink_to(path)
    (layout.bin / "kubectl").symlink_to(programs["kubectl"])


def _start_namespace(layout: Layout) -> None:
    daemon = Daemon(layout, "namespace")
    covered = layout.state / "covered"
    daemon.start(namespace.holder(layout, covered), inside=False)
    if not wait_for(covered, limit_s=120):
        raise ClusterError(f"the paths of {layout.node_name} could not be covered; {daemon.evidence()}")
    (layout.covering("/etc/cni") / "net.d").mkdir()
    (layout.covering("/etc/cni") / "net.d" / "10-pods.conflist").write_text(configuration.pod_network(layout.pod_network))


def _connect(layout: Layout, nodes: int) -> None:
    batch = layout.configuration / "network"
    batch.write_text("\n".join(network.connect(layout, nodes, holder(layout))) + "\n")
    run_inside(layout, ["ip", "-batch", batch])


def _images(layout: Layout) -> dict[str, str]:
    """Short name → full name, as kubeadm will write it into the manifests."""
    command: list[str | Path] = [
        layout.programs / "kubeadm",
        "config",
        "images",
        "list",
        f"--config={layout.configuration / KUBEADM_FILE}",
    ]
    listed = run(command, environment=environment(layout)).split()
    return {image.rpartition("/")[2].partition(":")[0]: image for image in listed}


def _load_images(layout: Layout, programs: Binaries) -> None:
    busybox = Path(shutil.which("busybox") or "busybox")
    named = _images(layout)
    work: list[tuple[str, Mapping[str, Content], list[str]]] = [
        (named["pause"], {"bin/busybox": busybox}, ["/bin/busybox", "sleep", "infinity"]),
        (TEST_IMAGE, busybox_files(busybox), ["/bin/sh"]),
    ]
    for pod in _STATIC_PODS if layout.first else ():
        work.append((named[pod], {f"usr/local/bin/{pod}": programs[pod]}, [f"/usr/local/bin/{pod}"]))
    for number, (name, files, entrypoint) in enumerate(work):
        load_image(layout, make_image(layout.state / "images" / f"{number}.tar", name, files, entrypoint)).unlink()


def load_image(layout: Layout, tar: Path) -> Path:
    """Into the runtime, for pods that pull IfNotPresent or Never."""
    ctr(layout, "images", "import", tar.absolute())
    return tar


def _kubeadm_before(layout: Layout) -> None:
    for phase in (["certs", "all"], ["kubeconfig", "all"], ["kubelet-start"], ["etcd", "local"], ["control-plane", "all"]):
        _kubeadm(layout, "init", "phase", *phase)
    _kubeconfig(layout.covering(KUBE_PROXY_KUBECONFIG), layout, "--client-name=system:kube-proxy")
    (layout.configuration / "kube-proxy.yaml").write_text(configuration.kube_proxy(layout))
    layout.kubeconfig.touch(mode=0o600)
    layout.kubeconfig.write_text(layout.covering("/etc/kubernetes/admin.conf").read_text())


def _kubeadm_for_node(node: Layout, first: Layout) -> None:
    """The files that `kubeadm join` would make. The first node has the CA's key, so kubeadm signs the certificates there."""
    _kubeadm(node, "init", "phase", "kubelet-start")
    for directory in ("pki", "manifests"):
        (node.covering("/etc/kubernetes") / directory).mkdir()
    node.covering(_CA).write_bytes(first.covering(_CA).read_bytes())
    identity = (f"--client-name=system:node:{node.node_name}", "--org=system:nodes")
    _kubeconfig(node.covering("/etc/kubernetes/kubelet.conf"), first, *identity)
    _kubeconfig(node.covering(KUBE_PROXY_KUBECONFIG), first, "--client-name=system:kube-proxy")
    (node.configuration / "kube-proxy.yaml").write_text(configuration.kube_proxy(node))


def _make_node_object(node: Layout) -> None:
    """With the range of pod addresses that is routed to it; kube-controller-manager would choose any. kubelet does the rest."""
    ranges = {"podCIDR": node.pod_network, "podCIDRs": [node.pod_network]}
    content = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.node_name}, "spec": ranges}
    file = node.configuration / "node.json"
    file.write_text(json.dumps(content))
    _kubectl(node, "create", f"--filename={file}")


def _kubeconfig(file: Path, first: Layout, *identity: str) -> None:
    """With a certificate of the cluster's CA."""
    text = _kubeadm(first, "kubeconfig", "user", *identity, logged=False)
    file.touch(mode=0o600)
    file.write_text(text)


def _kubeadm_after(layout: Layout) -> None:
    """What `kubeadm init` does once the API server answers."""
    binding = ["create", "clusterrolebinding", "kubeadm:cluster-admins", "--clusterrole=cluster-admin"]
    _kubectl(layout, *binding, "--group=kubeadm:cluster-admins", kubeconfig=layout.covering("/etc/kubernetes/super-admin.conf"))
    start_kube_proxy(layout)
    wait_until(lambda: _answer(layout, "get", "node", NODE_NAME, "--output=name"), "kubelet has made its node", limit_s=240)
    for phase in (["upload-config", "all"], ["mark-control-plane"], ["bootstrap-token"]):
        _kubeadm(layout, "init", "phase", *phase)


def _kubeadm(layout: Layout, *arguments: str, logged: bool = True) -> str:
    """kubeadm's output goes to a log; an error includes it."""
    command: list[str | Path] = [layout.programs / "kubeadm", *arguments, f"--config={layout.configuration / KUBEADM_FILE}"]
    output = run_inside(layout, command)
    if logged:
        with (layout.logs / "kubeadm.log").open("a") as log:
            log.write(f"$ kubeadm {' '.join(arguments)}\n{output}")
    return output


def _wait_for_api_server(layout: Layout) -> None:
    """It and whatever it depends on run as containers, so their logs are where kubelet puts them."""
    kubeconfig = layout.covering("/etc/kubernetes/super-admin.conf")

    def ready() -> bool:
        for name in ("containerd", "kubelet"):
            Daemon(layout, name).check()
        try:
            socket.create_connection((NODE_ADDRESS, API_SERVER_PORT), timeout=10).close()
        except OSError:
            return False
        return bool(_answer(layout, "get", "--raw=/readyz", kubeconfig=kubeconfig))

    try:
        wait_until(ready, "kube-apiserver ready", limit_s=_READY_LIMIT_S, every_s=0.2)
    except ClusterError as error:
        raise ClusterError(f"{error}\n{_evidence_of_pods(layout)}") from error


def _wait_for_node(layout: Layout) -> None:
    """The node accepts pods, controllers have created what a pod needs, and every part of the control plane on it is ready."""
    ready = 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'
    node = layout.node_name
    static_pods = [f"{pod}-{node}" for pod in _STATIC_PODS] if layout.first else []
    questions = (
        (("get", "node", node, f"--output={ready}"), "True"),
        (("get", "node", node, "--output=jsonpath={.spec.taints}"), ""),
        (("get", "serviceaccount", "default", "--output=name"), "serviceaccount/default"),
        (("get", "configmap", "kube-root-ca.crt", "--output=name"), "configmap/kube-root-ca.crt"),
        *((("get", "pod", pod, "--namespace=kube-system", f"--output={ready}"), "True") for pod in static_pods),
    )
    for question, expected in questions:
        try:
            wait_until(
                lambda asked=question, wanted=expected: _answer(layout, *asked) == wanted,  # type: ignore[misc]
                f"kubectl {' '.join(question)} says {expected!r}",
                limit_s=_READY_LIMIT_S,
                every_s=0.2,
            )
        except ClusterError as error:
            raise ClusterError(f"{error}\n{Daemon(layout, 'kubelet').evidence()}\n{_evidence_of_pods(layout)}") from error


def _evidence_of_pods(layout: Layout) -> str:
    logs = sorted(layout.covering("/var/log/pods").glob("*/*/*.log"))
    if not logs:
        return f"no container has run yet; {Daemon(layout, 'kubelet').evidence()}"
    return "\n".join(f"the end of {log}:\n{last_lines(log, 5)}" for log in logs)


def _answer(layout: Layout, *arguments: str, kubeconfig: Path | None = None) -> str | None:
    """The output of kubectl; None as long as it fails."""
    try:
        return _kubectl(layout, *arguments, kubeconfig=kubeconfig).strip()
    except ClusterError:
        return None


def _kubectl(layout: Layout, *arguments: str, kubeconfig: Path | None = None) -> str:
    command: list[str | Path] = [layout.programs / "kubectl", f"--kubeconfig={kubeconfig or layout.kubeconfig}", *arguments]
    return run(command, environment=environment(layout))


def _answers(url: str) -> bool:
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=10) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def _serves_kubelet(containerd: Path) -> bool:
    """kubelet makes this call when it starts, and exits without an answer. containerd answers other calls earlier."""
    with grpc.insecure_channel(f"unix://{containerd}", options=[("grpc.default_authority", "localhost")]) as channel:
        version: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/runtime.v1.RuntimeService/Version")
        try:
            version(b"", timeout=20)
        except grpc.RpcError:
            return False
    return True


def _wait(condition: Callable[[], bool], daemon: Daemon) -> None:
    try:
        wait_until(condition, f"{daemon.name} answers", limit_s=_HEALTH_LIMIT_S)
    except ClusterError as error:
        raise ClusterError(f"{error}; {daemon.evidence()}") from error


def _capable_of(capability: int) -> bool:
    status = Path("/proc/self/status").read_text()
    effective = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(effective, 16) >> capability & 1)


@contextmanager
def _part(name: str, say: Say) -> Iterator[None]:
    """Prints the part and how long it took; an error includes its name."""
    begun = time.monotonic()
    try:
        yield
    except (ClusterError, OSError) as error:
        raise ClusterError(f"{name}: {error}") from error
    say(f"  {name} … {time.monotonic() - begun:.1f} s")
