"""Everything about every card on one line each: `inspect -o wide`.

Belongs here: columns. All vendors share one table, because the unit is a column of it.
"""

from collections.abc import Sequence

from accelshare.report.tabbed import tabbed
from accelshare.report.units import NOTHING_TOLD, Told, in_cards, unit_label
from accelshare.report.view import CardRow, NodeRow, PodRow
from accelshare.vendors.profile import Profile
from accelshare.wire.inventory import CardEntry

HEAD = ("NODE", "ADDRESS", "CARD", "MODEL", "ID", "USED", "FREE", "TOTAL", "UNIT", "HEALTH", "ENFORCED BY", "PODS")


def wide(rows: Sequence[NodeRow], profiles: Sequence[Profile], told: Told = NOTHING_TOLD) -> str:
    """One line a card, and one for the pods of each node of which nobody has said which card they have."""
    table = [list(HEAD)]
    for row in rows:
        for profile in profiles:
            table += _lines(row, profile, told)
    return tabbed(table)


def _lines(row: NodeRow, profile: Profile, told: Told) -> list[list[str]]:
    said = told.get(row.name, {}).get(profile.name)
    entries = {entry.index: entry for entry in said.cards} if said else {}
    lines = []
    for card in row.of(profile.name):
        entry = entries.get(card.index, CardEntry(card.index, card.size)) if card.present else CardEntry(card.index, card.size)
        unit = unit_label(profile, row.name, card.size, told) if card.size and not in_cards(profile) else "card"
        # A card of no size is given out whole or not at all.
        used, total = (card.used, card.size) if unit != "card" else (int(bool(card.pods)), 1)
        free = card.free if unit != "card" else int(not card.pods and card.healthy)
        pods = ", ".join(_pod(pod, whole=unit == "card") for pod in sorted(card.pods, key=lambda pod: (pod.namespace, pod.name)))
        lines.append(
            [
                row.name,
                row.address or "unknown",
                f"{profile.noun}{card.index}",
                entry.model or "-",
                card.id or "-",
                str(used),
                str(free),
                str(total if card.present else 0),
                unit,
                _health(card, entry),
                entry.enforced_by or "-",
                pods or "-",
            ]
        )
    waiting = row.unplaced_of(profile.name)
    if waiting:
        names = ", ".join(_pod(pod, whole=pod.whole) for pod in sorted(waiting, key=lambda pod: (pod.namespace, pod.name)))
        units = str(sum(pod.units for pod in waiting))
        lines.append(
            [row.name, row.address or "unknown", f"{profile.noun}?", "-", "-", units, "-", "-", "-", "card unknown", "-", names]
        )
    return lines


def _health(card: CardRow, entry: CardEntry) -> str:
    if not card.present:
        return "missing"
    return "healthy" if card.healthy else f"unhealthy: {entry.problem}" if entry.problem else "unhealthy"


def _pod(pod: PodRow, *, whole: bool) -> str:
    name = f"{pod.namespace}/{pod.name}"
    return f"{name} whole" if whole or pod.whole else f"{name} {pod.units}"
