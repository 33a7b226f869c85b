"""The tables of the guides, to the letter."""

import pytest

from accelshare.ledger.book import Ledger
from accelshare.ledger.facts import NodeSeen
from accelshare.ledger.nouns import Card
from accelshare.report import tables
from accelshare.report.inspect_json import dialect, neutral
from accelshare.report.view import rows
from accelshare.vendors.catalog import load
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
        ["n1", "unknown", "0/16", "0/8", "0", "0/24"],
        ["n2", "10.0.0.2", "0/16", "0/0", "3", "3/16"],
    ]
    assert lines[-1] == "3/40 (7%)  "


def test_an_empty_cluster_is_a_table_too() -> None:
    assert tables.summary([], CATALOG["nvidia"]).endswith("0/0 (0%)  \n")


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


def test_the_neutral_json_tells_all_vendors_and_all_troubles() -> None:
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
