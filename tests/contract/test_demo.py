"""`make demo` keeps its promises: seconds, the original guides' outcomes, every refusal in words, nothing left behind."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from accelshare.vendors import catalog as catalogs
from demo import playlist
from demo.errors import DemoError
from demo.page import Page, folded
from demo.scheduler import Bound, Scheduler, sentence
from demo.stage import Stage, set_up
from demo.view import look
from demo.workloads import pods_of

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "demo"]
LIMIT_S = 60.0  # it takes one or two; machines that run tests are busy


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """One run for all that is read off its output, in a temporary directory of its own."""
    directory = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        COMMAND, cwd=ROOT, env=_environment(directory), capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert not list(directory.iterdir()), "the demo left files behind"
    return done


def test_it_ends_well_and_says_nothing_else(played: subprocess.CompletedProcess[str]) -> None:
    assert (played.returncode, played.stderr) == (0, "")


def test_it_fits_a_page(played: subprocess.CompletedProcess[str]) -> None:
    lines = played.stdout.splitlines()
    assert len(lines) <= 90
    assert max(map(len, lines)) <= 100
    assert "\033" not in played.stdout, "colour is for terminals"


def test_the_four_gcushare_outcomes(played: subprocess.CompletedProcess[str]) -> None:
    """Card 0, card 0, card 1, and the refusal that the guide shows."""
    for number, asked, card in ((1, 4, 0), (2, 8, 0), (3, 12, 1)):
        row = rf"gcushare-pod-{number} +enflame.com/gcu-memory: {asked} +→ sse-lab-inspur-048 +card {card}$"
        assert re.search(row, played.stdout, re.MULTILINE), row
    refusal = "0/4 nodes are available: 1 insufficient GCU Memory in one gcu device, 3 Insufficient enflame.com/gcu-memory."
    assert f"gcushare-pod-4 enflame.com/gcu-memory: 20 waits: {refusal}" in _unwrapped(played.stdout)


def test_two_replicas_on_two_cards_in_the_inspect_table(played: subprocess.CompletedProcess[str]) -> None:
    assert re.search(r"minikube +192\.168\.49\.2 +4500/8064 +4500/8064", played.stdout)


def test_slices_and_whole_cards_on_one_node(played: subprocess.CompletedProcess[str]) -> None:
    for row in (
        r"binpack-1-2 .*→ dev-server-153 +card 0$",
        r"gpu-two-whole .*→ dev-server-153 +cards 1,2 whole$",
        r"gpu-slice .*→ dev-server-153 +card 3$",
    ):
        assert re.search(row, played.stdout, re.MULTILINE), row
    assert "gpu-six-whole nvidia.com/gpu: 6 waits: 0/4 nodes are available: 1 too few GPUs are empty," in _unwrapped(
        played.stdout
    )


def test_a_waiting_pod_goes_on_when_another_has_really_ended(played: subprocess.CompletedProcess[str]) -> None:
    told = _unwrapped(played.stdout)
    waits = told.index("xpu-large baidu.com/xpu-mem: 8000 waits:")
    terminating = told.index("xpu-two-cards is terminating cards 2,3 stay taken")
    ended = told.index("xpu-two-cards has ended cards 2,3 are free again")
    goes_on = told.index("xpu-large baidu.com/xpu-mem: 8000 → minikube card 2")
    assert waits < terminating < ended < goes_on
    assert "13 pods bound, 4 waiting with a reason, no card oversold" in told


def test_nothing_is_left_running(played: subprocess.CompletedProcess[str]) -> None:
    assert _gone(_extender(played.stdout))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_nothing_is_left_running_after_an_interruption(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with _begun(tmp_path) as demo:
        pid = _extender(_read_until(demo, r"process \d+"))
        demo.send_signal(number)
        assert demo.wait(LIMIT_S) == code
    assert _gone(pid)
    assert not list(tmp_path.iterdir())


def test_kept_until_told_to_end(tmp_path: Path) -> None:
    with _begun(tmp_path, "--keep") as demo:
        told = _read_until(demo, r"tail -f ")
        assert re.search(r"curl http://127\.0\.0\.1:\d+/accelshare/inspect", told)
        assert not _gone(_extender(told))
        demo.send_signal(signal.SIGINT)
        assert demo.wait(LIMIT_S) == 0
    assert _gone(_extender(told))


async def test_an_extender_that_does_not_start_is_told_with_the_end_of_its_log() -> None:
    with pytest.raises(DemoError, match=r"(?s)exit code 3.*log ends with:.*no such luck"):
        async with set_up([sys.executable, "-c", "print('no such luck'); raise SystemExit(3)"]):
            pass


async def test_among_several_nodes_the_extender_s_score_decides() -> None:
    """A pod with a preference of its own gets every node that fits, so kube-scheduler asks for scores; the fuller node wins."""
    catalog = catalogs.load()
    async with set_up() as stage:
        (node,) = playlist.manifests("nodes/nvidia.yaml")
        for name in ("a", "b"):
            await stage.create({**node, "metadata": {**node["metadata"], "name": name}})
        await stage.until(lambda: _shown(stage, '"a"', '"b"'), "both nodes are known")
        scheduler = Scheduler(stage.session, f"{stage.extender_url}/accelshare")
        container = {"name": "main", "image": "none", "resources": {"limits": {"aliyun.com/gpu-mem": 3}}}
        for name, candidates, affinity in (("first", "b", {}), ("second", "ab", {"nodeAffinity": _rather_on("a")})):
            spec = {"containers": [container], "affinity": affinity}
            await stage.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
            view = await look(stage.client, catalog)
            for other in set(view.nodes).difference(candidates):
                del view.nodes[other]
            assert await scheduler.cycle(view.pods[f"default/{name}"], view) == Bound("b")
        async with stage.session.get(f"{stage.extender_url}/metrics") as answer:
            assert re.search(r'\{[^}]*"prioritize"[^}]*\} 1\.0$', await answer.text(), re.MULTILINE), "asked for scores once"


def test_equal_reasons_are_counted_together_in_the_order_of_their_text() -> None:
    reasons = {"a": ["Insufficient x/y"], "b": ["no card is empty"], "c": ["Insufficient x/y"]}
    assert sentence(reasons) == "0/3 nodes are available: 1 no card is empty, 2 Insufficient x/y."


def test_replicas_are_numbered_and_keep_their_template() -> None:
    (manifest,) = playlist.manifests("nvidia/app.yaml")
    pods = pods_of(manifest)
    assert [pod["metadata"]["name"] for pod in pods] == ["binpack-1-0", "binpack-1-1", "binpack-1-2"]
    assert all(pod["spec"] == manifest["spec"]["template"]["spec"] for pod in pods)


def test_a_workload_that_the_demo_cannot_play_is_named() -> None:
    with pytest.raises(DemoError, match="not a Job"):
        pods_of({"kind": "Job"})


def test_a_broken_playlist_is_told_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "playlist.yaml"
    file.write_text("nodes: []\nacts: [{title: 7}]\n")
    with pytest.raises(DemoError, match=r"playlist\.yaml.*acts\[0\]\.title"):
        playlist.load(file)


def test_a_wide_table_is_cut_between_columns_and_loses_nothing() -> None:
    lines = ["NAME  A(x/y)  B(x/y)  Sum of(z)", "n     1/2     3/4     4/6", "-" * 40, "4/6 (66%)"]
    assert list(folded(lines, 60)) == lines
    cut = list(folded(lines, 20))
    assert max(map(len, cut)) <= 20
    assert cut[:4] == ["NAME  A(x/y)", "n     1/2", "    B(x/y)", "    3/4"]
    assert {word for line in lines[:2] for word in line.split()} == {word for line in cut[:6] for word in line.split()}


@pytest.mark.parametrize(
    ("terminal", "environment", "coloured"),
    [(True, {}, True), (True, {"NO_COLOR": "1"}, False), (True, {"TERM": "dumb"}, False), (False, {}, False)],
)
def test_colour_is_for_terminals_that_want_it(terminal: bool, environment: dict[str, str], coloured: bool) -> None:
    class Out:
        def isatty(self) -> bool:
            return terminal

    assert Page.on(Out(), environment).colour is coloured  # type: ignore[arg-type]


def _environment(directory: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(directory), "PYTHONDONTWRITEBYTECODE": "1"}


@contextlib.contextmanager
def _begun(directory: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    # A shell's background job ignores Ctrl-C, and so would all it starts; here it must be heard.
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(
        [*COMMAND, *flags],
        cwd=ROOT,
        env=_environment(directory),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as demo:
        try:
            yield demo
        finally:
            signal.signal(signal.SIGINT, inherited)
            if demo.poll() is None:
                demo.kill()


def _read_until(demo: subprocess.Popen[str], pattern: str) -> str:
    """All that was printed until a line has this."""
    assert demo.stdout is not None
    told = ""
    for line in demo.stdout:
        told += line
        if re.search(pattern, line):
            return told
    raise AssertionError(f"the demo ended without saying {pattern!r}:\n{told}")


def _extender(told: str) -> int:
    found = re.search(r"process (\d+)", told)
    assert found is not None, told
    return int(found[1])


def _gone(pid: int) -> bool:
    """Whether no such process runs. A process that was killed may need a moment to vanish."""
    for _ in range(20):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def _unwrapped(text: str) -> str:
    return " ".join(text.split())


async def _shown(stage: Stage, *words: str) -> bool:
    shown = await stage.inspected()
    return all(word in shown for word in words)


def _rather_on(node: str) -> dict[str, object]:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}]}
