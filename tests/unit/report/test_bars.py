"""`inspect` on a screen: golden files at four widths, and promises for every width.

`ACCELSHARE_WRITE_SCREENS=1 python -m pytest tests/unit/report/test_bars.py` writes the golden files anew; read them before you
commit them.
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelshare.inspect_cli.colours import STYLES, paint
from accelshare.ledger.facts import Fact, NodeSeen
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.nouns import Card, LimitNeed
from accelshare.report.bars import ASCII, BLOCKS, Overview, Sections, bar, sections
from accelshare.report.cluster_state import ClusterState
from accelshare.report.lines import line_width
from accelshare.report.units import NO_INVENTORIES, Inventories
from accelshare.report.usage import NO_USES, Uses
from accelshare.report.view import rows
from accelshare.report.waiting import waiting_pods
from accelshare.terminal import width
from accelshare.vendors.catalog import load
from accelshare.wire.inventory import CardEntry, KindEntry
from accelshare.wire.usage import CardUse, NodeUse, PodUse
from tests.builders import pending, running, share, whole

CATALOG = load()
SCREENS = Path(__file__).parent / "screens"
WIDTHS = (60, 80, 100, 200)
GIB = 2**30
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def overview(*facts: Fact, inventories: Inventories = NO_INVENTORIES, uses: Uses = NO_USES) -> Overview:
    ledger = Ledger()
    for fact in facts:
        ledger.apply(fact)
    shown = rows(ledger)
    profiles = [profile for profile in CATALOG if any(row.has(profile.name) for row in shown)]
    state = ClusterState(ledger, CATALOG, inventories)
    return Overview(shown, profiles, inventories, uses, waiting_pods(state))


def a_node(name: str, kind: str, *sizes: int, address: str = "10.0.0.1", way: str = "") -> NodeSeen:
    cards = tuple(Card(kind, index, size, True, f"{name}-{index}", bool(way), 0, way) for index, size in enumerate(sizes))
    return NodeSeen(name, 1, cards, address)


def empty() -> Overview:
    """A cluster without cards."""
    return overview(NodeSeen("control-plane", 1, (), "10.0.0.1"))


def mixed() -> Overview:
    """Four vendors, one of which allocates only whole cards; the use of one node is known."""
    used = NodeUse(
        "gpu-1",
        3.0,
        (
            PodUse("default", "train-7", "train-7", "nvidia", 0, 8 * GIB, 7 * GIB, 0.88),
            PodUse("default", "notebook", "notebook", "nvidia", 0, 4 * GIB, 5 * GIB, 0.02, over_use=True),
        ),
        (CardUse("nvidia", 0, 12 * GIB, 0.9, 0), CardUse("nvidia", 1, 0, 0.0, 0)),
    )
    return overview(
        a_node("gpu-1", "nvidia", 16, 16, way="hami-core"),
        a_node("minikube", "kunlun", *[8064] * 4, address="192.168.49.2"),
        a_node("sse-lab-inspur-048", "enflame", *[16] * 8, address="10.9.113.48"),
        a_node("stc-node", "stream", 0, 0, address="10.0.0.4"),
        running("train-7", on="gpu-1/0", request=share(8, kind="nvidia")),
        running("notebook", on="gpu-1/0", request=share(4, kind="nvidia")),
        running("xpu-pod-6bf885cf6d-2vzgz", on="minikube/0", request=share(4500, kind="kunlun")),
        running("xpu-pod-6bf885cf6d-m6vf6", on="minikube/1", request=share(4500, kind="kunlun")),
        running("both", on="sse-lab-inspur-048/2,3", request=share(8, cards=2, kind="enflame")),
        running("alone", on="stc-node/1", request=whole(kind="stream")),
        uses={"gpu-1": used},
    )


def unhealthy() -> Overview:
    """A card that reports a problem, one that is gone from under its pod, and one without a reason."""
    cards = (Card("nvidia", 0, 16, False, "a"), Card("nvidia", 1, 16, False, "b"), Card("nvidia", 2, 16, True, "c"))
    lost = running("lost", on="gpu-1/5", request=share(4, kind="nvidia"))
    problem = "Xid 79: the GPU has fallen off the bus; reset it or drain the node"
    entries = [CardEntry(0, 16, "a", False, problem=problem), CardEntry(1, 16, "b", False), CardEntry(2, 16, "c")]
    return overview(
        NodeSeen("gpu-1", 1, cards, "10.0.0.1"),
        running("still-there", on="gpu-1/0", request=share(6, kind="nvidia")),
        replace(lost, slices=tuple(replace(each, id="gone") for each in lost.slices)),
        inventories={"gpu-1": {"nvidia": KindEntry(entries, unit="GiB")}},
    )


def no_limit() -> Overview:
    """Beside each other: a card whose shares are enforced, one without, and a pod that requires a limit and waits."""
    cards = (Card("nvidia", 0, 16, True, "a", True, 0, "nvml"), Card("nvidia", 1, 16, True, "b"))
    return overview(
        NodeSeen("gpu-1", 1, cards, "10.0.0.1"),
        running("full", on="gpu-1/0", request=share(16, kind="nvidia")),
        pending("strict", share(4, kind="nvidia", limits=LimitNeed.REQUIRED)),
    )


def long_names() -> Overview:
    """Names as long as Kubernetes allows them, wide characters, and a name that tries to move the cursor."""
    node = "a-very-long-node-name-of-a-cloud-provider." + "eu-central-1.compute.internal." * 3 + "example"
    pod = running("train-" + "0123456789" * 9, on=f"{node}/0", request=share(3, kind="nvidia"))
    wide = replace(running("训练-任务", on=f"{node}/1", request=share(5, kind="nvidia")), namespace="机器学习")
    hostile = running("evil\x1b[2J\nTotal GPU 0/0", on=f"{node}/1", request=share(2, kind="nvidia"))
    return overview(a_node(node, "nvidia", 16, 16, way="a-way-with-a-rather-long-name"), pod, wide, hostile)


def unknown_cards() -> Overview:
    """Pods whose card is not known, also on a node that is gone."""
    return overview(
        a_node("gpu-1", "nvidia", 16, 16),
        running("stranger", on="gpu-1", request=share(3, kind="nvidia")),
        running("other", on="gpu-1", request=share(5, kind="nvidia")),
        running("left", on="gone-node", request=whole(2, kind="stream")),
    )


def waiting() -> Overview:
    """Each pod that waits with its reason in a word."""
    return overview(
        a_node("gpu-1", "nvidia", 16, 16),
        running("full", on="gpu-1/0", request=share(16, kind="nvidia")),
        running("half", on="gpu-1/1", request=share(8, kind="nvidia")),
        pending("big", share(24, kind="nvidia")),
        pending("room", share(12, kind="nvidia")),
        pending("two", share(4, cards=2, kind="nvidia")),
        pending("empty", whole(kind="nvidia")),
        pending("many", whole(3, kind="nvidia")),
        pending("soon", share(4, kind="nvidia")),
        pending("elsewhere", share(4500, kind="kunlun")),
    )


def thousand(count: int = 1000) -> Overview:
    """1,000 nodes with two cards each."""
    nodes = [
        a_node(f"gpu-{number:04}", "nvidia", 16, 16, address=f"10.0.{number // 250}.{number % 250}") for number in range(count)
    ]
    pods = [running(f"p{number}", on=f"gpu-{number:04}/0", request=share(8, kind="nvidia")) for number in range(0, count, 2)]
    return overview(*nodes, *pods, *(pending(f"w{number}", share(17, kind="nvidia")) for number in range(50)))


STATES: Sequence[Callable[[], Overview]] = (empty, mixed, unhealthy, no_limit, long_names, unknown_cards, waiting)


def golden(name: str, text: str) -> None:
    file = SCREENS / f"{name}.txt"
    if os.environ.get("ACCELSHARE_WRITE_SCREENS"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_a_screen_is_as_its_golden_file(state: Callable[[], Overview], columns: int) -> None:
    text = sections(state(), columns).text()
    assert_fits(text, columns)
    golden(f"{state.__name__}-{columns}", text)


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_thousand_nodes_are_printed_all_and_cut_in_the_live_view(columns: int) -> None:
    whole_text = sections(thousand(), columns)
    assert_fits(whole_text.text(), columns)
    assert len([line for line in whole_text.text().splitlines() if line.startswith("gpu-")]) == 1000
    live = whole_text.cut(40)
    assert len(live.splitlines()) <= 40
    assert re.search(r"… \d+ more nodes\n", live)
    assert re.search(r"… \d+ more waiting pods\n", live)
    assert "Total GPU 4000/32000 GiB (12%)" in live
    golden(f"thousand-{columns}", live)


def assert_fits(text: str, columns: int) -> None:
    for line in text.split("\n"):
        assert width(ESCAPES.sub("", line)) <= columns, line
        assert ESCAPES.sub("", line).isprintable(), ascii(line)


@pytest.mark.parametrize("state", [*STATES, lambda: thousand(3)], ids=lambda state: state.__name__)
def test_every_width_fits_and_shows_every_name(state: Callable[[], Overview]) -> None:
    """What does not fit beside is below: nothing is left out, however narrow the screen is."""
    shown = state()
    for columns in range(20, 260):
        text = sections(shown, columns).text()
        assert_fits(text, columns)
        joined = "".join(text.split())
        for row in shown.rows:
            for pod in (*(pod for card in row.cards for pod in card.pods), *row.unplaced):
                if pod.name.isprintable():
                    assert f"{pod.namespace}/{pod.name}" in joined
        for waits in shown.waiting:
            assert f"{waits.namespace}/{waits.name}" in joined
            assert waits.reason in joined
        totals = [line for line in text.splitlines() if line.startswith("Total ")]
        kinds = {card.kind for row in shown.rows for card in row.cards} | {pod.kind for row in shown.rows for pod in row.unplaced}
        assert len(totals) == len(kinds)


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_the_totals_are_on_every_screen(state: Callable[[], Overview]) -> None:
    made = sections(state(), 100)
    for lines in range(len(made.totals), 60):
        text = made.cut(lines)
        assert text.endswith("\n".join(made.totals) + "\n")
        assert len(text.splitlines()) <= max(lines, len(made.totals)), text


def test_what_does_not_fit_is_counted() -> None:
    made = Sections((("n1", "a", "b"), ("n2", "a"), ("n3", "a")), (("2 pods wait:",), ("p1",), ("p2",)), ("Total",))
    assert made.cut(100) == made.text()
    assert made.cut(9) == "n1\na\nb\n… 2 more nodes\n\n2 pods wait:\n… 2 more waiting pods\n\nTotal\n"
    assert made.cut(5) == "… 3 more nodes\n\n2 pods wait:\n\nTotal\n"
    assert replace(made, waiting=()).cut(5) == "n1\na\n… 1 more line of this node and 2 more nodes\n\nTotal\n"
    assert made.cut(1) == "Total\n"


def test_colours_change_no_character_and_no_width() -> None:
    for state in STATES:
        for columns in WIDTHS:
            painted = sections(state(), columns, paint=paint).text()
            assert ESCAPES.sub("", painted) == sections(state(), columns).text()
    assert STYLES["bad"] in sections(unhealthy(), 80, paint=paint).text()


def test_a_terminal_without_these_characters_gets_ascii_bars() -> None:
    text = sections(mixed(), 80, glyphs=ASCII).text()
    assert "GPU0 " in text
    assert "#####" in text
    assert not set("".join((*BLOCKS.pods, BLOCKS.free, BLOCKS.out))) & set(text)


@given(st.integers(0, 10_000), st.lists(st.integers(0, 5_000), max_size=12), st.integers(1, 40))
def test_a_bar_has_its_length_and_shows_whether_anything_is_used_or_free(size: int, parts: list[int], columns: int) -> None:
    line = bar(size, parts, columns)
    text = "".join(part.text for part in line)
    assert line_width(line) == columns
    if size and columns > 1:
        assert (BLOCKS.free in text) is (sum(parts) < size)
        assert bool(set(text) & set(BLOCKS.pods)) is (sum(parts) > 0)
