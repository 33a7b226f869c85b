"""accelshare installed on the local cluster as a user installs it: commands, what they left on the node, and waiting.

Only the hardware is fake: the vendors' tools report fake cards, over the device nodes of `make up`.

Belongs here: commands, state and waits. Never: assertions about the product.
"""

import base64
import http.client
import json
import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cluster.errors import KubectlError
from cluster.local import LocalCluster, accelshare
from cluster.local.local_node import LocalNode
from cluster.waiting import wait_until
from deploy.render import NAMESPACE, ROOT
from tests.e2e.install.cluster_admin import KINDS, run_script
from tests.e2e.workloads import CONTAINER, workload

LIMIT_S = 300.0
MANIFEST = "/etc/kubernetes/manifests/kube-scheduler.yaml"
CLIENT_FILE = "/etc/kubernetes/accelshare/client/tls.crt"
# Where an installation could leave something on a host.
PLACES = ("/etc/kubernetes", "/etc/nri", "/opt/nri", "/run/cdi", "/run/nri", "/var/lib/kubelet/device-plugins")
Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class InstallationState:
    """What an installation can change besides its own objects."""

    manifest: bytes
    files: tuple[str, ...]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    amounts: frozenset[str]  # the resources of the node
    ours: tuple[str, ...]  # objects of ours in the cluster


@dataclass(frozen=True, slots=True)
class Outcome:
    """The pods of a rush that failed, and those that run with other cards than their records name."""

    failed: Mapping[str, str]
    wrong: Mapping[str, str]


class InstalledCluster:
    def __init__(self, local: LocalCluster, directory: Path) -> None:
        self.local = local
        self.directory = directory
        self.agent = "accelshare-agent"
        self.before = self.state()
        self._turns: list[tuple[datetime, bool]] = []  # when an installation began to be made (True) or removed (False)

    # Commands.

    def install(self) -> None:
        self._turn(installed=True)
        accelshare.install(self.local, print)

    def upgrade(self, values: Mapping[str, Any]) -> None:
        """helm upgrade with these values over those of the install; it may end before agents are ready."""
        accelshare.upgrade(self.local, values)

    def settle(self) -> None:
        accelshare.settle(self.local)

    def helm(self, *words: str) -> str:
        if words[0] == "uninstall":
            self._turn(installed=False)
        return accelshare.helm(self.local, *words)

    def script(self, name: str, *arguments: str) -> str:
        """One of deploy/scripts, with the pinned helm and kubectl."""
        if name in ("deploy.sh", "delete.sh"):
            self._turn(installed=name == "deploy.sh")
        done = run_script(name, *arguments, kubeconfig=self.local.kubeconfig, home=self.directory)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}{self.evidence()}"
        return done.stdout

    def _turn(self, *, installed: bool) -> None:
        self._turns.append((datetime.now(UTC), installed))

    def installed_at(self, moment: datetime) -> bool:
        """Whether our accounts had their rights then. An uninstall takes them away while the last pods are still ending."""
        return next((installed for begun, installed in reversed(self._turns) if begun <= moment), False)

    def apply(self, file: str, namespace: str = "default") -> None:
        """A workload of examples/, unchanged but for its image and what that image runs."""
        content = workload(ROOT / "examples" / file, self.local.state / "hpe")
        self.local.kubectl("apply", f"--namespace={namespace}", "-f", "-", stdin=json.dumps(content))

    def run(self, file: str, pod: str) -> None:
        """A workload of one pod in our own namespace, as one of the seeds has it, until it runs."""
        self.apply(file, NAMESPACE)
        self.until(lambda: self.read("pod", pod)["status"]["phase"] == "Running", f"{pod} runs")

    def run_seeds_workloads(self) -> None:
        """All of them, ten pods of four vendors; those of one vendor one after the other, so that their cards are known."""
        for number in (1, 2, 3):
            self.run(f"enflame/gcushare-pod-{number}.json", f"gcushare-pod-{number}")
        for file in ("kunlun/xpu_pod", "nvidia/app", "stream/example", "kunlun/xpu_pod_two_cards"):
            self.apply(f"{file}.yaml")
        self.running("!group", 7)

    def create(self, group: str, count: int, limits: Mapping[str, int]) -> None:
        """So many equal pods at once, found by the label `group`."""
        container = {
            "name": "main",
            **CONTAINER,
            "resources": {"limits": {name: str(amount) for name, amount in limits.items()}},
        }
        pods = [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"{group}-{number}", "labels": {"group": group}},
                "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
            }
            for number in range(count)
        ]
        self.local.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))

    def rush(self, group: str, count: int, limits: Mapping[str, int], during: Callable[[], None]) -> Outcome:
        """Pods that come all at once, something that happens when the first of them run, and what became of them."""
        self.create(group, count, limits)
        self.until(lambda: len(self._at_work(group)) >= count // 10, f"the first of {group} run")
        during()
        self.until(lambda: len(self._at_work(group)) + len(self._failed(group)) == count, f"all {count} of {group} run or failed")
        running = self._at_work(group).values()
        wrong = {pod["metadata"]["name"]: state for pod in running if (state := self.sees(pod)) != cards(pod)}
        outcome = Outcome(self._failed(group), wrong)
        self.delete(f"group={group}")
        return outcome

    def delete(self, selector: str) -> None:
        """Returns before the pods are gone."""
        self.local.kubectl("delete", "pods", f"--selector={selector}", "--wait=false")

    def clear(self) -> None:
        """Remove every workload."""
        self.local.kubectl("delete", "deployments,statefulsets,pods", "--all", "--timeout=300s")
        names = [name for name in self.pods("", NAMESPACE) if name.startswith("gcushare-pod")]
        self.local.kubectl("delete", "pods", *names, f"--namespace={NAMESPACE}", "--timeout=300s")

    # State.

    def state(self, of: LocalNode | None = None) -> InstallationState:
        """Of this node, or of the first one."""
        of = of or self.local
        node = self.read("node", of.node_name)
        annotations = node["metadata"].get("annotations") or {}
        roots = [of.path(place) for place in PLACES]
        manifest = of.path(MANIFEST)
        found = (str(path) for root in roots if root.exists() for path in root.rglob("*"))
        return InstallationState(
            manifest=manifest.read_bytes() if manifest.exists() else b"",  # only the first node has a kube-scheduler
            # kubelet's own, which come and go.
            files=tuple(sorted(path for path in found if "kubelet" not in path.rpartition("/")[2])),
            labels=node["metadata"]["labels"],
            annotations={key: value for key, value in annotations.items() if "accelshare" in key},
            amounts=frozenset(node["status"]["capacity"]) | frozenset(node["status"]["allocatable"]),
            ours=tuple(sorted(self._ours())),
        )

    def _ours(self) -> set[str]:
        selector = "--selector=app.kubernetes.io/part-of=accelshare"
        listed = self.local.kubectl("get", KINDS, "--all-namespaces", selector, "--output=name").split()
        named = self.local.kubectl("get", "secrets,leases,configmaps", f"--namespace={NAMESPACE}", "--output=name").split()
        return {*listed, *(name for name in named if "accelshare" in name and self.local.node_name not in name)}

    def read(self, kind: str, name: str, namespace: str = NAMESPACE) -> Object:
        found: Object = json.loads(self.local.kubectl("get", kind, name, f"--namespace={namespace}", "--output=json"))
        return found

    def pods(self, selector: str, namespace: str = "default") -> dict[str, Object]:
        listed = self.local.kubectl("get", "pods", f"--namespace={namespace}", f"--selector={selector}", "--output=json")
        return {pod["metadata"]["name"]: pod for pod in json.loads(listed)["items"]}

    def secret(self, name: str) -> dict[str, bytes]:
        return {key: base64.b64decode(value) for key, value in self.read("secret", name)["data"].items()}

    def sees(self, pod: Object) -> str:
        """The accelerator nodes that its container listed when it started last, by the file that the runtime writes."""
        name = "_".join(pod["metadata"][part] for part in ("namespace", "name", "uid"))

        def printed() -> str:
            logs = sorted(
                (self.node_of(pod).path("/var/log/pods") / name / "main").iterdir(), key=lambda file: file.stat().st_mtime
            )
            line, end, _ = logs[-1].read_text().partition("\n")
            return line if end else ""

        return str(self.until(printed, f"{name} has printed what it sees")).partition(" F ")[2].strip()

    def node_of(self, pod: Object) -> LocalNode:
        """The node that the pod is bound to."""
        return next(node for node in self.local.nodes if node.node_name == pod["spec"]["nodeName"])

    def job_message(self, job: str) -> str:
        """Why the Job's pod ended, as `kubectl describe` shows it."""
        statuses = [
            status for pod in self.pods(f"job-name={job}", NAMESPACE).values() for status in pod["status"]["containerStatuses"]
        ]
        return " ".join(str(status["state"].get("terminated", {}).get("message", "")) for status in statuses)

    def inventory(self, kind: str, of: LocalNode | None = None) -> Object:
        annotations = self.read("node", (of or self.local).node_name)["metadata"]["annotations"]
        found: Object = json.loads(annotations["accelshare.io/inventory"])[kind]
        return found

    def extender_status(self, path: str, pair: tuple[bytes, bytes] | None) -> int:
        """The status of the extender's answer to somebody with this certificate and key; OSError if it refuses to speak."""
        address = self.read("service", "accelshare-extender")["spec"]["clusterIP"]
        context = ssl.create_default_context(cadata=self.secret("accelshare-scheduler-tls")["ca.crt"].decode())
        context.check_hostname = False  # it is called by its address here; the chain is checked
        if pair is not None:
            with tempfile.NamedTemporaryFile(dir=self.directory) as file:
                file.write(b"".join(pair))
                file.flush()
                context.load_cert_chain(file.name)
        connection = http.client.HTTPSConnection(address, 12345, context=context, timeout=120)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        finally:
            connection.close()

    def served_certificate(self) -> str:
        """The certificate that the extender presents."""
        address = self.read("service", "accelshare-extender")["spec"]["clusterIP"]
        return ssl.get_server_certificate((address, 12345), timeout=120)

    def _at_work(self, group: str) -> dict[str, Object]:
        return {name: pod for name, pod in self.pods(f"group={group}").items() if at_work(pod)}

    def _failed(self, group: str) -> dict[str, str]:
        pods = self.pods(f"group={group}").items()
        return {name: pod["status"].get("message", "") for name, pod in pods if pod["status"]["phase"] == "Failed"}

    # Waiting.

    def until(self, condition: Callable[[], Any], what: str, limit_s: float = LIMIT_S) -> Any:
        """The condition's first true value; a kubectl command that failed, or a field that is missing, is looked at again."""
        return wait_until(condition, what, limit_s, 0.5, retry_on=(KubectlError, KeyError), evidence=self.evidence)

    def running(self, selector: str, count: int, namespace: str = "default") -> dict[str, Object]:
        """These pods, once all run and their records say assigned."""

        def all_run() -> dict[str, Object] | None:
            pods = self.pods(selector, namespace)
            return pods if len(pods) == count and all(at_work(pod) for pod in pods.values()) else None

        found: dict[str, Object] = self.until(all_run, f"{count} pods of {selector} run")
        return found

    def agents_ready(self) -> None:
        self.local.kubectl("rollout", "status", f"daemonset/{self.agent}", f"--namespace={NAMESPACE}", "--timeout=300s")

    def evidence(self) -> str:
        selector = "--selector=app.kubernetes.io/part-of=accelshare"
        texts = [
            self.local.kubectl("get", "pods", "--all-namespaces", "--output=wide"),
            self.local.kubectl("logs", f"--namespace={NAMESPACE}", selector, "--all-containers", "--prefix", "--tail=15"),
            self.local.kubectl("get", "events", "--all-namespaces", "--field-selector=type=Warning"),
        ]
        return "".join(f"\n--- \n{text[-6000:]}" for text in texts)


def at_work(pod: Object) -> bool:
    """Its containers run, and its record says that it was given its cards."""
    flags = [value for key, value in (pod["metadata"].get("annotations") or {}).items() if key.lower().endswith("assigned")]
    ready = [status["ready"] for status in pod["status"].get("containerStatuses", [])]
    return pod["status"]["phase"] == "Running" and bool(ready) and all(ready) and "false" not in flags


def cards(pod: Object, kind: str = "enflame", node: str = "gcu") -> str:
    """The device nodes that the pod should see, by its record."""
    record = json.loads((pod["metadata"].get("annotations") or {}).get("accelshare.io/assignment", "{}"))
    return " ".join(f"{node}{entry['index']}" for entry in sorted(record.get(kind, []), key=lambda entry: int(entry["index"])))
