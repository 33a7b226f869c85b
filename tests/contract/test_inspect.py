"""The commands for people as processes of their own, against the in-memory API server."""

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import sys
import unicodedata
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from accelshare.testing.api_server import FakeApiServer
from tests.contract.fake_cluster import FakeCluster

ROOT = Path(__file__).parents[2]
XPUSHARE = (
    "NAME      IPADDRESS     XPU0(Allocated/Total)  XPU1(Allocated/Total)  XPU2(Allocated/Total)  XPU3(Allocated/Total)  "
    "XPU Memory(MiB)\n"
    "minikube  192.168.49.2  4500/8064              4500/8064              0/8064                 0/8064                 "
    "9000/32256\n"
    "---------------------------------------------------------------------------------------\n"
    "Allocated/Total XPU Memory In Cluster:\n"
    "9000/32256 (27%)  \n"
)


class InspectedCluster:
    """A user's environment: a kubeconfig, commands on the PATH, and a cluster to fill."""

    def __init__(self, api: FakeApiServer, directory: Path) -> None:
        self.api = api
        self.directory = directory
        self.kubeconfig = api.write_kubeconfig(directory / "kubeconfig")

    def plugin(self, word: str) -> Path:
        """The program that pip would install."""
        program = self.directory / f"kubectl-inspect-{word}"
        program.write_text(f"#!{sys.executable}\nfrom accelshare.inspect_cli.plugin import main\nmain()\n")
        program.chmod(0o755)
        return program

    def completion(self, word: str) -> Path:
        """The program beside it that kubectl runs for completions."""
        program = self.directory / f"kubectl_complete-inspect-{word}"
        program.write_text(f"#!{sys.executable}\nfrom accelshare.inspect_cli.kubectl_completion import main\nmain()\n")
        program.chmod(0o755)
        return program

    def environ(self, **more: str) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE") if name in os.environ}
        return {**kept, "HOME": str(self.directory), "KUBECONFIG": str(self.kubeconfig), "TERM": "xterm", **more}

    async def run(self, *words: str | Path, environ: dict[str, str] | None = None) -> tuple[int, str, str]:
        """In a thread, because the cluster answers from this very process."""
        return await asyncio.to_thread(self._run, words, environ or self.environ())

    def _run(self, words: tuple[str | Path, ...], environ: dict[str, str]) -> tuple[int, str, str]:
        done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=300, check=False)
        return done.returncode, done.stdout, done.stderr

    async def accelshare(self, *words: str, **environ: str) -> tuple[int, str, str]:
        return await self.run(sys.executable, "-m", "accelshare", *words, environ=self.environ(**environ))

    def example_node(self, vendor: str) -> None:
        self.api.store.create("nodes", yaml.safe_load((ROOT / f"examples/nodes/{vendor}.yaml").read_text()))

    def pod(self, name: str, limits: dict[str, int], *, on: str = "", namespace: str = "default", **spec: Any) -> None:
        """A pod that waits, or one on "node kind/index"."""
        node, _, card = on.partition(" ")
        kind, _, index = card.partition("/")
        record = {"accelshare.io/assignment": json.dumps({kind: [{"index": int(index)}]})} if index else {}
        labels = spec.pop("labels", {})
        if namespace != "default":
            self.api.store.create("namespaces", {"metadata": {"name": namespace}})
        content = {
            "metadata": {"name": name, "annotations": record, "labels": labels},
            "spec": {
                **({"nodeName": node} if node else {}),
                "containers": [{"name": "main", "image": "none", "resources": {"limits": limits}}],
                **spec,
            },
        }
        self.api.store.create("pods", content, namespace=namespace)

    def xpu_pods(self) -> None:
        """The xpushare guide's scene."""
        self.example_node("kunlun")
        for index in (0, 1):
            self.pod(f"xpu-pod-{index}", {"baidu.com/xpu-mem": 4500}, on=f"minikube kunlun/{index}")


@pytest.fixture
async def inspected(tmp_path: Path) -> AsyncIterator[InspectedCluster]:
    async with FakeApiServer() as api:
        yield InspectedCluster(api, tmp_path)


# The tables.


async def test_the_guides_table_from_the_guides_command(inspected: InspectedCluster) -> None:
    inspected.xpu_pods()
    assert await inspected.run(inspected.plugin("xpushare")) == (0, XPUSHARE, "")
    assert await inspected.run(inspected.plugin("xpushare"), "minikube") == (0, XPUSHARE, "")


async def test_the_command_of_one_vendor_shows_no_other(inspected: InspectedCluster) -> None:
    inspected.xpu_pods()
    for vendor in ("nvidia", "enflame", "stream"):
        inspected.example_node(vendor)
    assert (await inspected.run(inspected.plugin("xpushare")))[1] == XPUSHARE
    for word, noun in (("gpushare", "GPU"), ("gcushare", "GCU")):
        code, out, err = await inspected.run(inspected.plugin(word))
        assert (code, err) == (0, "")
        assert re.findall(r"(\w+)0\(Allocated/Total\)", out) == [noun]
    code, out, _ = await inspected.run(inspected.plugin("gpushare"), "--all-vendors")
    assert code == 0
    assert re.findall(r"(\w+)0\(Allocated/Total\)", out) == ["GCU", "XPU", "GPU", "NPU"]
    assert f"Kunlun XPU (xpushare)\n{XPUSHARE}\n" in out


async def test_accelshare_inspect_shows_the_vendors_that_the_cluster_has(inspected: InspectedCluster) -> None:
    inspected.xpu_pods()
    assert await inspected.accelshare("inspect") == (0, XPUSHARE, "")
    inspected.example_node("stream")
    code, out, _ = await inspected.accelshare("inspect", "--vendor", "stream")
    assert (code, out.splitlines()[-1]) == (0, "0/2 (0%)  ")


async def test_the_details(inspected: InspectedCluster) -> None:
    inspected.xpu_pods()
    code, out, err = await inspected.run(inspected.plugin("xpushare"), "-d")
    assert (code, err) == (0, "")
    assert out.startswith("\nNAME:       minikube\nIPADDRESS:  192.168.49.2\n\nNAME         NAMESPACE   XPU0(Allocated)")
    assert "\nxpu-pod-0    default     4500             0                0                0                \n" in out
    assert out.endswith("\n\n\nAllocated/Total XPU Memory In Cluster:  9000/32256 (27%)  \n")


async def test_the_machine_readable_forms_have_the_same_content(inspected: InspectedCluster) -> None:
    inspected.xpu_pods()
    _, as_json, _ = await inspected.accelshare("inspect", "-o", "json")
    _, as_yaml, _ = await inspected.accelshare("inspect", "-o", "yaml")
    (node,) = json.loads(as_json)["nodes"]
    assert [(card["used"], card["free"], card["unit"], card["model"]) for card in node["cards"]] == [
        (4500, 3564, "MiB", "K200"),
        (4500, 3564, "MiB", "K200"),
        (0, 8064, "MiB", "K200"),
        (0, 8064, "MiB", "K200"),
    ]
    assert yaml.safe_load(as_yaml) == json.loads(as_json)
    _, wide, _ = await inspected.accelshare("inspect", "-o", "wide")
    assert wide.splitlines()[1].split()[:8] == [
        "minikube", "192.168.49.2", "XPU0", "K200", "000000000007a136-0", "4500", "3564", "8064",
    ]  # fmt: skip


async def test_a_namespace_counts_its_own_pods_only(inspected: InspectedCluster) -> None:
    inspected.xpu_pods()
    inspected.pod("other", {"baidu.com/xpu-mem": 1000}, on="minikube kunlun/3", namespace="ml")
    code, out, err = await inspected.accelshare("inspect", "-n", "ml")
    assert (code, out.splitlines()[1].split()[2:]) == (0, ["0/8064", "0/8064", "0/8064", "1000/8064", "1000/32256"])
    assert err == "only pods of namespace ml are counted\n"


async def test_long_lists_are_read_a_page_at_a_time(inspected: InspectedCluster) -> None:
    inspected.example_node("kunlun")
    for number in range(501):
        inspected.pod(f"p{number}", {"baidu.com/xpu-mem": 2}, on="minikube kunlun/0")
    code, out, _ = await inspected.accelshare("inspect")
    assert (code, out.splitlines()[-1]) == (0, "1002/32256 (3%)  ")


async def test_pods_that_have_ended_hold_nothing(inspected: InspectedCluster) -> None:
    inspected.xpu_pods()
    inspected.api.store.patch("pods", "xpu-pod-0", {"status": {"phase": "Succeeded"}}, subresource="status")
    code, out, _ = await inspected.accelshare("inspect")
    assert (code, out.splitlines()[-1]) == (0, "4500/32256 (13%)  ")
    _, out, _ = await inspected.accelshare("explain", "xpu-pod-0")
    assert out.startswith("default/xpu-pod-0 has ended: Succeeded.")


async def test_a_cluster_without_cards_prints_a_note_beside_an_empty_table(inspected: InspectedCluster) -> None:
    code, out, err = await inspected.run(inspected.plugin("gpushare"))
    assert (code, out.splitlines()[-1]) == (0, "0/0 (0%)  ")
    assert err == "this cluster shows no aliyun.com/gpu-mem\n"
    code, out, err = await inspected.accelshare("inspect")
    assert (code, out) == (0, "")
    assert err.startswith("this cluster has no cards of any vendor: ")


async def test_problems_of_nodes_are_printed_beside_the_table(inspected: InspectedCluster) -> None:
    inspected.api.store.create("nodes", {"metadata": {"name": "n1", "annotations": {"accelshare.io/inventory": "{"}}})
    _, _, err = await inspected.accelshare("inspect")
    assert "n1: annotation accelshare.io/inventory cannot be read" in err


async def test_cards_of_a_vendor_without_a_profile_are_named(inspected: InspectedCluster) -> None:
    """Whoever leaves out --profiles learns which profile is missing, also from explain."""
    text = '{"acme": {"cards": [{"index": 0, "size": 16}]}}'
    inspected.api.store.create("nodes", {"metadata": {"name": "zpu-node", "annotations": {"accelshare.io/inventory": text}}})
    inspected.pod("p", {"acme.example/zpu-mem": 1})
    for words in (["inspect"], ["explain", "p"]):
        code, _, complaint = await inspected.accelshare(*words)
        assert code == 0
        assert "no profile acme is known here" in complaint
        assert "zpu-node" in complaint


async def test_an_unreadable_pod_and_node_are_reported_and_do_no_other_harm(inspected: InspectedCluster) -> None:
    """Their texts are nested deeper than a recursive reader can follow."""
    inspected.xpu_pods()
    deep = "[" * 30_000 + "]" * 30_000
    inventory = {"accelshare.io/inventory": f'{{"kunlun": {{"more": {deep}}}}}'}
    inspected.api.store.create("nodes", {"metadata": {"name": "n1", "annotations": inventory}})
    spec = {
        "nodeName": "n1",
        "containers": [{"name": "main", "image": "none", "resources": {"limits": {"baidu.com/xpu-mem": 1}}}],
    }
    record = {"accelshare.io/assignment": f'{{"kunlun": [{{"more": {deep}}}]}}'}
    inspected.api.store.create("pods", {"metadata": {"name": "deep", "annotations": record}, "spec": spec}, namespace="default")
    code, out, err = await inspected.accelshare("inspect")
    assert (code, "4500/8064" in out) == (0, True), err
    assert "n1: annotation accelshare.io/inventory cannot be read" in err
    assert "Traceback" not in err
    for words in (("explain", "xpu-pod-0"), ("explain", "deep"), ("preflight",)):
        code, out, err = await inspected.accelshare(*words)
        assert "Traceback" not in err
        assert out, err


# Watching.


async def test_watching_in_a_pipe_prints_blocks_that_follow_the_cluster(inspected: InspectedCluster) -> None:
    inspected.xpu_pods()
    words = [inspected.plugin("xpushare"), "--watch", "--every", "0.2"]
    process = await asyncio.create_subprocess_exec(
        *map(str, words), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=inspected.environ()
    )
    assert process.stdout is not None
    first = await _until(process.stdout, b"9000/32256 (27%)")
    inspected.pod("xpu-pod-2", {"baidu.com/xpu-mem": 1000}, on="minikube kunlun/2")
    second = await _until(process.stdout, b"10000/32256 (31%)")
    process.send_signal(signal.SIGINT)
    _, err = await asyncio.wait_for(process.communicate(), 120)
    assert (process.returncode, err) == (0, b"")
    assert b"\x1b" not in first + second
    assert re.match(rb"# \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\nNAME ", first)


async def test_watching_on_a_terminal_redraws_in_place_and_survives_an_outage(inspected: InspectedCluster) -> None:
    inspected.xpu_pods()
    master, slave = pty.openpty()
    words = [str(inspected.plugin("xpushare")), "--watch", "--every", "0.2"]
    process = subprocess.Popen(words, stdout=slave, stderr=slave, env=inspected.environ(COLUMNS="200", LINES="50"))
    os.close(slave)
    first = await asyncio.to_thread(_read_until, master, b"9000/32256 (27%)")
    assert first.startswith(b"\x1b[?1049h\x1b[?25l\x1b[H")
    inspected.api.faults.answer(500, path="/api/v1/nodes", times=1)
    outage = await asyncio.to_thread(_read_until, master, b"500 ")
    assert b"9000/32256 (27%)" in outage + await asyncio.to_thread(_read_until, master, b"27%")
    inspected.pod("xpu-pod-2", {"baidu.com/xpu-mem": 1000}, on="minikube kunlun/2")
    await asyncio.to_thread(_read_until, master, b"10000/32256 (31%)")
    process.send_signal(signal.SIGINT)
    assert await asyncio.to_thread(process.wait, 120) == 0
    assert os.read(master, 65536).endswith(b"\x1b[?25h\x1b[?1049l")
    os.close(master)


async def _until(stream: asyncio.StreamReader, wanted: bytes) -> bytes:
    async with asyncio.timeout(180):
        seen = b""
        while wanted not in seen:
            part = await stream.read(65536)
            assert part, seen
            seen += part
        return seen


def _read_until(descriptor: int, wanted: bytes) -> bytes:
    seen = b""
    while wanted not in seen:
        seen += os.read(descriptor, 65536)
    return seen


# On a terminal.


def _typed(inspected: InspectedCluster, *words: str | Path, **environ: str) -> tuple[int, str]:
    """What a command prints on a terminal, and its exit code."""
    master, slave = pty.openpty()
    with subprocess.Popen(words, stdout=slave, stderr=slave, env=inspected.environ(**environ)) as process:
        os.close(slave)
        seen = b""
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:  # the other side has ended
                break
            if not part:
                break
            seen += part
        code = process.wait(120)
    os.close(master)
    return code, seen.decode().replace("\r\n", "\n")


INSPECT = (sys.executable, "-m", "accelshare", "inspect")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


async def test_on_a_terminal_inspect_draws_bars_as_wide_as_the_screen(inspected: InspectedCluster) -> None:
    inspected.xpu_pods()
    inspected.pod("big", {"baidu.com/xpu-mem": 9000})
    for columns in (40, 80, 200):
        code, text = await asyncio.to_thread(_typed, inspected, *INSPECT, COLUMNS=str(columns), LANG="C.UTF-8")
        assert code == 0
        assert "\x1b[1mminikube\x1b[0m" in text
        plain = COLOUR.sub("", text)
        assert all(len(line) <= columns for line in plain.splitlines())
        assert "XPU0 █" in plain
        assert "default/big" in plain
        assert "larger-than-any-card" in plain
        assert "Total XPU 9000/32256 MiB (27%)" in plain


async def test_the_terminal_shows_the_table_and_no_colours_where_asked_for(inspected: InspectedCluster) -> None:
    inspected.xpu_pods()
    assert await asyncio.to_thread(_typed, inspected, *INSPECT, "-o", "table") == (0, XPUSHARE)
    assert await asyncio.to_thread(_typed, inspected, inspected.plugin("xpushare")) == (0, XPUSHARE)
    for environ in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        _, text = await asyncio.to_thread(_typed, inspected, *INSPECT, **environ)
        assert "XPU0" in text
        assert "\x1b" not in text
    _, text = await asyncio.to_thread(_typed, inspected, *INSPECT, "-d")
    assert text.startswith("\nNAME:       minikube\n")


async def test_bars_in_a_pipe_have_no_colours(inspected: InspectedCluster) -> None:
    inspected.xpu_pods()
    code, out, err = await inspected.accelshare("inspect", "-o", "bars", COLUMNS="70", PYTHONIOENCODING="ascii")
    assert (code, err) == (0, "")
    assert "  XPU0 ####" in out
    assert "\x1b" not in out


def _live(inspected: InspectedCluster, words: Sequence[str | Path], **environ: str) -> str:
    """The first page of a live view."""
    master, slave = pty.openpty()
    process = subprocess.Popen(words, stdout=slave, stderr=slave, env=inspected.environ(**environ))
    os.close(slave)
    seen = _read_until(master, b"\x1b[J")
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 0
    os.close(master)
    return COLOUR.sub("", seen.decode().partition("\x1b[J")[0])


async def test_the_live_view_always_has_the_totals_and_says_what_it_leaves_out(inspected: InspectedCluster) -> None:
    """Also in a kubectl plugin, whose table would need more columns than the screen has."""
    inspected.xpu_pods()
    for number in range(12):
        node = yaml.safe_load((ROOT / "examples/nodes/kunlun.yaml").read_text())
        node["metadata"]["name"] = f"more-{number}"
        inspected.api.store.create("nodes", node)
    screen = {"COLUMNS": "60", "LINES": "24", "LANG": "C.UTF-8"}
    for words in ((*INSPECT, "-w"), (inspected.plugin("xpushare"), "-w")):
        shown = await asyncio.to_thread(_live, inspected, words, **screen)
        lines = re.sub(r"\x1b\[[?0-9]*[a-zA-Z]", "", shown).replace("\r", "").split("\n")
        assert len(lines) <= 24
        assert all(len(line) <= 60 for line in lines), lines
        assert "… 11 more nodes" in lines or "… 10 more nodes" in lines, lines
        assert any(line.startswith("Total XPU 9000/419328 MiB (2%)") for line in lines), lines
    table = (inspected.plugin("xpushare"), "-w", "-o", "table")
    shown = await asyncio.to_thread(_live, inspected, table, **{**screen, "LINES": "10"})
    assert "Allocated/Total XPU Memory In Cluster: 9000/419328 (2%)" in shown
    assert re.search(r"… \d+ more lines", shown)
    assert "… the lines have 1" in shown


# Problems.


async def test_a_namespace_that_is_not_there_is_an_error(inspected: InspectedCluster) -> None:
    inspected.xpu_pods()
    for command in ("inspect", "explain"):
        code, out, err = await inspected.accelshare(command, "-n", "defalt")
        assert (code, out) == (1, "")
        assert err == "Error: there is no namespace 'defalt'; did you mean default?\n"
    code, out, err = await inspected.accelshare("explain", "defalt/xpu-pod")
    assert (code, out, err) == (1, "", "Error: there is no namespace 'defalt'; did you mean default?\n")


async def test_an_empty_namespace_is_as_none_as_for_kubectl(inspected: InspectedCluster) -> None:
    """A script whose variable is empty."""
    inspected.xpu_pods()
    for command in ("inspect", "explain"):
        assert await inspected.accelshare(command, "-n", "") == await inspected.accelshare(command)


async def test_a_namespace_without_pods_that_request_cards_is_said(inspected: InspectedCluster) -> None:
    """Also to users who may not read namespaces."""
    inspected.example_node("kunlun")
    inspected.api.store.create("namespaces", {"metadata": {"name": "ml"}})
    line = "only pods of namespace ml are counted, and none of them requests cards\n"
    assert (await inspected.accelshare("inspect", "-n", "ml"))[2] == line
    inspected.api.faults.answer(403, path="/api/v1/namespaces/ml$")
    assert (await inspected.accelshare("inspect", "-n", "ml"))[2] == line


async def test_an_unknown_node_gets_a_suggestion(inspected: InspectedCluster) -> None:
    inspected.xpu_pods()
    assert await inspected.accelshare("inspect", "minikub") == (
        1,
        "",
        "Error: there is no node 'minikub'; did you mean minikube?\n",
    )
    assert (await inspected.accelshare("inspect", "Not/A-Name"))[
        2
    ] == "Error: there is no node 'Not/A-Name'; there are minikube\n"


async def test_no_permission_names_verb_and_resource(inspected: InspectedCluster) -> None:
    inspected.api.faults.answer(403, path="/api/v1/pods")
    code, out, err = await inspected.accelshare("inspect")
    assert (code, out) == (1, "")
    assert err.startswith("Error: no permission: you may not list pods in the whole cluster; ")


async def test_an_unreachable_cluster_is_reported(inspected: InspectedCluster) -> None:
    code, _, err = await inspected.accelshare("inspect", KUBECONFIG="")
    assert code == 1
    assert err.startswith("Error: ")
    assert "KUBECONFIG is not set" in err
    assert str(inspected.directory / ".kube/config") in err
    content = yaml.safe_load(inspected.kubeconfig.read_text())
    content["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:1"
    inspected.kubeconfig.write_text(yaml.safe_dump(content))
    code, _, err = await inspected.accelshare("inspect")
    assert code == 1
    assert err.startswith("Error: the API server cannot be reached: GET http://127.0.0.1:1/api/v1/nodes: Connection refused;")
    code, _, err = await inspected.accelshare("inspect", "--context", "nowhere")
    assert "there is no context 'nowhere'; it has: memory" in err
    code, _, err = await inspected.accelshare("inspect", "--kubeconfig", "/nowhere")
    assert code == 2


async def test_a_word_that_no_profile_has(inspected: InspectedCluster) -> None:
    code, _, err = await inspected.run(inspected.plugin("zpushare"))
    assert (code, err) == (1, "Error: no profile has the inspect command 'zpushare'; there are gcushare, gpushare, xpushare\n")


async def test_a_wrong_profile_directory_is_no_traceback(inspected: InspectedCluster) -> None:
    code, _, err = await inspected.run(inspected.plugin("gpushare"), "--profiles", "/nowhere")
    assert (code, err) == (2, "Error: /nowhere: is no directory; it must be one with profile files (*.toml)\n")


# explain.


async def test_explain_of_a_pending_pod(inspected: InspectedCluster) -> None:
    inspected.xpu_pods()
    inspected.pod("big", {"baidu.com/xpu-mem": 9000})
    code, out, err = await inspected.accelshare("explain", "big")
    assert (code, err) == (0, "")
    assert out.startswith(
        "default/big is pending. It requests 9000 MiB of one XPU (baidu.com/xpu-mem: 9000).\n"
        "Wrong: no XPU in this cluster has 9000 MiB; the largest has 8064 MiB (XPU0 of minikube)\n"
    )
    assert "  would help: 23256 MiB are free here in parts (8064+8064+3564+3564): take it from 2 cards with the label" in out


async def test_a_pod_that_requires_limits_and_the_cards_that_have_them(inspected: InspectedCluster) -> None:
    """The default is the extender's, so explain is told it. The original's table does not change."""
    inspected.example_node("kunlun")
    inspected.pod("waits", {"baidu.com/xpu-mem": 4000})
    plain = await inspected.run(inspected.plugin("xpushare"))
    code, out, _ = await inspected.accelshare("explain", "waits")
    assert (code, "Node minikube can serve it now." in out) == (0, True)
    code, out, _ = await inspected.accelshare("explain", "waits", "--default-enforcement=required")
    assert (code, "(limits-not-enforced)" in out, "Wrong: the default is required" in out) == (0, True, True)

    node = json.loads(inspected.api.store.get("nodes", "minikube").item)
    cards = json.loads(node["metadata"]["annotations"]["accelshare.io/inventory"])
    cards["kunlun"]["cards"][1] |= {"enforced_by": "cxpu", "min_units": 512}
    inspected.api.store.patch("nodes", "minikube", {"metadata": {"annotations": {"accelshare.io/inventory": json.dumps(cards)}}})
    _, out, _ = await inspected.accelshare("explain", "waits", "--default-enforcement=required")
    assert "nodes that enforce them: minikube (cxpu on 1 XPU)." in out
    assert "minikube can serve it: XPU1 " in out
    assert await inspected.run(inspected.plugin("xpushare")) == plain
    _, out, _ = await inspected.accelshare("inspect", "-o", "json")
    (shown,) = json.loads(out)["nodes"]
    assert [(card["enforced_by"], card["min_units"]) for card in shown["cards"][:2]] == [("nobody", 0), ("cxpu", 512)]


async def test_explain_of_a_running_pod_in_another_namespace(inspected: InspectedCluster) -> None:
    inspected.xpu_pods()
    inspected.pod("mine", {"baidu.com/xpu-mem": 2000}, on="minikube kunlun/1", namespace="ml")
    code, out, _ = await inspected.accelshare("explain", "mine", "-n", "ml")
    assert code == 0
    assert "It has 2000 MiB of XPU1 (id 000000000007a136-1), together with default/xpu-pod-1 4500.\n" in out
    code, _, err = await inspected.accelshare("explain", "mine")
    assert (code, err) == (1, "Error: there is no pod 'mine' in namespace default; there is one in ml (-n)\n")
    code, _, err = await inspected.accelshare("explain", "xpu-pod-9")
    assert (code, err) == (1, "Error: there is no pod 'xpu-pod-9' in namespace default; did you mean xpu-pod-1?\n")


async def test_explain_of_a_count_that_does_not_divide_and_a_selector_without_nodes(inspected: InspectedCluster) -> None:
    inspected.xpu_pods()
    inspected.pod("odd", {"baidu.com/xpu-mem": 4001}, labels={"baidu.com/xpu-count": "2"}, nodeSelector={"disk": "ssd"})
    _, out, _ = await inspected.accelshare("explain", "odd")
    assert (
        "Wrong: label baidu.com/xpu-count is 2, and baidu.com/xpu-mem: 4001 does not divide by 2 equally; 4000 and 4002 do\n"
        in out
    )
    assert "Wrong: nodeSelector disk=ssd: no node carries this label\n" in out


async def test_explain_takes_the_names_that_kubectl_prints(inspected: InspectedCluster) -> None:
    inspected.xpu_pods()
    inspected.pod("mine", {"baidu.com/xpu-mem": 2000}, on="minikube kunlun/1", namespace="ml")
    wanted = await inspected.accelshare("explain", "mine", "-n", "ml")
    assert wanted[0] == 0
    for words in (["ml/mine"], ["pod/mine", "-n", "ml"], ["pods/mine", "-n", "ml"], ["ml/mine", "-n", "ml"]):
        assert await inspected.accelshare("explain", *words) == wanted, words
    code, _, err = await inspected.accelshare("explain", "ml/mine", "-n", "default")
    assert code == 2
    assert "'ml/mine' is in namespace 'ml', and -n is 'default'" in err
    code, _, err = await inspected.accelshare("explain", "ml/min")
    assert (code, err) == (1, "Error: there is no pod 'min' in namespace ml; did you mean mine?\n")


async def test_explain_without_a_name_lists_every_pod_that_waits_with_its_reason(inspected: InspectedCluster) -> None:
    inspected.xpu_pods()
    assert await inspected.accelshare("explain") == (0, "No pod waits for cards.\n", "")
    inspected.pod("big", {"baidu.com/xpu-mem": 9000})
    inspected.pod("odd", {"baidu.com/xpu-mem": 4001}, labels={"baidu.com/xpu-count": "2"})
    inspected.pod("soon", {"baidu.com/xpu-mem": 100}, namespace="ml")
    inspected.pod("web", {"cpu": 1})
    inspected.pod("picky", {"baidu.com/xpu-mem": 100}, nodeSelector={"disk": "ssd"})
    code, out, err = await inspected.accelshare("explain")
    assert (code, err) == (0, "")
    head, *lines = out.splitlines()
    assert head.split() == ["POD", "REQUESTS", "REASON", "MEANING"]
    found = {line.split()[0]: line for line in lines}
    assert found.keys() == {"default/big", "default/odd", "default/picky", "ml/soon"}
    assert "9000 MiB XPU" in found["default/big"]
    assert " larger-than-any-card " in found["default/big"]
    assert " card-count-leaves-remainder " in found["default/odd"]
    assert " no-node-selected " in found["default/picky"]
    assert " fits-now " in found["ml/soon"]
    code, out, _ = await inspected.accelshare("explain", "-n", "ml")
    assert (code, [line.split()[0] for line in out.splitlines()[1:]]) == (0, ["ml/soon"])
    code, out, _ = await inspected.accelshare("explain", "-o", "json")
    waiting = json.loads(out)["waiting"]
    assert [(pod["namespace"], pod["name"], pod["reason"]) for pod in waiting] == [
        ("default", "big", "larger-than-any-card"),
        ("default", "odd", "card-count-leaves-remainder"),
        ("default", "picky", "no-node-selected"),
        ("ml", "soon", "fits-now"),
    ]
    words = (sys.executable, "-m", "accelshare", "explain")
    code, text = await asyncio.to_thread(_typed, inspected, *words, COLUMNS="40")
    assert code == 0
    assert all(len(COLOUR.sub("", line)) <= 40 for line in text.splitlines())


async def test_explain_without_a_name_knows_what_else_keeps_a_pod_away(inspected: InspectedCluster) -> None:
    node = yaml.safe_load((ROOT / "examples/nodes/kunlun.yaml").read_text())
    node["spec"] = {"taints": [{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}]}
    inspected.api.store.create("nodes", node)
    inspected.pod("me", {"baidu.com/xpu-mem": 4500})
    _, out, _ = await inspected.accelshare("explain", "-o", "json")
    (pod,) = json.loads(out)["waiting"]
    assert (pod["reason"], pod["nodes"]) == ("obstacle", ["minikube"])
    assert "dedicated=ml:NoSchedule" in pod["message"]


async def test_bars_say_the_same_word_as_explain_about_a_pod_that_waits(inspected: InspectedCluster) -> None:
    inspected.xpu_pods()
    inspected.pod("picky", {"baidu.com/xpu-mem": 500}, nodeSelector={"disk": "ssd"})
    inspected.pod("soon", {"baidu.com/xpu-mem": 500})
    _, out, _ = await inspected.accelshare("inspect", "-o", "bars")
    assert [line.split()[-1] for line in out.splitlines() if "default/picky" in line or "default/soon" in line] == [
        "no-node-selected",
        "fits-now",
    ]


async def test_explain_for_programs(inspected: InspectedCluster) -> None:
    inspected.xpu_pods()
    inspected.pod("big", {"baidu.com/xpu-mem": 9000})
    code, out, err = await inspected.accelshare("explain", "big", "-o", "json")
    assert (code, err) == (0, "")
    explanation = json.loads(out)
    assert (explanation["namespace"], explanation["name"]) == ("default", "big")
    assert explanation["mistakes"] == ["no XPU in this cluster has 9000 MiB; the largest has 8064 MiB (XPU0 of minikube)"]
    (node,) = explanation["nodes"]
    assert (node["node"], node["serves"], node["reason"]) == ("minikube", False, "larger-than-any-card")
    assert [card["name"] for card in node["cards"]] == ["XPU0", "XPU1", "XPU2", "XPU3"]


async def test_colours_are_only_for_terminals_and_can_be_disabled(inspected: InspectedCluster) -> None:
    inspected.xpu_pods()
    inspected.pod("big", {"baidu.com/xpu-mem": 9000})
    assert "\x1b[1mdefault/big is pending." in await asyncio.to_thread(_on_a_terminal, inspected, {})
    assert "\x1b" not in await asyncio.to_thread(_on_a_terminal, inspected, {"NO_COLOR": "1"})


def _on_a_terminal(inspected: InspectedCluster, environ: dict[str, str]) -> str:
    code, text = _typed(inspected, sys.executable, "-m", "accelshare", "explain", "big", **environ)
    assert code == 0
    return text


# Hostile values: whatever a node, a record or a condition contains, the terminal shows it and does not interpret it.

HOSTILE = "\x1b[2J\x1b]0;owned\x07\u202e\x9b31m\u2028\u200b\rminikube: fine\nERROR: fake line\x7f"


def hostile_cluster(inspected: InspectedCluster) -> None:
    cards = [
        {"index": 0, "size": 8064, "id": "card-0", "model": f"K200{HOSTILE}", "enforced_by": HOSTILE},
        {"index": 2, "size": 8064, "id": "卡-1", "model": "昆仑芯", "healthy": False, "problem": f"reset{HOSTILE}"},
    ]
    inventory = {"kunlun": {"unit": "MiB", "cards": cards}, f"kind{HOSTILE}": {"cards": [{"index": -1, "size": 1}]}}
    content = {
        "metadata": {"name": "n1", "annotations": {"accelshare.io/inventory": json.dumps(inventory)}},
        "spec": {"taints": [{"key": "a", "value": HOSTILE, "effect": "NoSchedule"}]},
        "status": {
            "addresses": [{"type": "InternalIP", "address": f"10.0.0.1{HOSTILE}"}],
            "nodeInfo": {"containerRuntimeVersion": f"containerd://{HOSTILE}", "kubeletVersion": HOSTILE},
        },
    }
    inspected.api.store.create("nodes", content)
    record = json.dumps({"kunlun": [{"index": 1, "id": f"gone{HOSTILE}"}]})
    limits = {"resources": {"limits": {"baidu.com/xpu-mem": 100}}}
    containers = [{"name": "main", "image": "none", **limits}]
    lost = {"metadata": {"name": "lost", "annotations": {"accelshare.io/assignment": record}}}
    inspected.api.store.create("pods", {**lost, "spec": {"nodeName": "n1", "containers": containers}})
    odd = {"metadata": {"name": "odd", "annotations": {"accelshare.io/assignment": HOSTILE}}}
    inspected.api.store.create("pods", {**odd, "spec": {"nodeName": "n1", "containers": containers}})
    waits = {"metadata": {"name": "waits"}, "spec": {"nodeSelector": {"disk": HOSTILE}, "containers": containers}}
    inspected.api.store.create("pods", waits)
    conditions = [{"type": "PodScheduled", "status": "False", "message": HOSTILE}]
    inspected.api.store.patch("pods", "waits", {"status": {"conditions": conditions}}, subresource="status")
    inspected.pod("free", {"baidu.com/xpu-mem": 9000})
    inspected.api.store.patch("pods", "lost", {"status": {"reason": "x"}}, subresource="status")


@pytest.mark.parametrize(
    "words",
    [
        ("inspect",),
        ("inspect", "-d"),
        ("inspect", "-o", "wide"),
        ("inspect", "-o", "json"),
        ("inspect", "-o", "yaml"),
        ("inspect", "n1"),
        ("inspect", "-o", "bars"),
        ("explain",),
        ("explain", "-o", "json"),
        ("explain", "waits", "-o", "json"),
        ("explain", "waits"),
        ("explain", "free"),
        ("explain", "lost"),
        ("explain", "odd"),
        ("preflight",),
        ("preflight", "-o", "json"),
    ],
    ids=" ".join,
)
async def test_hostile_values_are_shown_and_not_interpreted(inspected: InspectedCluster, words: tuple[str, ...]) -> None:
    hostile_cluster(inspected)
    code, out, err = await inspected.accelshare(*words)
    assert "Traceback" not in err
    assert code == 0, err
    for line in (out + err).split("\n"):
        assert line.isprintable(), ascii(line)
        assert not line.startswith(("ERROR", "minikube")), line
    if "json" in words and words[0] == "inspect":
        (node,) = json.loads(out)["nodes"]
        assert [card["problem"] for card in node["cards"]] == ["", "", f"reset{HOSTILE}"]
    if "yaml" in words:
        (node,) = yaml.safe_load(out)["nodes"]
        assert [card["problem"] for card in node["cards"]] == ["", "", f"reset{HOSTILE}"]


async def test_wide_characters_keep_the_columns(inspected: InspectedCluster) -> None:
    hostile_cluster(inspected)
    _, out, _ = await inspected.accelshare("inspect", "-o", "wide", "--vendor", "kunlun")
    head, _, _, third, *_ = out.split("\n")
    shown = "".join(f"{sign}\0" if unicodedata.east_asian_width(sign) == "W" else sign for sign in third)
    assert shown[head.index("ID ")] == "卡"


# Start-up and completion.


async def test_nothing_that_is_slow_to_load_is_loaded(inspected: InspectedCluster) -> None:
    """The first byte is near: no event loop, no web server, no client of one, and only the face that is shown."""
    inspected.xpu_pods()
    script = inspected.directory / "kubectl-inspect-xpushare"
    script.write_text(
        "import sys\nfrom accelshare.inspect_cli.plugin import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'asyncio', 'aiohttp', 'uvicorn', 'orjson', 'prometheus_client', 'grpc', 'accelshare.kube.client',\n"
        "         'accelshare.report.explain', 'accelshare.report.inspect_json', 'accelshare.vendors.drivers.registry'}\n"
        "print(sorted(heavy & sys.modules.keys()), file=sys.stderr)\n"
    )
    assert await inspected.run(sys.executable, script) == (0, XPUSHARE, "[]\n")


@pytest.mark.parametrize(
    ("shell", "word"), [("bash", "complete -o nosort -F"), ("zsh", "#compdef accelshare"), ("fish", "complete ")]
)
async def test_a_completion_script_for_each_shell(inspected: InspectedCluster, shell: str, word: str) -> None:
    code, out, err = await inspected.accelshare("completion", shell)
    assert (code, err) == (0, "")
    assert word in out
    assert "_ACCELSHARE_COMPLETE" in out


async def test_bash_completes_commands_nodes_and_pods(inspected: InspectedCluster) -> None:
    inspected.xpu_pods()

    async def completed(*words: str) -> list[str]:
        environ = {"_ACCELSHARE_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
        code = "from accelshare.cli import main; main()"
        _, out, _ = await inspected.run(sys.executable, "-c", code, environ=inspected.environ(**environ))
        return [line.partition(",")[2] for line in out.split()]

    assert await completed("accelshare", "ins") == ["inspect"]
    assert await completed("accelshare", "inspect", "mi") == ["minikube"]
    assert await completed("accelshare", "inspect", "--vendor", "nv") == ["nvidia"]
    assert await completed("accelshare", "explain", "xpu") == ["xpu-pod-0", "xpu-pod-1"]
    assert await completed("accelshare", "explain", "default/xpu") == ["default/xpu-pod-0", "default/xpu-pod-1"]
    assert await completed("accelshare", "profile", "show", "nv") == ["nvidia"]
    assert await completed("accelshare", "inspect", "--context", "") == ["memory"]
    assert await completed("accelshare", "preflight", "--kubeconfig", str(inspected.kubeconfig), "--context", "m") == ["memory"]
    inspected.kubeconfig.write_text("")
    assert await completed("accelshare", "inspect", "mi") == []
    assert await completed("accelshare", "inspect", "--context", "") == []


async def test_fish_shows_descriptions_with_commas(inspected: InspectedCluster) -> None:
    """click's own script splits at every comma, so that a description would end at its first one."""
    _, script, _ = await inspected.accelshare("completion", "fish")
    splits = [line.strip() for line in script.splitlines() if "string split" in line]
    assert splits == ['set -l metadata (string split --max 1 "," $completion);']


# inspect.sh queries the extender.


async def test_inspect_sh_prints_what_the_gcushare_guide_shows(fake_cluster: FakeCluster) -> None:
    fake_cluster.api.store.create("nodes", yaml.safe_load((ROOT / "examples/nodes/enflame.yaml").read_text()))
    await fake_cluster.start_extender()
    url = f"http://127.0.0.1:{fake_cluster.port}/gcushare-scheduler/inspect"
    script = str(ROOT / "deploy/inspect.sh")

    def run(*words: str, **environ: str) -> tuple[int, str, str]:
        done = subprocess.run(
            ["/bin/sh", script, *words], env={**os.environ, **environ}, capture_output=True, text=True, check=False, timeout=60
        )
        return done.returncode, done.stdout, done.stderr

    code, out, err = await asyncio.to_thread(run, "sse-lab-inspur-048", "--url", url)
    assert (code, err) == (0, "")
    head, _, rest = out.partition("\n")
    assert head == "inspect GCU usage of node sse-lab-inspur-048 from scheduler cache"
    assert rest.startswith(
        '{\n    "nodes": [\n        {\n            "name": "sse-lab-inspur-048",\n            "totalGCU": 128,\n'
        '            "usedGCU": 0,\n            "availableGCU": 128,\n            "devices": [\n                {\n'
        '                    "id": 0,\n                    "totalGCU": 16,\n'
    )
    code, out, _ = await asyncio.to_thread(run, ACCELSHARE_INSPECT_URL=url)
    assert (code, out.partition("\n")[0]) == (0, "inspect GCU usage of all nodes from scheduler cache")
    assert json.loads(out.partition("\n")[2])["nodes"][0]["totalGCU"] == 128
    code, out, err = await asyncio.to_thread(run, "sse-lab-inspur-04", "--url", url)
    assert (code, out) == (1, "")
    assert "did you mean sse-lab-inspur-048?" in err
    code, _, err = await asyncio.to_thread(run, "--url", "http://127.0.0.1:1/x")
    assert code == 1
    assert "the extender cannot be reached at http://127.0.0.1:1/x" in err


async def test_kubectl_completes_a_plugin_by_the_program_beside_it(inspected: InspectedCluster) -> None:
    """kubectl passes the arguments so far and reads proposals, then a number: 4 disables file names, 0 allows them."""
    inspected.xpu_pods()
    inspected.example_node("nvidia")
    program = inspected.completion("xpushare")
    assert await inspected.run(program, "mini") == (0, "minikube\n:4\n", "")
    assert await inspected.run(program, "-d", "--output", "w") == (0, "wide\n:4\n", "")
    code, out, _ = await inspected.run(program, "--all")
    proposal, directive = out.splitlines()
    assert (code, proposal.partition("\t")[0], directive) == (0, "--all-vendors", ":4")
    code, out, _ = await inspected.run(program, "--kubeconfig", "")
    assert (code, out) == (0, ":0\n")
    assert (await inspected.run(program))[1].splitlines()[-1] == ":4"


async def test_without_a_cluster_completion_is_empty_and_silent(inspected: InspectedCluster) -> None:
    environ = inspected.environ(KUBECONFIG=str(inspected.directory / "none"))
    assert await inspected.run(inspected.completion("gpushare"), "x", environ=environ) == (0, ":4\n", "")


async def test_explain_reports_obstacles_other_than_cards(inspected: InspectedCluster) -> None:
    """The card is free: the node is tainted, its CPU is requested by a pod without cards, and it may have no more pods."""
    node = yaml.safe_load((ROOT / "examples/nodes/kunlun.yaml").read_text())
    node["spec"] = {"taints": [{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}]}
    node["status"]["allocatable"] = {**node["status"].get("allocatable", {}), "cpu": "4", "memory": "8Gi", "pods": "1"}
    inspected.api.store.create("nodes", node)
    inspected.pod("web", {"cpu": 3}, on="minikube")
    inspected.pod("me", {"baidu.com/xpu-mem": 4500, "cpu": 2})
    code, out, err = await inspected.accelshare("explain", "me")
    assert (code, err) == (0, "")
    assert "Node minikube has the cards, but kube-scheduler cannot use it: " in out
    assert [line.strip() for line in out.splitlines() if "obstacle: " in line] == [
        "obstacle: the pod does not tolerate its taint dedicated=ml:NoSchedule",
        "obstacle: not enough cpu: 2 requested, 1 of 4 not requested by other pods",
        "obstacle: it already has 1 pods, its maximum",
    ]
