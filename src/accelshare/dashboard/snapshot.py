"""The whole cluster at one moment, as JSON in parts: one for each node, and a few for the rest.

Belongs here: which fields the page gets, and the bounds of hostile texts. Never: counting (report/), sending (updates.py).

Other tasks run between the parts, because the extender must answer kube-scheduler meanwhile. So each node is consistent in
itself, and the next snapshot corrects what changed in between.
"""

import asyncio
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from accelshare import __version__
from accelshare.dashboard.cluster_watch import ClusterWatch
from accelshare.dashboard.history import History, Point
from accelshare.dashboard.usage_watch import UsageWatch
from accelshare.report.cluster_state import ClusterState
from accelshare.report.inspect_json import document
from accelshare.report.occupancy import Occupancy
from accelshare.report.units import Inventories, in_cards, unit_label
from accelshare.report.usage import NO_USES
from accelshare.report.view import NodeRow, rows
from accelshare.report.waiting_reasons import WaitingReasons, WaitingRow, waiting_by_age
from accelshare.terminal import visible
from accelshare.vendors.catalog import Catalog

NODES_AT_ONCE: Final = 16
WAITING_AT_ONCE: Final = 8
MOST_WAITING: Final = 500  # pods that are listed; all are counted
MOST_NAMESPACES: Final = 500
MOST_PROBLEMS: Final = 20  # of one node
LONGEST_TEXT: Final = 300  # characters of a text that somebody wrote
USE_FIELDS: Final = ("used_bytes", "utilisation", "over_use", "held_bytes")

encode = msgspec.json.encode


class DashboardSnapshot(msgspec.Struct, frozen=True):
    """Encoded parts: nodes by name, and sections by theirs. It never changes."""

    nodes: Mapping[str, bytes]
    sections: Mapping[str, bytes]


class SnapshotBuilder:
    def __init__(
        self,
        watch: ClusterWatch,
        catalog: Catalog,
        history: History,
        usage: UsageWatch | None = None,
        *,
        clock: Callable[[], float],
    ) -> None:
        """`usage`: who uses the cards, if agents are asked. `clock`: seconds since 1970, for the history."""
        self._watch = watch
        self._catalog = catalog
        self._history = history
        self._usage = usage
        self._clock = clock
        self._only_whole = frozenset(profile.name for profile in catalog if in_cards(profile))

    async def build(self) -> DashboardSnapshot:
        ledger, inventories = self._watch.ledger, self._watch.inventories
        occupancy, nodes, held = Occupancy(self._only_whole), {}, _Held(self._only_whole)
        units: dict[str, set[str]] = {}
        names = [node.name for node in ledger.nodes()]
        for part in _parts(names, NODES_AT_ONCE):
            for row in rows(ledger, part):
                if row.cards or row.unplaced:
                    occupancy.add(row)
                    held.add(row)
                    nodes[row.name] = encode(self._node(row, inventories))
                    for card in row.cards:
                        if card.present:
                            units.setdefault(card.kind, set()).add(self._unit(card.kind, row.name, card.size, inventories))
            await asyncio.sleep(0)
        waiting, count = await self._waiting(inventories)
        ratios = occupancy.ratios()
        self._history.add(Point(int(self._clock()), ratios.fill, ratios.fragmentation, count))
        sections = {
            "about": encode({"version": __version__, "vendors": self._vendors(occupancy)}),
            "totals": encode(
                {
                    "nodes": len(nodes),
                    "cards": sum(each.cards for each in occupancy.vendors.values()),
                    "unhealthy": sum(each.unhealthy for each in occupancy.vendors.values()),
                    "fill": ratios.fill,
                    "fragmentation": ratios.fragmentation,
                    "waiting": count,
                    "vendors": [
                        {
                            "kind": kind,
                            "cards": each.cards,
                            "unhealthy": each.unhealthy,
                            "size": each.size,
                            "used": each.used,
                            # Nodes may count one vendor in different units; then no sum of them has one.
                            "unit": next(iter(units[kind])) if len(units.get(kind, ())) == 1 else "",
                        }
                        for kind, each in sorted(occupancy.vendors.items())
                    ],
                }
            ),
            "waiting": encode(waiting),
            "namespaces": encode(self._namespaces(held)),
            "use_notes": encode(
                [visible(note)[:LONGEST_TEXT] for note in (self._usage.notes if self._usage is not None else ())]
            ),
            "interrupted": encode({what: visible(why)[:LONGEST_TEXT] for what, why in self._watch.interrupted.items()}),
            "history": encode(list(self._history)),
        }
        return DashboardSnapshot(nodes, sections)

    def _unit(self, kind: str, node: str, size: int, inventories: Inventories) -> str:
        profile = self._catalog[kind]
        return "card" if kind in self._only_whole else unit_label(profile, node, size, inventories)

    def _vendors(self, occupancy: Occupancy) -> list[dict[str, str]]:
        """Every vendor that the cluster has cards of, in a stable order: the page colours them by it."""
        return [
            {"kind": profile.name, "title": profile.title, "noun": profile.noun}
            for profile in self._catalog
            if profile.name in occupancy.vendors
        ]

    def _node(self, row: NodeRow, inventories: Inventories) -> dict[str, Any]:
        """What `accelshare inspect -o json` has, with texts of others made visible and short."""
        uses = self._usage.uses if self._usage is not None else NO_USES
        node: dict[str, Any] = document([row], self._catalog.profiles, inventories, uses)["nodes"][0]
        for card in node["cards"]:
            for used in (card, *card["pods"]):
                if "use" in used:
                    used["use"] = {field: used["use"][field] for field in USE_FIELDS if field in used["use"]}
            for field in ("model", "problem", "id", "enforced_by"):
                card[field] = visible(card[field])[:LONGEST_TEXT] if card[field] else ""
        for delivery in node["delivery"].values():
            delivery["way"] = visible(delivery["way"])[:LONGEST_TEXT]
        node["problems"] = [visible(problem)[:LONGEST_TEXT] for problem in node["problems"][:MOST_PROBLEMS]]
        ledger = self._watch.ledger.node(row.name)
        node["paused"] = sorted(kind for kind in ledger.cards if ledger.paused(kind)) if ledger is not None else []
        return node

    async def _waiting(self, inventories: Inventories) -> tuple[list[WaitingRow], int]:
        ledger = self._watch.ledger
        pods = waiting_by_age(ledger)
        reasons = WaitingReasons(ClusterState(ledger, self._catalog, inventories))
        listed: list[WaitingRow] = []
        for part in _parts(pods[:MOST_WAITING], WAITING_AT_ONCE):
            # A pod that was bound in between is not waiting any more.
            listed += [reasons.row(pod) for pod in part if (now := ledger.pod(pod.uid)) is not None and now.place is None]
            await asyncio.sleep(0)
        return listed, len(pods)

    def _namespaces(self, held: "_Held") -> list[dict[str, Any]]:
        quotas: dict[str, list[dict[str, Any]]] = {}
        for row in self._watch.quotas:
            entry = {"quota": row.quota, "kind": row.kind, "resource": row.resource, "hard": row.hard, "used": row.used}
            quotas.setdefault(row.namespace, []).append(entry)
        names = sorted(held.units.keys() | quotas.keys())[:MOST_NAMESPACES]
        return [
            {
                "name": name,
                "pods": len(held.pods.get(name, ())),
                "held": dict(sorted(held.units.get(name, {}).items())),
                "quotas": quotas.get(name, []),
            }
            for name in names
        ]


class _Held:
    """What the rows say that each namespace holds, by vendor."""

    def __init__(self, only_whole: Container[str]) -> None:
        """`only_whole`: vendors that are counted in cards."""
        self._only_whole = only_whole
        self.units: dict[str, dict[str, int]] = {}
        self.pods: dict[str, set[str]] = {}

    def add(self, row: NodeRow) -> None:
        for pod in (*(pod for card in row.cards for pod in card.pods), *row.unplaced):
            kinds = self.units.setdefault(pod.namespace, {})
            units = 1 if pod.kind in self._only_whole else pod.units or 1
            kinds[pod.kind] = kinds.get(pod.kind, 0) + units
            self.pods.setdefault(pod.namespace, set()).add(pod.uid)


def _parts(items: Sequence[Any], size: int) -> Iterable[Sequence[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))
