"""The README's tour on a real cluster: its commands, with the output that it shows."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.local import LocalCluster
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
    recipes = (ROOT / "Makefile").read_text()
    for words in (UP, DOWN):
        assert f"\n{words[0]}: $(READY)" in recipes
        assert f"\t@$(PY) -m cluster {' '.join(words)}\n" in recipes


async def test_the_tour(local: LocalCluster, tmp_path: Path) -> None:
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


def logs_of(job: str) -> list[Command]:
    (found,) = [command for command in commands("docs/how-to/install.md") if f"job/{job} --all-containers" in command.words]
    return [found]
