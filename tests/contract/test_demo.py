"""`make demo` takes seconds, gives pods the cards of the original guides, gives every refusal a reason, and leaves nothing."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from accelshare.agent.device_plugin.api import kubelet_device_plugin_pb2 as plugin_api
from accelshare.ledger.facts import PodSeen
from accelshare.ledger.nouns import Slice
from accelshare.testing.fake_kubelet import Admitted, FakeKubelet
from accelshare.vendors import catalog as catalogs
from accelshare.vendors.drivers import registry
from accelshare.wire import inventory
from accelshare.wire.objects import Metadata, Node, NodeStatus
from demo import __main__ as command
from demo.checks import disagreements, oversold_resources, visible_cards
from demo.cluster import LONGEST_TEMPORARY, DemoCluster, start_cluster, temporary
from demo.nodes import without_agent_data
from demo.output import DemoOutput, folded
from demo.own_vendor import own_scenario, with_declared_cards
from demo.scenario import DemoError, load_scenario, manifests, pods_of
from demo.scheduler import DemoScheduler, Scheduled, failure_message
from demo.snapshot import take_snapshot

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "demo"]
LIMIT_S = 90.0  # it takes a few; machines that run tests are busy
ALL = 5  # processes: the extender, and an agent for each of the four nodes


@pytest.fixture(scope="module")
def demo_run() -> subprocess.CompletedProcess[str]:
    """One run for all that is read off its output, in a temporary directory of its own."""
    with tempfile.TemporaryDirectory(prefix="d-") as name:
        done = subprocess.run(
            COMMAND, cwd=ROOT, env=_environment(Path(name)), capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        assert not list(Path(name).iterdir()), "the demo left files behind"
    return done


@pytest.fixture
def directory() -> Iterator[Path]:
    """A temporary directory with a short name: pytest's own are too long for the sockets in them."""
    with tempfile.TemporaryDirectory(prefix="d-") as name:
        yield Path(name)


def test_it_ends_well_and_says_nothing_else(demo_run: subprocess.CompletedProcess[str]) -> None:
    assert (demo_run.returncode, demo_run.stderr) == (0, "")


def test_it_fits_a_page(demo_run: subprocess.CompletedProcess[str]) -> None:
    lines = demo_run.stdout.splitlines()
    assert len(lines) <= 105
    assert max(map(len, lines)) <= 100
    assert "\033" not in demo_run.stdout, "colour is for terminals"


def test_the_four_gcushare_outcomes(demo_run: subprocess.CompletedProcess[str]) -> None:
    """Card 0, card 0, card 1, and the refusal that the guide shows."""
    for number, asked, card in ((1, 4, 0), (2, 8, 0), (3, 12, 1)):
        row = rf"gcushare-pod-{number} +enflame.com/gcu-memory: {asked} +→ sse-lab-inspur-048 +card {card}$"
        assert re.search(row, demo_run.stdout, re.MULTILINE), row
    refusal = "0/4 nodes are available: 1 insufficient GCU Memory in one gcu device, 3 Insufficient enflame.com/gcu-memory."
    assert f"gcushare-pod-4 enflame.com/gcu-memory: 20 waits: {refusal}" in _unwrapped(demo_run.stdout)


def test_two_replicas_on_two_cards_in_the_inspect_table(demo_run: subprocess.CompletedProcess[str]) -> None:
    assert re.search(r"minikube +192\.168\.49\.2 +4500/8064 +4500/8064", demo_run.stdout)


def test_slices_and_whole_cards_on_one_node(demo_run: subprocess.CompletedProcess[str]) -> None:
    for row in (
        r"binpack-1-2 .*→ dev-server-153 +card 0$",
        r"gpu-two-whole .*→ dev-server-153 +cards 1,2 whole$",
        r"gpu-slice .*→ dev-server-153 +card 3$",
    ):
        assert re.search(row, demo_run.stdout, re.MULTILINE), row
    output = _unwrapped(demo_run.stdout)
    assert "gpu-six-whole nvidia.com/gpu: 6 waits: 0/4 nodes are available: 4 Insufficient nvidia.com/gpu." in output


@pytest.mark.parametrize(
    ("pod", "seen"),
    [
        ("gcushare-pod-3", "/dev/gcu1, /dev/gcuctl, ENFLAME_VISIBLE_DEVICES=1"),
        ("xpu-two-cards", "/dev/xpu2, /dev/xpu3, /dev/xpuctrl, CXPU_VISIBLE_DEVICES=2,3"),
        ("gpu-two-whole", "NVIDIA_VISIBLE_DEVICES=GPU-a30-1,GPU-a30-2"),
        ("stc-example-pod", "/dev/stc0, /dev/stc0c0, /dev/stc0c1, /dev/stc0c2, /dev/stc0c3, /dev/stc0ctrl"),
        ("xpu-large", "/dev/xpu2, /dev/xpuctrl, CXPU_VISIBLE_DEVICES=2"),
    ],
)
def test_a_container_is_given_its_own_cards_and_no_others(
    demo_run: subprocess.CompletedProcess[str], pod: str, seen: str
) -> None:
    assert re.search(rf"^  {pod} .*→ .*\n +container gets {seen}$", demo_run.stdout, re.MULTILINE)


def test_every_bound_pod_is_followed_to_its_container(demo_run: subprocess.CompletedProcess[str]) -> None:
    bound = re.findall(r"→ .*\n +container gets ", demo_run.stdout)
    assert len(bound) == demo_run.stdout.count("→") == 14


def test_the_books_agree_for_every_pod(demo_run: subprocess.CompletedProcess[str]) -> None:
    agree = "for each of the 13 its record, kubelet's device ids and its container's devices agree"
    assert agree in _unwrapped(demo_run.stdout)


def test_a_mismatch_ends_the_demo_with_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], directory: Path
) -> None:
    """A kubelet that notes another card than it asked for is found out at the first pod."""
    admit = FakeKubelet._admit

    async def careless(kubelet: FakeKubelet, pod: dict[str, Any], name: str) -> Admitted:
        admitted = await admit(kubelet, pod, name)
        for ids in admitted.ids.values():
            ids.update({resource: [f"7-{number}" for number in range(len(own))] for resource, own in ids.items()})
        return admitted

    monkeypatch.setattr(FakeKubelet, "_admit", careless)
    monkeypatch.setattr(sys, "argv", ["demo"])
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    assert command.main() == 1
    output = capsys.readouterr()
    assert "the record of kube-system/gcushare-pod-1 has enflame card 0 4, kubelet allocated enflame card 7 4" in output.err
    assert all(map(_gone, _processes(output.out)))
    assert not list(directory.iterdir())


def test_a_waiting_pod_goes_on_when_another_has_really_ended(demo_run: subprocess.CompletedProcess[str]) -> None:
    output = _unwrapped(demo_run.stdout)
    waits = output.index("xpu-large baidu.com/xpu-mem: 8000 waits:")
    terminating = output.index("xpu-two-cards is terminating cards 2,3 stay taken")
    ended = output.index("xpu-two-cards has ended cards 2,3 are free again")
    goes_on = output.index("xpu-large baidu.com/xpu-mem: 8000 → minikube card 2")
    assert waits < terminating < ended < goes_on
    assert "13 pods bound, 4 waiting with a reason, no card oversold" in output


def test_nothing_is_left_running(demo_run: subprocess.CompletedProcess[str]) -> None:
    pids = _processes(demo_run.stdout)
    assert len(pids) == ALL
    assert all(map(_gone, pids))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("moment", [r"extender .*process \d+", r"k8smasterdemo .*process \d+", r"container gets"])
def test_nothing_is_left_running_after_an_interruption(directory: Path, moment: str, number: signal.Signals, code: int) -> None:
    with _begun(directory) as demo:
        _read_until(demo, moment)
        pids = _descendants(demo.pid)
        assert len(pids) == ALL
        demo.send_signal(number)
        assert demo.wait(LIMIT_S) == code
    assert all(map(_gone, pids))
    assert not list(directory.iterdir())


def test_kept_until_told_to_end(directory: Path) -> None:
    with _begun(directory, "--keep") as demo:
        output = _read_until(demo, r"tail -f ")
        assert re.search(r"curl http://127\.0\.0\.1:\d+/accelshare/inspect", output)
        (kubeconfig,) = re.findall(r"KUBECONFIG=(\S+) accelshare inspect\n", output)
        assert Path(kubeconfig).is_file()
        assert len(_processes(output)) == ALL
        assert not any(map(_gone, _processes(output)))
        demo.send_signal(signal.SIGINT)
        assert demo.wait(LIMIT_S) == 0
    assert all(map(_gone, _processes(output)))


def test_a_temporary_directory_too_long_for_sockets_is_passed_over() -> None:
    assert temporary("/tmp/mine") == "/tmp/mine"
    assert temporary("/" + "x" * LONGEST_TEMPORARY) == "/tmp"


async def test_the_declared_cards_are_those_of_the_example_nodes() -> None:
    """What the agents find is what the example files say of themselves: two places, one truth."""
    scenario = load_scenario()
    catalog = catalogs.load([scenario.profiles_directory])
    for entry in scenario.nodes:
        (manifest,) = manifests(entry.file)
        entries = inventory.entries_of(manifest["metadata"]["annotations"][inventory.KEY])[entry.vendor]
        cards = await registry.make(catalog[entry.vendor]).discover()
        assert [(card.index, card.id, card.minor, card.model) for card in cards] == [
            (card.index, card.id, card.minor, card.model) for card in entries.cards
        ]
        if catalog[entry.vendor].resources.memory is not None:
            unit_mib = catalog[entry.vendor].unit.mib[entries.unit]
            assert [card.memory_mib // unit_mib for card in cards] == [card.size for card in entries.cards]


def test_a_node_begins_bare() -> None:
    """Nothing of what an agent or a kubelet tells is there before they tell it."""
    (manifest,) = manifests("nodes/nvidia.yaml")
    node = without_agent_data(manifest, catalogs.load())
    assert node["metadata"]["annotations"] == {}
    assert node["status"]["allocatable"] == {"cpu": "64", "memory": "256Gi", "pods": "110"}
    assert "addresses" not in node["status"]


# A node with two cards of 8 units, and a pod that was recorded on card 1; in these names there is no vendor either.
CATALOG = catalogs.load()
PROFILE = next(one for one in CATALOG if one.resources.memory and one.container.envvar and not one.request.shapes)
MEMORY, WHOLE = str(PROFILE.resources.memory), str(PROFILE.resources.whole)


def _node(**shown: int) -> Node:
    entry = inventory.KindEntry([inventory.CardEntry(i, 8, f"id-{i}", minor=i) for i in range(2)], PROFILE.unit.default)
    amounts: Any = {MEMORY: shown.get("memory", 16), WHOLE: shown.get("whole", 2)}
    annotations = {inventory.KEY: inventory.write({PROFILE.name: entry})}
    return Node(Metadata(name="n1", annotations=annotations), status=NodeStatus(allocatable=amounts))


def _pod(*, whole: bool = False) -> PodSeen:
    slices = (Slice(PROFILE.name, 1, 0 if whole else 4, whole, "id-1"),)
    return PodSeen("u", "default", "p", request=(), node="n1", slices=slices)


def _admitted(card: int, *, container: int | None = None, units: int = 4) -> Admitted:
    number = card if container is None else container
    env = {
        name: template.format(index=number, minor=number, id=f"id-{number}")
        for name, template in PROFILE.container.envvar.items()
    }
    files = [file.format(index=number, minor=number) for file in PROFILE.hardware.device_nodes]
    devices = [plugin_api.DeviceSpec(container_path=file) for file in (*files, *PROFILE.hardware.shared_device_nodes)]
    response = plugin_api.ContainerAllocateResponse(envs=env, devices=devices)
    ids = [f"{card}-{unit:x}" for unit in range(units)]
    return Admitted("u", "default/p", ids={"main": {MEMORY: ids}}, responses={"main": [response]})


def test_three_books_that_agree_are_silent() -> None:
    assert list(disagreements(_pod(), _admitted(1), _node(), CATALOG)) == []


@pytest.mark.parametrize(
    ("admitted", "words"),
    [
        (_admitted(0, container=1), "card 1 4, kubelet allocated .* card 0 4$"),
        (_admitted(1, units=3), "card 1 4, kubelet allocated .* card 1 3$"),
        (_admitted(1, container=0), "container main of default/p has .*; expected "),
    ],
    ids=["another card in kubelet", "fewer units in kubelet", "another card in the container"],
)
def test_a_book_that_says_otherwise_is_disagreements(admitted: Admitted, words: str) -> None:
    assert re.search(words, "; ".join(disagreements(_pod(), admitted, _node(), CATALOG))[:400])


def test_the_variables_that_are_shown_are_those_that_name_cards() -> None:
    (seen,) = visible_cards(_admitted(1), CATALOG)
    assert all(f"{name}=" in seen for name in PROFILE.container.envvar)


def test_a_card_offered_in_two_manners_is_named() -> None:
    """A card with slices on it must not be counted as whole, nor a whole one's memory as free."""
    assert oversold_resources(_node(memory=16, whole=1), [_pod()], CATALOG) == []
    assert oversold_resources(_node(memory=16, whole=2), [_pod()], CATALOG) == [WHOLE]
    assert oversold_resources(_node(memory=16, whole=2), [_pod(whole=True)], CATALOG) == [MEMORY]


async def test_an_extender_that_does_not_start_is_told_with_the_end_of_its_log() -> None:
    with pytest.raises(DemoError, match=r"(?s)exit code 3.*log ends with:.*no such luck"):
        async with start_cluster([sys.executable, "-c", "print('no such luck'); raise SystemExit(3)"]):
            pass


async def test_among_several_nodes_the_extender_s_score_decides() -> None:
    """A pod with a preference of its own gets every node that fits, so kube-scheduler asks for scores; the fuller node wins."""
    catalog = catalogs.load()
    async with start_cluster() as cluster:
        (node,) = manifests("nodes/nvidia.yaml")
        for name in ("a", "b"):
            await cluster.create({**node, "metadata": {**node["metadata"], "name": name}})
        await cluster.until(lambda: _shown(cluster, '"a"', '"b"'), "both nodes are known")
        scheduler = DemoScheduler(cluster.session, f"{cluster.extender_url}/accelshare")
        container = {"name": "main", "image": "none", "resources": {"limits": {"aliyun.com/gpu-mem": 3}}}
        for name, candidates, affinity in (("first", "b", {}), ("second", "ab", {"nodeAffinity": _rather_on("a")})):
            spec = {"containers": [container], "affinity": affinity}
            await cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
            snapshot = await take_snapshot(cluster.client, catalog)
            for other in set(snapshot.nodes).difference(candidates):
                del snapshot.nodes[other]
            assert await scheduler.cycle(snapshot.pods[f"default/{name}"], snapshot) == Scheduled("b")
        async with cluster.session.get(f"{cluster.extender_url}/metrics") as answer:
            assert re.search(r'\{[^}]*"prioritize"[^}]*\} 1\.0$', await answer.text(), re.MULTILINE), "asked for scores once"


def test_equal_reasons_are_counted_together_in_the_order_of_their_text() -> None:
    reasons = {"a": ["Insufficient x/y"], "b": ["no card is empty"], "c": ["Insufficient x/y"]}
    assert failure_message(reasons) == "0/3 nodes are available: 1 no card is empty, 2 Insufficient x/y."


def test_replicas_are_numbered_and_keep_their_template() -> None:
    (manifest,) = manifests("nvidia/app.yaml")
    pods = pods_of(manifest)
    assert [pod["metadata"]["name"] for pod in pods] == ["binpack-1-0", "binpack-1-1", "binpack-1-2"]
    assert all(pod["spec"] == manifest["spec"]["template"]["spec"] for pod in pods)


def test_a_workload_that_the_demo_cannot_play_is_named() -> None:
    with pytest.raises(DemoError, match="not a Job"):
        pods_of({"kind": "Job"})


def test_a_broken_scenario_is_told_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text("nodes: []\nsteps: [{title: 7}]\n")
    with pytest.raises(DemoError, match=r"scenario\.yaml.*steps\[0\]\.title"):
        load_scenario(file)


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

    assert DemoOutput.on(Out(), environment).colour is coloured  # type: ignore[arg-type]


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
    output = ""
    for line in demo.stdout:
        output += line
        if re.search(pattern, line):
            return output
    raise AssertionError(f"the demo ended without saying {pattern!r}:\n{output}")


def _processes(output: str) -> list[int]:
    """Every process that the demo says it has started."""
    return [int(pid) for pid in re.findall(r"process (\d+)", output)]


def _descendants(pid: int) -> list[int]:
    """The processes that it started, by the kernel's own list."""
    children = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for file in children for child in file.read_text().split()]


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


async def _shown(cluster: DemoCluster, *words: str) -> bool:
    shown = await cluster.inspect()
    return all(word in shown for word in words)


def _rather_on(node: str) -> dict[str, object]:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}]}


def test_a_slice_with_a_shape_counts_as_its_record_does() -> None:
    """kubelet has the requested ids, the record the units of the shape."""
    ascend = CATALOG["ascend"]
    admitted = Admitted(
        "u", "default/p", ids={"main": {str(ascend.resources.memory): [f"1-{u:x}" for u in range(5)]}}, responses={}
    )
    pod = PodSeen("u", "default", "p", request=(), node="n1", slices=(Slice("ascend", 1, 16384, False, "id-1"),))
    node = Node(Metadata(name="n1"), NodeStatus())
    assert not any("kubelet allocated" in line for line in _disagreements(pod, admitted, node))
    wrong = PodSeen("u", "default", "p", request=(), node="n1", slices=(Slice("ascend", 1, 5, False, "id-1"),))
    assert "ascend card 1 16384" in _disagreements(wrong, admitted, node)[0]


def _disagreements(pod: PodSeen, admitted: Admitted, node: Node) -> list[str]:
    """What is wrong, before the containers are compared."""
    problems: list[str] = []
    with contextlib.suppress(KeyError):  # the node of this test publishes no cards
        problems.extend(disagreements(pod, admitted, node, CATALOG))
    return problems or [""]


# The user's own vendors.


OWN = """\
name = "acme"
title = "Acme ZPU"
noun = "ZPU"
[resources]
memory = "acme.example/zpu-mem"
whole = "acme.example/zpu"
[unit]
default = "GiB"
mib = { GiB = 1024 }
[request]
max_cards = 1
shapes = [{ name = "quarter", mib = 4096 }, { name = "half", mib = 8192 }]
[hardware]
device_nodes = ["/dev/dri/{render_node}"]
[driver]
name = "static"
[driver.static]
command = ["acme-smi", "--json"]
json = { cards = "cards", id = "serial", memory = "memory" }
[container.envvar]
ACME_PARTITION = "{shape}"
"""


def test_a_vendor_of_ones_own_is_played_from_its_profile_alone(directory: Path) -> None:
    """Its tool is not on this machine: the cards are declared, and everything else is the profile's."""
    (directory / "own").mkdir()
    (directory / "own" / "acme.toml").write_text(OWN)
    command_line = [*COMMAND, "--profiles", str(directory / "own")]
    done = subprocess.run(
        command_line, cwd=ROOT, env=_environment(directory), capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"acme-slice-1 +acme\.example/zpu-mem: 2 +→ acme-node  card 0", done.stdout)
    assert "container gets /dev/dri/renderD0, ACME_PARTITION=quarter" in done.stdout
    assert re.search(r"acme-too-large +acme\.example/zpu-mem: 9 +waits", done.stdout)
    assert re.search(r"acme-whole +acme\.example/zpu: 1 +→ acme-node  card 1 whole", done.stdout)
    assert "3 pods bound, 1 waiting" in done.stdout
    assert [entry.name for entry in directory.iterdir()] == ["own"], "the demo left files behind"


def test_a_directory_without_profiles_is_refused(directory: Path) -> None:
    with pytest.raises(DemoError, match="has no profile"):
        own_scenario(directory, directory)


@pytest.mark.parametrize("name", [profile.name for profile in catalogs.load()])
def test_every_shipped_profile_can_be_played(name: str) -> None:
    """With declared cards in place of its driver, and within what kubelet's list of devices takes."""
    profile = with_declared_cards(catalogs.load()[name])
    assert profile.driver is not None
    assert profile.driver.static is not None
    (cards,) = profile.driver.static.cards
    units = cards.count * cards.memory_mib / profile.unit.mib[profile.unit.default]
    assert units <= 60_000 or profile.resources.memory is None
    assert all("node}" not in path for path in profile.hardware.device_nodes)
