"""The pages on moving from another system are true: every kubectl line works on a real API server, and the way back is one."""

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from accelshare.ledger.nouns import Ask
from accelshare.vendors import catalog, originals
from accelshare.wire import assignment
from cluster.build import binaries
from cluster.control_plane import ControlPlane

ROOT = Path(__file__).parents[2]
SYSTEMS = originals.load().systems
PAGES = {system.name: ROOT / system.page for system in SYSTEMS}
# What needs a kubelet, controllers that this control plane does not run, or objects that only our chart makes.
NOT_HERE = ("kubectl exec", "kubectl rollout status", "configmap accelshare-scheduler-config")
LIMIT_S = 60.0


def sections(page: Path) -> dict[str, list[str]]:
    """The commands under each heading, in the order of the page."""
    parts = re.split(r"^## (.+)$", page.read_text(), flags=re.MULTILINE)
    found = {}
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        blocks = re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        found[title] = re.findall(r"^\$ (.+)$", "\n".join(blocks).replace("\\\n", " "), re.MULTILINE)
    return found


class Scene:
    """A real API server with one original in it, and a shell whose kubectl leads there."""

    def __init__(self, plane: ControlPlane, system: originals.Original) -> None:
        self.plane = plane
        self.system = system
        self.namespace = "kube-system"

    def make(self) -> None:
        """Its workloads and the rest that its guide makes; a pod and a node for the pages' POD and NODE."""
        for name in (*self.system.schedulers, *self.system.plugins):
            kind, _, called = name.partition("/")
            short = called.removesuffix("-ds")
            self._create(workload(kind, called))
            self._create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": short}})
            self._create({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": short}})
        for name in self.system.schedulers:
            ports = {"selector": {"app": "x"}, "ports": [{"port": 32766}]}
            self._create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name.partition("/")[2]}, "spec": ports})
        self._create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "migration-node"}})
        spec = {"containers": [{"name": "main", "image": "none"}], "nodeName": "migration-node"}
        self._create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "migration-pod"}, "spec": spec})

    def clear(self) -> None:
        names = [name.lower() for name in (*self.system.schedulers, *self.system.plugins)]
        for name in names:
            called = name.partition("/")[2].removesuffix("-ds")
            rest = (f"serviceaccount/{called}", f"service/{called}")
            self.kubectl(f"delete {name} {' '.join(rest)} -n {self.namespace} --ignore-not-found")
            self.kubectl(f"delete clusterrole/{called} --ignore-not-found")
        self.kubectl(f"delete pod/migration-pod -n {self.namespace} --ignore-not-found --grace-period=0 --force")
        self.kubectl("delete node/migration-node --ignore-not-found")

    def play(self, commands: list[str]) -> None:
        """Each kubectl line of a page, as it is written there."""
        for command in commands:
            if command.startswith("kubectl ") and not any(words in command for words in NOT_HERE):
                words = command.removeprefix("kubectl ").replace("POD", "migration-pod").replace("NODE", "migration-node")
                where = "" if " -n " in words or "--all-namespaces" in words else f" -n {self.namespace}"
                self.kubectl(words + where)

    def kubectl(self, words: str) -> str:
        """Through a shell, because quotes and braces are the reader's."""
        kubectl = binaries(["kubectl"])["kubectl"]
        variables = {**os.environ, "KUBECONFIG": str(self.plane.kubeconfig)}
        done = subprocess.run(
            ["sh", "-c", f"{kubectl} {words}"], env=variables, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        assert done.returncode == 0, f"kubectl {words}: {done.stderr}"
        return done.stdout

    def specs(self) -> dict[str, Any]:
        """What the original's workloads ask for."""
        found = {}
        for name in (*self.system.schedulers, *self.system.plugins):
            said = json.loads(self.kubectl(f"get {name.lower()} -n {self.namespace} -o json"))["spec"]
            said["template"]["spec"].setdefault("nodeSelector", {})  # a selector that became empty is one that never was
            found[name] = said
        return found

    def _create(self, content: dict[str, Any]) -> None:
        self.plane.kubectl("create", f"--namespace={self.namespace}", "-f", "-", stdin=json.dumps(content))


def workload(kind: str, name: str) -> dict[str, Any]:
    template = {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"nodeSelector": {"no": "node"}, "containers": [{"name": "main", "image": "none", "command": ["x"]}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template},
    }


@pytest.fixture(params=SYSTEMS, ids=lambda system: str(system.name))
def scene(request: pytest.FixtureRequest, control_plane: ControlPlane) -> Iterator[Scene]:
    opened = Scene(control_plane, request.param)
    opened.make()
    yield opened
    opened.clear()


@pytest.mark.real
def test_every_kubectl_line_works_and_the_way_back_leads_back(scene: Scene) -> None:
    """Stopped as the page says, the original makes no pods; brought back as the page says, it is what it was."""
    told = sections(PAGES[scene.system.name])
    before = scene.specs()
    back = told.pop("The way back")
    clean = told.pop("When you are sure")
    for commands in told.values():
        scene.play(commands)
    for name, spec in scene.specs().items():
        if name.startswith("Deployment/"):
            assert spec["replicas"] == 0
        else:
            assert spec["template"]["spec"]["nodeSelector"]["moved-to"] == "accelshare"
    scene.play(back)
    assert scene.specs() == before
    scene.play(clean)
    if not any(command.startswith("helm uninstall") for command in clean):
        left = scene.kubectl(f"get deployment,daemonset -n {scene.namespace} -o name").split()
        assert [name for name in before if name.partition("/")[2] in " ".join(left)] == []


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: str(system.name))
def test_every_value_given_to_the_chart_is_one_of_its_own(system: originals.Original) -> None:
    values = yaml.safe_load((ROOT / "deploy/chart/accelshare/values.yaml").read_text())
    (install,) = [line for lines in sections(PAGES[system.name]).values() for line in lines if line.startswith("helm install")]
    given = dict(re.findall(r"--set(?:-string|-json)? '?([\w.]+)=(\S+?)'?(?= |$)", install))
    assert given[f"vendors.{system.profile}.enabled"] == "true"
    for path in given:
        place = values
        for word in path.split("."):
            assert word in place, f"{path} is no value of the chart"
            place = place[word]
    if "scheduler.replace" in given:
        (url,) = json.loads(given["scheduler.replace"])
        assert not system.urls or url in system.urls
    unit = given.get(f"vendors.{system.profile}.memoryUnit")
    assert unit is None or unit in catalog.load()[system.profile].unit.mib


@pytest.mark.parametrize("page", PAGES.values(), ids=lambda page: page.name)
def test_a_record_written_by_hand_is_believed(page: Path) -> None:
    """Of a pod that asks for one slice or one whole card of that vendor."""
    profiles = {profile.name: profile for profile in catalog.load()}
    for record in re.findall(r"accelshare\.io/assignment='(.+?)'", page.read_text()):
        ((kind, (entry,)),) = json.loads(record).items()
        whole = entry.get("whole", False)
        ask = Ask(kind, cards=1, share=0 if whole else 4500, whole=whole)
        slices, problems = assignment.read({assignment.OURS: record}, (ask,), profiles)
        assert ([slice_.index for slice_ in slices], problems) == ([entry["index"]], ())


@pytest.mark.parametrize("page", PAGES.values(), ids=lambda page: page.name)
def test_a_profile_to_lay_over_ours_is_one(page: Path, tmp_path: Path) -> None:
    for number, text in enumerate(re.findall(r"^```toml\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)):
        (tmp_path / f"{number}.toml").write_text(text)
        told = tomllib.loads(text)
        assert catalog.load([tmp_path])[told["extends"]].annotations.index == told["annotations"]["index"]
