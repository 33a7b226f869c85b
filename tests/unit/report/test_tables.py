"""The tables of the guides, to the letter."""

import itertools
import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from accelshare.ledger.facts import NodeSeen
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.nouns import Card, Slice
from accelshare.report import tables
from accelshare.report.inspect_json import dialect, document, neutral
from accelshare.report.tables import tabbed, wide
from accelshare.report.view import NodeRow, rows
from accelshare.vendors.catalog import load
from accelshare.wire.inventory import CardEntry, KindEntry
from tests.builders import running, share, whole

CATALOG = load()


def a_node(name: str, address: str, kind: str, *sizes: int) -> NodeSeen:
    return NodeSeen(name, 1, tuple(Card(kind, index, size) for index, size in enumerate(sizes)), address)


def test_the_gpushare_guides_table() -> None:
    ledger = Ledger()
    ledger.apply(a_node("dev-server-153", "192.168.0.153", "nvidia", *[23] * 8))
    head = "".join(f"GPU{index}(Allocated/Total)  " for index in range(8))
    cells = "0/23                   " * 8
    assert tables.summary(rows(ledger), CATALOG["nvidia"]) == (
        f"NAME            IPADDRESS      {head}GPU Memory(GiB)\n"
        f"dev-server-153  192.168.0.153  {cells}0/184\n"
        "-----------------------------------------------------------------------------------------------\n"
        "Allocated/Total GPU Memory In Cluster:\n"
        "0/184 (0%)  \n"
    )


def test_the_xpushare_guides_table() -> None:
    ledger = Ledger()
    ledger.apply(a_node("minikube", "192.168.49.2", "kunlun", *[8064] * 4))
    for name, index in (("a", 0), ("b", 1)):
        ledger.apply(running(name, on=f"minikube/{index}", request=share(4500, kind="kunlun")))
    assert tables.summary(rows(ledger), CATALOG["kunlun"]) == (
        "NAME      IPADDRESS     XPU0(Allocated/Total)  XPU1(Allocated/Total)  XPU2(Allocated/Total)  "
        "XPU3(Allocated/Total)  XPU Memory(MiB)\n"
        "minikube  192.168.49.2  4500/8064              4500/8064              0/8064                 "
        "0/8064                 9000/32256\n"
        "---------------------------------------------------------------------------------------\n"
        "Allocated/Total XPU Memory In Cluster:\n"
        "9000/32256 (27%)  \n"
    )


def test_pods_of_unknown_card_have_a_column_and_short_nodes_empty_cells() -> None:
    ledger = Ledger()
    ledger.apply(a_node("n1", "", "nvidia", 16, 8))
    ledger.apply(a_node("n2", "10.0.0.2", "nvidia", 16))
    ledger.apply(a_node("other", "10.0.0.3", "enflame", 16))
    ledger.apply(running("stranger", on="n2", request=share(3, kind="nvidia")))
    lines = tables.summary(rows(ledger), CATALOG["nvidia"]).splitlines()
    assert lines[0].split() == [
        "NAME", "IPADDRESS", "GPU0(Allocated/Total)", "GPU1(Allocated/Total)", "PENDING(Allocated)", "GPU", "Memory(GiB)",
    ]  # fmt: skip
    assert [line.split() for line in lines[1:3]] == [
        ["n1", "unknown", "0/16", "0/8", "0/24"],
        ["n2", "10.0.0.2", "0/16", "0/0", "3", "3/16"],
    ]
    assert lines[1].endswith("0/8                                        0/24"), "a node without pending pods has an empty cell"
    assert len(lines[3]) == len("n1,unknown,0/16,0/8,,0/24,") + 20
    assert lines[-1] == "3/40 (7%)  "


def test_an_empty_cluster_is_a_table_too() -> None:
    """As the original: no row, so no dashes."""
    assert tables.summary([], CATALOG["nvidia"]) == (
        "NAME  IPADDRESS  GPU Memory(GiB)\n\nAllocated/Total GPU Memory In Cluster:\n0/0 (0%)  \n"
    )
    assert tables.details([], CATALOG["nvidia"]) == "\n\nAllocated/Total GPU Memory In Cluster:  0/0 (0%)  \n"


def test_the_details_of_the_original() -> None:
    """Two pods on two cards of 15, byte for byte: rows end with their padding, the total with a blank of its own."""
    ledger = Ledger()
    ledger.apply(a_node("node-a", "10.0.0.1", "nvidia", 15, 15))
    ledger.apply(running("binpack-1-0", on="node-a/0", request=share(3, kind="nvidia")))
    ledger.apply(replace(running("other", on="node-a/1", request=share(5, kind="nvidia")), namespace="ml"))
    assert tables.details(rows(ledger), CATALOG["nvidia"]) == (
        "\n"
        "NAME:       node-a\n"
        "IPADDRESS:  10.0.0.1\n"
        "\n"
        "NAME         NAMESPACE  GPU0(Allocated)  GPU1(Allocated)  \n"
        "binpack-1-0  default    3                0                \n"
        "other        ml         0                5                \n"
        "Allocated :  8 (26%)    \n"
        "Total :      30         \n"
        + "-" * (len("binpack-1-0,default,3,0,.") + len("other,ml,0,5,.") + 10)
        + "\n\n\nAllocated/Total GPU Memory In Cluster:  8/30 (26%)  \n"
    )


def test_the_total_has_a_blank_of_its_own_before_its_padding() -> None:
    """It shows where the total is the widest of its column."""
    ledger = Ledger()
    ledger.apply(a_node("n1", "", "nvidia", 1_000_000_000))
    lines = tables.details(rows(ledger), CATALOG["nvidia"]).splitlines()
    assert lines[5:7] == ["Allocated :  0 (0%)       ", "Total :      1000000000   "]


def test_the_details_of_a_node_without_pods_have_ten_dashes_and_so_have_all_after_it() -> None:
    ledger = Ledger()
    ledger.apply(a_node("n1", "", "nvidia", 16))
    ledger.apply(a_node("n2", "", "nvidia", 16))
    ledger.apply(running("p", on="n2/0", request=share(3, kind="nvidia")))
    dashes = [line for line in tables.details(rows(ledger), CATALOG["nvidia"]).splitlines() if line.startswith("-")]
    assert dashes == ["-" * 10, "-" * 10]


def test_the_details_show_a_pod_of_several_cards_once_and_pods_of_unknown_card_last() -> None:
    ledger = Ledger()
    ledger.apply(a_node("n1", "", "kunlun", 8064, 8064))
    ledger.apply(running("stranger", on="n1", request=share(100, kind="kunlun")))
    ledger.apply(running("b", on="n1/1", request=share(200, kind="kunlun")))
    ledger.apply(running("two", on="n1/0,1", request=share(300, cards=2, kind="kunlun")))
    lines = [line.split() for line in tables.details(rows(ledger), CATALOG["kunlun"]).splitlines()]
    assert lines[4:8] == [
        ["NAME", "NAMESPACE", "XPU0(Allocated)", "XPU1(Allocated)", "Pending(Allocated)"],
        ["two", "default", "300", "300", "0"],
        ["b", "default", "0", "200", "0"],
        ["stranger", "default", "0", "0", "100"],
    ]
    assert lines[8:10] == [["Allocated", ":", "900", "(5%)"], ["Total", ":", "16128"]]


def test_the_unit_is_the_one_in_the_inventory() -> None:
    """A card of 160 tenths of a GB is no card of 160 MiB; without an inventory the original's guess stands."""
    ledger = Ledger()
    ledger.apply(a_node("n1", "", "enflame", 160))
    inventories = {"n1": {"enflame": KindEntry([], unit="0.1")}}
    assert "GCU Memory(0.1 GB)" in tables.summary(rows(ledger), CATALOG["enflame"], inventories)
    assert "GCU Memory(GB)" in tables.summary(rows(ledger), CATALOG["enflame"]), "a guess of MiB is none of this vendor's units"


@pytest.mark.parametrize(("size", "unit"), [(100, "GiB"), (101, "MiB")])
def test_without_an_inventory_the_unit_follows_from_the_card_size(size: int, unit: str) -> None:
    ledger = Ledger()
    ledger.apply(a_node("n1", "", "nvidia", size))
    assert f"GPU Memory({unit})" in tables.summary(rows(ledger), CATALOG["nvidia"])


def test_nodes_that_count_in_different_units_are_never_added_up() -> None:
    ledger = Ledger()
    ledger.apply(a_node("n1", "", "nvidia", 16))
    ledger.apply(a_node("n2", "", "nvidia", 16384))
    ledger.apply(a_node("n3", "", "nvidia", 24))
    inventories = {"n1": {"nvidia": KindEntry([], unit="GiB")}, "n2": {"nvidia": KindEntry([], unit="MiB")}}
    first, second = tables.summary(rows(ledger), CATALOG["nvidia"], inventories).split("\n\n")
    assert "Memory(GiB)" in first
    assert "0/40 (0%)" in first
    assert "Memory(MiB)" in second
    assert "0/16384 (0%)" in second


def test_a_vendor_of_whole_cards_is_counted_in_cards() -> None:
    ledger = Ledger()
    ledger.apply(a_node("n1", "10.0.0.1", "stream", 16, 16))
    ledger.apply(running("p", on="n1/1", request=whole(kind="stream")))
    ledger.apply(running("stranger", on="n1", request=whole(2, kind="stream")))
    assert tables.summary(rows(ledger), CATALOG["stream"]) == (
        "NAME  IPADDRESS  NPU0(Allocated/Total)  NPU1(Allocated/Total)  PENDING(Allocated)  NPU Cards\n"
        "n1    10.0.0.1   0/1                    1/1                    2                   3/2\n"
        f"{'-' * (len('n1,10.0.0.1,0/1,1/1,2,3/2.') + 20)}\n"
        "Allocated/Total NPU Cards In Cluster:\n"
        "3/2 (150%)  \n"
    )


def test_cards_that_cannot_be_shared_are_only_in_the_wide_table() -> None:
    """A node where only the vendor's whole-card plugin runs: the original does not list it."""
    ledger = Ledger()
    ledger.apply(a_node("n1", "", "nvidia", 16))
    ledger.apply(a_node("whole-only", "", "nvidia", 0, 0))
    assert "whole-only" not in tables.summary(rows(ledger), CATALOG["nvidia"])
    assert wide(rows(ledger), [CATALOG["nvidia"]]).count("whole-only") == 2


def test_a_pod_on_a_card_that_is_gone_is_pending_and_not_forgotten() -> None:
    ledger = Ledger()
    ledger.apply(NodeSeen("n1", 1, (Card("nvidia", 0, 16, id="a"),)))
    ledger.apply(replace(running("p", on="n1/1", request=share(3, kind="nvidia")), slices=(Slice("nvidia", 1, 3, id="b"),)))
    lines = tables.summary(rows(ledger), CATALOG["nvidia"]).splitlines()
    assert lines[1].split() == ["n1", "unknown", "0/16", "3", "3/16"]


@pytest.mark.parametrize("table", [tables.summary, tables.details])
def test_a_high_card_index_does_not_make_a_line_of_a_thousand_columns(table: Callable[..., str]) -> None:
    ledger = Ledger()
    ledger.apply(NodeSeen("n1", 1, tuple(Card("nvidia", index, 16) for index in (0, 2, 1023))))
    ledger.apply(NodeSeen("n2", 1, (Card("nvidia", 0, 16),)))
    ledger.apply(running("a", on="n1/1023", request=share(3, kind="nvidia")))
    text = table(rows(ledger), CATALOG["nvidia"])
    assert max(map(len, text.splitlines())) < 200
    assert [word.partition("(")[0] for word in text.split() if word.startswith("GPU1023(")] == ["GPU1023"]
    assert "GPU1(" not in text
    assert "3/64 (4%)" in text


@pytest.mark.parametrize(("used", "total", "percent"), [(9000, 32256, 27), (29, 100, 29), (99999, 100000, 99)])
def test_percentages_are_cut_off(used: int, total: int, percent: int) -> None:
    ledger = Ledger()
    ledger.apply(a_node("n1", "", "kunlun", total))
    ledger.apply(running("p", on="n1/0", request=share(used, kind="kunlun")))
    assert tables.summary(rows(ledger), CATALOG["kunlun"]).endswith(f"{used}/{total} ({percent}%)  \n")


def test_the_order_of_nodes_and_pods_is_the_order_of_their_names() -> None:
    names = [("c", "p3"), ("a", "p2"), ("b", "p1"), ("a", "p1")]
    seen = set()
    for order in itertools.permutations(names):
        ledger = Ledger()
        for node in dict.fromkeys(node for node, _ in order):
            ledger.apply(a_node(node, "", "nvidia", 16))
        for node, pod in order:
            ledger.apply(running(pod, uid=f"{node}-{pod}", on=f"{node}/0", request=share(2, kind="nvidia")))
        seen.add(tables.details(rows(ledger), CATALOG["nvidia"]) + tables.summary(rows(ledger), CATALOG["nvidia"]))
    assert len(seen) == 1


def test_the_gcushare_json() -> None:
    ledger = Ledger()
    ledger.apply(a_node("n1", "", "enflame", 16, 16))
    ledger.apply(running("p", on="n1/0", request=share(4, kind="enflame")))
    assert dialect(rows(ledger), CATALOG["enflame"]) == {
        "nodes": [
            {
                "name": "n1",
                "totalGCU": 32,
                "usedGCU": 4,
                "availableGCU": 28,
                "devices": [
                    {
                        "id": 0,
                        "totalGCU": 16,
                        "usedGCU": 4,
                        "availableGCU": 12,
                        "pods": [{"name": "p", "namespace": "default", "uid": "p", "createTime": "", "usedGCU": 4}],
                    },
                    {"id": 1, "totalGCU": 16, "usedGCU": 0, "availableGCU": 16, "pods": []},
                ],
            }
        ]
    }


def test_the_gpushare_json() -> None:
    ledger = Ledger()
    ledger.apply(a_node("n1", "", "nvidia", 16))
    ledger.apply(running("p", on="n1/0", request=whole(kind="nvidia")))
    assert dialect(rows(ledger), CATALOG["nvidia"]) == {
        "nodes": [
            {
                "name": "n1",
                "totalGPU": 16,
                "usedGPU": 16,
                "devs": [
                    {"id": 0, "totalGPU": 16, "usedGPU": 16, "pods": [{"name": "p", "namespace": "default", "usedGPU": 16}]}
                ],
            }
        ]
    }


def test_the_neutral_json_has_all_vendors_and_all_problems() -> None:
    ledger = Ledger()
    ledger.apply(NodeSeen("n1", 1, (Card("nvidia", 0, 16, healthy=False), Card("stream", 0, 0)), problems=("half read",)))
    ledger.apply(running("a", on="n1/0", request=share(12, kind="nvidia")))
    ledger.apply(running("b", on="n1/0", request=share(12, kind="nvidia")))
    (node,) = neutral(rows(ledger))["nodes"]
    assert [(card["kind"], card["used"], card["free"], card["healthy"]) for card in node["cards"]] == [
        ("nvidia", 24, 0, False),
        ("stream", 0, 0, True),
    ]
    assert node["problems"] == ("half read", "n1/nvidia/0: 24 held of 16 by a, b")


@pytest.mark.parametrize("vendor", ["nvidia", "kunlun", "enflame", "stream"])
def test_every_vendor_has_a_table(vendor: str) -> None:
    ledger = Ledger()
    ledger.apply(a_node("n1", "10.0.0.1", vendor, 16))
    assert f"{CATALOG[vendor].noun}0(Allocated/Total)" in tables.summary(rows(ledger), CATALOG[vendor])


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ([], ""),
        ([["alone"]], "alone\n"),
        ([["a", "b"], ["long", "c"]], "a     b\nlong  c\n"),
        ([["a", ""], ["long", ""]], "a     \nlong  \n"),  # the last cell is empty, so the one before it is padded
        ([["a", "b"], ["------"], ["long", "c"]], "a  b\n------\nlong  c\n"),  # a line without a column ends it
        ([["x", "yy", "z"], ["xxx", "y"], ["x", "y", "z"]], "x    yy  z\nxxx  y\nx    y  z\n"),
        ([["", "b"], ["", "c"]], "  b\n  c\n"),
    ],
)
def test_columns(lines: list[list[str]], text: str) -> None:
    assert tabbed(lines) == text


GPU, NPU = CATALOG["nvidia"], CATALOG["stream"]
INVENTORIES = {
    "n1": {
        "nvidia": KindEntry(
            [CardEntry(0, 16, "g0", model="T4", enforced_by="toolkit"), CardEntry(1, 8, "g1", healthy=False, problem="Xid 79")],
            unit="GiB",
            delivery="device-plugin",
        )
    }
}


def a_cluster() -> list[NodeRow]:
    ledger = Ledger()
    limited = Card("nvidia", 0, 16, id="g0", limited=True, min_units=1, way="toolkit")
    cards = (limited, Card("nvidia", 1, 8, healthy=False, id="g1"), Card("stream", 0, 16))
    ledger.apply(NodeSeen("n1", 1, cards, "10.0.0.1"))
    ledger.apply(running("b", on="n1/0", request=share(3, kind="nvidia")))
    ledger.apply(replace(running("a", on="n1/0", request=share(5, kind="nvidia")), namespace="ml"))
    ledger.apply(running("stranger", on="n1", request=share(2, kind="nvidia")))
    ledger.apply(running("w", on="n1/0", request=whole(kind="stream")))
    return rows(ledger)


def test_the_wide_table_has_every_card_of_every_vendor_on_a_line() -> None:
    lines = wide(a_cluster(), [GPU, NPU], INVENTORIES).splitlines()
    cells = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines]
    assert cells == [
        ["NODE", "ADDRESS", "CARD", "MODEL", "ID", "USED", "FREE", "TOTAL", "UNIT", "HEALTH", "ENFORCED BY", "PODS"],
        ["n1", "10.0.0.1", "GPU0", "T4", "g0", "8", "8", "16", "GiB", "healthy", "toolkit", "default/b 3, ml/a 5"],
        ["n1", "10.0.0.1", "GPU1", "-", "g1", "0", "0", "8", "GiB", "unhealthy: Xid 79", "nobody", "-"],
        ["n1", "10.0.0.1", "GPU?", "-", "-", "2", "-", "-", "-", "card unknown", "-", "default/stranger 2"],
        ["n1", "10.0.0.1", "NPU0", "-", "-", "1", "0", "1", "card", "healthy", "-", "default/w whole"],
    ]


def test_the_wide_table_has_only_the_selected_vendors() -> None:
    assert "GPU" not in wide(a_cluster(), [NPU], INVENTORIES)


def test_the_document_has_what_only_the_inventory_has() -> None:
    (node,) = document(a_cluster(), [GPU], INVENTORIES)["nodes"]
    first, second = node["cards"]
    assert (first["used"], first["free"], first["unit"], first["model"], first["enforced_by"]) == (8, 8, "GiB", "T4", "toolkit")
    assert (second["healthy"], second["problem"], second["enforced_by"]) == (False, "Xid 79", "nobody")
    assert (first["min_units"], second["min_units"]) == (1, 0)
    assert [pod["name"] for pod in node["unplaced"]] == ["stranger"]
    assert node["delivery"] == {"nvidia": {"way": "device-plugin", "works": True}}


def test_the_document_counts_whole_cards_in_cards_and_is_json() -> None:
    (node,) = json.loads(json.dumps(document(a_cluster(), [NPU], INVENTORIES)))["nodes"]
    (card,) = node["cards"]
    assert {key: card[key] for key in ("size", "used", "free", "unit")} == {"size": 1, "used": 1, "free": 0, "unit": "card"}
    assert (card["pods"][0]["units"], card["enforced_by"]) == (1, "")
    assert node["unplaced"] == []
