"""One line a card, and the same for programs."""

import json
from dataclasses import replace

from accelshare.ledger.facts import NodeSeen
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.nouns import Card
from accelshare.report.inspect_json import document
from accelshare.report.view import NodeRow, rows
from accelshare.report.wide import wide
from accelshare.vendors.catalog import load
from accelshare.wire.inventory import CardEntry, KindEntry
from tests.builders import running, share, whole

CATALOG = load()
GPU, NPU = CATALOG["nvidia"], CATALOG["stream"]
TOLD = {
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
    cards = (Card("nvidia", 0, 16, id="g0"), Card("nvidia", 1, 8, healthy=False, id="g1"), Card("stream", 0, 16))
    ledger.apply(NodeSeen("n1", 1, cards, "10.0.0.1"))
    ledger.apply(running("b", on="n1/0", request=share(3, kind="nvidia")))
    ledger.apply(replace(running("a", on="n1/0", request=share(5, kind="nvidia")), namespace="ml"))
    ledger.apply(running("stranger", on="n1", request=share(2, kind="nvidia")))
    ledger.apply(running("w", on="n1/0", request=whole(kind="stream")))
    return rows(ledger)


def test_the_wide_table_has_every_card_of_every_vendor_on_a_line() -> None:
    lines = wide(a_cluster(), [GPU, NPU], TOLD).splitlines()
    cells = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines]
    assert cells == [
        ["NODE", "ADDRESS", "CARD", "MODEL", "ID", "USED", "FREE", "TOTAL", "UNIT", "HEALTH", "ENFORCED BY", "PODS"],
        ["n1", "10.0.0.1", "GPU0", "T4", "g0", "8", "8", "16", "GiB", "healthy", "toolkit", "default/b 3, ml/a 5"],
        ["n1", "10.0.0.1", "GPU1", "-", "g1", "0", "0", "8", "GiB", "unhealthy: Xid 79", "-", "-"],
        ["n1", "10.0.0.1", "GPU?", "-", "-", "2", "-", "-", "-", "card unknown", "-", "default/stranger 2"],
        ["n1", "10.0.0.1", "NPU0", "-", "-", "1", "0", "1", "card", "healthy", "-", "default/w whole"],
    ]


def test_the_wide_table_has_only_the_vendors_that_were_asked() -> None:
    assert "GPU" not in wide(a_cluster(), [NPU], TOLD)


def test_the_document_tells_what_only_the_inventory_knows() -> None:
    (node,) = document(a_cluster(), [GPU], TOLD)["nodes"]
    first, second = node["cards"]
    assert (first["used"], first["free"], first["unit"], first["model"], first["enforced_by"]) == (8, 8, "GiB", "T4", "toolkit")
    assert (second["healthy"], second["problem"]) == (False, "Xid 79")
    assert [pod["name"] for pod in node["unplaced"]] == ["stranger"]
    assert node["delivery"] == {"nvidia": {"way": "device-plugin", "works": True}}


def test_the_document_counts_whole_cards_in_cards_and_is_json() -> None:
    (node,) = json.loads(json.dumps(document(a_cluster(), [NPU], TOLD)))["nodes"]
    (card,) = node["cards"]
    assert {key: card[key] for key in ("size", "used", "free", "unit")} == {"size": 1, "used": 1, "free": 0, "unit": "card"}
    assert card["pods"][0]["units"] == 1
    assert node["unplaced"] == []
