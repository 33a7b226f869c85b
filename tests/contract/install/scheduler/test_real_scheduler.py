"""The real kube-scheduler 1.36 decodes the configurations that we write, strictly, as at its start."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from accelshare.install.errors import Rejected
from accelshare.install.host_files.changes import PlannedFile
from accelshare.install.scheduler import rendering, static_pod
from accelshare.install.scheduler.plan import Existing, SchedulerPlan
from accelshare.install.scheduler.release import parse
from accelshare.install.scheduler.validation import checker
from cluster.build import binaries
from cluster.certificates import Authority
from cluster.kubeconfig import UserCertificate, write_kubeconfig
from cluster.versions import KUBERNETES_VERSION
from tests.unit.install.scheduler.builders import HERE, KUBEADM, RESOURCES, desired, intent
from tests.unit.install.scheduler.test_static_pod import OWN, OWN_CONTENT, own_manifest

pytestmark = pytest.mark.real
GOLDEN = (HERE / "golden" / "1.36.yaml").read_bytes()


@pytest.fixture(scope="module")
def program() -> Path:
    return binaries(["kube-scheduler"])["kube-scheduler"]


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The files that a configuration names; kube-scheduler reads them all before it says yes."""
    directory = tmp_path_factory.mktemp("pki")
    authority = Authority(directory)
    certificate, key = authority.client_certificate("kube-scheduler")
    user = UserCertificate(certificate, key)
    kubeconfig = write_kubeconfig(directory / "scheduler.conf", url="https://127.0.0.1:1", ca_file=authority.file, user=user)
    return {
        "/etc/kubernetes/scheduler.conf": kubeconfig,
        "/etc/kubernetes/accelshare/ca.crt": authority.file,
        "/etc/kubernetes/accelshare/client.crt": certificate,
        "/etc/kubernetes/accelshare/client.key": key,
    }


def here(content: bytes, pki: dict[str, Path]) -> bytes:
    """The same configuration with the files of this machine."""
    for path, file in pki.items():
        content = content.replace(path.encode(), str(file).encode())
    return content


def defaulted(program: Path, content: bytes, directory: Path) -> dict[str, Any]:
    file, out = directory / "config.yaml", directory / "out.yaml"
    file.write_bytes(content)
    words: list[str | Path] = [program, f"--config={file}", f"--write-config-to={out}", "--secure-port=0"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = yaml.safe_load(out.read_text())
    return found


def plan_of(content: bytes) -> SchedulerPlan:
    path = "/etc/kubernetes/accelshare/scheduler-config.yaml"
    return SchedulerPlan(PlannedFile(path, content), PlannedFile("x", b""), ("kube-scheduler", f"--config={path}"))


def test_the_golden_file_is_read_as_it_was_meant(program: Path, pki: dict[str, Path], tmp_path: Path) -> None:
    assert parse(KUBERNETES_VERSION).minor == 36
    content = here(GOLDEN, pki)
    seen = defaulted(program, content, tmp_path)
    wanted = yaml.safe_load(content)
    assert seen["percentageOfNodesToScore"] == 100
    assert {key: seen["clientConnection"][key] for key in wanted["clientConnection"]} == wanted["clientConnection"]
    (entry,) = seen["extenders"]
    assert entry["tlsConfig"].items() >= wanted["extenders"][0]["tlsConfig"].items()
    assert [resource["name"] for resource in entry["managedResources"]] == list(RESOURCES)
    assert not any(resource.get("ignoredByScheduler") for resource in entry["managedResources"])
    rest = wanted["extenders"][0].keys() - {"tlsConfig", "managedResources"}
    assert {key: entry[key] for key in rest} == {key: wanted["extenders"][0][key] for key in rest}


def test_the_second_schedulers_configuration_is_read_too(program: Path, pki: dict[str, Path], tmp_path: Path) -> None:
    second = rendering.SecondScheduler("cards", "shared", "image")
    manifests = yaml.safe_load_all(rendering.second_scheduler(desired(), parse("v1.36.4"), second))
    text = next(manifest["data"]["config.yaml"] for manifest in manifests if manifest["kind"] == "ConfigMap")
    content = yaml.safe_load(text)
    content["clientConnection"] = {"kubeconfig": str(pki["/etc/kubernetes/scheduler.conf"])}  # in-cluster there
    seen = defaulted(program, yaml.safe_dump(content).encode(), tmp_path)
    assert [profile["schedulerName"] for profile in seen["profiles"]] == ["cards"]


def test_an_operators_configuration_with_ours_in_it(program: Path, pki: dict[str, Path], tmp_path: Path) -> None:
    plan = static_pod.plan(own_manifest(), "manifest", Existing(OWN, OWN_CONTENT), intent())
    seen = defaulted(program, here(plan.configuration.content, pki), tmp_path)
    assert [entry["urlPrefix"].rpartition("/")[2] for entry in seen["extenders"]] == ["other", "accelshare"]
    assert [profile["schedulerName"] for profile in seen["profiles"]] == ["default-scheduler", "packed"]


def test_the_check_says_yes(program: Path, pki: dict[str, Path]) -> None:
    check = checker(program, parse(KUBERNETES_VERSION))
    check(plan_of(here(GOLDEN, pki)))
    plan = static_pod.plan(KUBEADM, "manifest", None, intent())
    check(SchedulerPlan(PlannedFile(plan.configuration.path, here(plan.configuration.content, pki)), plan.trigger, plan.words))


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        (b"enableHTTPS: true", b"enableHttps: true", 'unknown field "extenders[0].enableHttps"'),
        (b"httpTimeout: 5s", b"httpTimeout: 5000000000", "json: cannot unmarshal"),
        (b"k8s.io/v1\n", b"k8s.io/v1beta3\n", "no kind"),
        (b"weight: 1\n", b"weight: 0\n", "extenders[0].weight"),
        (RESOURCES[0].encode(), b"memory", "extenders[0].managedResources[0].name"),
        (b"caFile: ", b"caFile: /nowhere", "/nowhere"),
        (b"kubeconfig: ", b"kubeconfig: /nowhere", "/nowhere"),
    ],
)
def test_the_check_says_no_in_kube_schedulers_words(
    program: Path, pki: dict[str, Path], right: bytes, wrong: bytes, words: str
) -> None:
    content = here(GOLDEN, pki)
    assert right in content
    with pytest.raises(Rejected) as rejected:
        checker(program, parse(KUBERNETES_VERSION))(plan_of(content.replace(right, wrong)))
    assert words in str(rejected.value)


def test_a_program_that_cannot_check_is_a_refusal(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="could not check"):
        checker(tmp_path / "nothing", parse(KUBERNETES_VERSION))(plan_of(GOLDEN))
    with pytest.raises(Rejected, match="no output"):
        checker(Path("/bin/true"), parse(KUBERNETES_VERSION))(plan_of(GOLDEN))
