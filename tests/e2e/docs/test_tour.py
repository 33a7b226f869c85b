"""README, tutorial and the page with fake cards on a real cluster: their commands, with the output that they show."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.local import LocalCluster
from cluster.local.accelshare import helm, settle
from tests.contract.docs.machine import Machine
from tests.contract.docs.page_runner import PageRunner
from tests.contract.docs.pages import ROOT, Command, commands, sections
from tests.e2e.local.kubectl_steps import command

pytestmark = pytest.mark.real
UP = ("up", "--fake-cards", "--accelshare")
DOWN = ("down",)
JOB = "accelshare-uninstall"


@pytest.fixture(scope="module")
def local(root: None) -> Iterator[LocalCluster]:
    """What `make up` makes, on a machine on which nothing was up."""
    if shutil.which("apt-get") is None:
        pytest.skip("a base image of Debian's packages needs Debian or Ubuntu")
    LocalCluster.take_down()
    done = command(*UP)
    assert done.returncode == 0, done.stdout + done.stderr
    yield LocalCluster.attach()
    assert command(*DOWN).returncode == 0


def test_make_says_the_same() -> None:
    for words in (UP, DOWN):
        ask = ["make", "--no-print-directory", "-n", words[0]]
        printed = subprocess.run(ask, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert printed.splitlines()[-1].split()[1:] == ["-m", "cluster", *words]


async def test_the_readme(local: LocalCluster, tmp_path: Path) -> None:
    up, export, apply, *rest = sections("README.md")["Five minutes on a real cluster"]
    assert up.words == "make up"
    assert str(local.kubeconfig) in export.words
    assert str(local.bin) in export.words
    with Machine(tmp_path / "docs", seen=[local.state]) as machine:
        play = PageRunner(machine)
        await play.type_all([export, apply])
        # So long as a reader needs for the next line.
        local.kubectl("wait", "--for=condition=Ready", "--timeout=300s", *(f"pod/gcushare-pod-{n}" for n in (1, 2, 3)))
        await play.type_all(rest)
        assert "GCU0" in play.out("accelshare inspect")


async def test_the_tutorial(local: LocalCluster, tmp_path: Path) -> None:
    """From its second command to the last but one."""
    page = commands("docs/tutorial.md")
    assert (page[0].words, page[-1].words) == ("make up", "make down")
    begin = next(number for number, each in enumerate(page) if each.words.startswith("kubectl apply")) + 1
    with Machine(tmp_path / "docs", seen=[local.state]) as machine:
        play = PageRunner(machine)
        await play.type_all(page[1:begin])
        local.kubectl("wait", "--for=condition=Ready", "--timeout=300s", *(f"pod/gcushare-pod-{n}" for n in (1, 2, 3)))
        await play.type_all(page[begin:-1])
        assert "gcushare-pod-3" in play.out("kubectl inspect gcushare -d")


async def test_what_an_uninstall_says_that_cannot_go_on(local: LocalCluster, tmp_path: Path) -> None:
    """The page's way to read it; a Job of the same name says something here."""
    where = "--namespace=kube-system"
    local.kubectl("create", "job", JOB, where, f"--image={local.test_image}", "--", "echo", "not restored")
    local.kubectl("wait", "--for=condition=complete", f"job/{JOB}", where, "--timeout=300s")
    with Machine(tmp_path / "docs", seen=[local.state], environment={"KUBECONFIG": str(local.kubeconfig)}) as machine:
        play = PageRunner(machine)
        await play.type_all(logs_of(JOB))
        assert "not restored" in play.out("kubectl logs")


async def test_fake_cards_of_the_preset(local: LocalCluster, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The page for kind and minikube, from the install to the end. What was installed before is removed."""
    if not request.config.getoption("--long-runs"):
        pytest.skip("with --long-runs only: it installs accelshare a second time, which takes a minute or more")
    local.kubectl("delete", "pods", "--all", "--timeout=300s")
    if helm(local, "list", "--short"):
        helm(local, "uninstall", "accelshare", "--timeout=300s")
    page = sections("docs/how-to/try-without-hardware.md")
    (apply, *look), (*removed, kind) = page["3. Run pods"], page["4. Remove it"]
    assert kind.words == "kind delete cluster"
    with Machine(tmp_path / "docs", seen=[local.state], environment={"KUBECONFIG": str(local.kubeconfig)}) as machine:
        play = PageRunner(machine)
        await play.type_all(page["2. Install"])
        settle(local)
        await play.type_all([apply])
        local.kubectl("wait", "--for=condition=Ready", "--timeout=300s", *(f"pod/gpu-pod-{n}" for n in (1, 2, 3)))
        await play.type_all(look)
        assert play.out("helm test").count("Succeeded") == 4
        assert "GPU-fake-" in local.exec("gpu-pod-1", "env")
        await play.type_all(removed)


def logs_of(job: str) -> list[Command]:
    (found,) = [command for command in commands("docs/how-to/install.md") if f"job/{job} --all-containers" in command.words]
    return [found]
