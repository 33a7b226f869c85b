"""The inspect tables, to the letter as the original systems print them.

Belongs here: rows, columns and lines of dashes. Percentages are cut off rather than rounded. The dashes of the summary are as
many as the first node's row has characters, its tabs and its line break counted as one each, and twenty more; those of the
details as many as all pod rows of the first node, and ten more.

Where one table would mix nodes that count in different units there is one table for each unit. A vendor whose cards are only
given out whole is counted in cards.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from accelshare.report.units import NOTHING_TOLD, Told, in_cards, unit_label
from accelshare.report.view import CardRow, NodeRow, PodRow
from accelshare.terminal import padded, visible, width
from accelshare.vendors.profile import Profile
from accelshare.wire.inventory import CardEntry

PADDING: Final = 2


def tabbed(lines: Sequence[Sequence[str]]) -> str:
    """Each line's cells, the last one as it is and the others padded to the widest of their column.

    A column is a run of neighbouring lines that have it: a line with fewer cells ends it, so that what stands below is aligned
    anew. A cell that is padded stays so at the end of its line too: give an empty last cell to have it.
    """
    cells = [[visible(cell) for cell in line] for line in lines]
    widths = [[0] * (len(line) - 1) for line in lines]
    for column in range(max(map(len, widths), default=0)):
        start = 0
        while start < len(lines):
            end = start
            while end < len(lines) and len(widths[end]) > column:
                end += 1
            widest = max((width(cells[at][column]) for at in range(start, end)), default=0) + PADDING
            for at in range(start, end):
                widths[at][column] = widest
            start = end + 1
    return "".join(
        "".join(padded(cell, columns) for cell, columns in zip(line[:-1], widths[at], strict=True)) + line[-1] + "\n"
        for at, line in enumerate(cells)
    )


_MOST_COLUMNS: Final = 64


def summary(rows: Sequence[NodeRow], profile: Profile, told: Told = NOTHING_TOLD) -> str:
    """One line a node, one column a card, and the cluster's sum."""
    return "\n".join(_summary(part, profile, unit) for unit, part in _by_unit(rows, profile, told).items())


def details(rows: Sequence[NodeRow], profile: Profile, told: Told = NOTHING_TOLD) -> str:
    """One block a node with one line a pod, and the cluster's sum."""
    return "\n".join(_details(part, profile) for part in _by_unit(rows, profile, told).values())


def has_anything(row: NodeRow, profile: Profile) -> bool:
    """Is this node in the table? Cards that have nothing to share are not, unless the vendor's cards are only given out whole."""
    return any(_size(card, profile) for card in row.of(profile.name) if card.present) or bool(_waiting(row, profile))


def _by_unit(rows: Sequence[NodeRow], profile: Profile, told: Told) -> dict[str, list[NodeRow]]:
    parts: dict[str, list[NodeRow]] = {}
    for row in rows:
        if has_anything(row, profile):
            size = next((card.size for card in row.of(profile.name) if card.present), 0)
            parts.setdefault(unit_label(profile, row.name, size, told), []).append(row)
    return parts or {unit_label(profile, "", 0): []}


def _summary(rows: Sequence[NodeRow], profile: Profile, unit: str) -> str:
    noun = profile.noun
    columns = _columns(rows, profile)
    pending = any(_waiting(row, profile) for row in rows)
    head = ["NAME", "IPADDRESS", *(f"{noun}{index}(Allocated/Total)" for index in columns)]
    head += ["PENDING(Allocated)"] if pending else []
    table = [[*head, f"{noun} Cards" if in_cards(profile) else f"{noun} Memory({unit})"]]
    for row in rows:
        cards = _cards(row, profile)
        cells = [f"{_used(cards[i], profile)}/{_size(cards[i], profile)}" if i in cards else "0/0" for i in columns]
        waiting = _waiting(row, profile)
        cells += [str(sum(_units(pod, profile) for pod in waiting)) if waiting else ""] if pending else []
        table.append([row.name, _address(row), *cells, "{}/{}".format(*_sums([row], profile))])
    dashes = sum(len(cell) + 1 for cell in table[1]) + 20 if rows else 0
    used, total = _sums(rows, profile)
    table += [["-" * dashes], [f"{_in_cluster(profile)}:"], [f"{used}/{total} ({_percent(used, total)}%)", ""]]
    return tabbed(table)


def _details(rows: Sequence[NodeRow], profile: Profile) -> str:
    table: list[list[str]] = []
    dashes = 0
    for row in rows:
        columns = _columns([row], profile)
        waiting = _waiting(row, profile)
        head = ["NAME", "NAMESPACE", *(f"{profile.noun}{index}(Allocated)" for index in columns)]
        pods = [[name, namespace, *map(str, shares)] for (namespace, name), shares in _shares(row, profile, columns).items()]
        # As the original: once set, the length stays; a first node without pods gives ten.
        dashes = dashes or sum(len(cell) + 1 for pod in pods for cell in pod) + len(pods) + 10
        used, total = _sums([row], profile)
        table += [[""], ["NAME:", row.name], ["IPADDRESS:", _address(row)], [""]]
        table += [[*head, *(["Pending(Allocated)"] if waiting else []), ""]]
        table += [[*pod, ""] for pod in pods]
        table += [["Allocated :", f"{used} ({_percent(used, total)}%)", ""], ["Total :", f"{total} ", ""], ["-" * dashes]]
    used, total = _sums(rows, profile)
    table += [[""], [""], [f"{_in_cluster(profile)}:", f"{used}/{total} ({_percent(used, total)}%)", ""]]
    return tabbed(table)


def _shares(row: NodeRow, profile: Profile, columns: Sequence[int]) -> Mapping[tuple[str, str], list[int]]:
    """For each pod what it has of each card, and last of no known card; by its first card, then by its name."""
    waiting = _waiting(row, profile)
    width = len(columns) + bool(waiting)
    places = {index: place for place, index in enumerate(columns)}
    parts = [(places[card.index], pod, _units(pod, profile)) for card in _cards(row, profile).values() for pod in card.pods]
    parts += [(len(columns), pod, _units(pod, profile)) for pod in waiting]
    shares: dict[tuple[str, str], list[int]] = {}
    for column, pod, units in sorted(parts, key=lambda part: (part[0], part[1].namespace, part[1].name)):
        shares.setdefault((pod.namespace, pod.name), [0] * width)[column] += units
    return shares


def _cards(row: NodeRow, profile: Profile) -> dict[int, CardRow]:
    return {card.index: card for card in row.of(profile.name) if card.present}


def _columns(rows: Sequence[NodeRow], profile: Profile) -> Sequence[int]:
    """The indexes that have a column: from 0 to the highest, as the original has it; of a strange node only those it has."""
    there = {index for row in rows for index in _cards(row, profile)}
    count = max(there, default=-1) + 1
    return range(count) if count <= _MOST_COLUMNS else sorted(there)


def _waiting(row: NodeRow, profile: Profile) -> list[PodRow]:
    """Pods of this node that are on none of the cards it shows: nobody has said which, or the card is gone."""
    lost = [pod for card in row.of(profile.name) if not card.present for pod in card.pods]
    return [*row.unplaced_of(profile.name), *lost]


def _size(card: CardRow, profile: Profile) -> int:
    return 1 if in_cards(profile) else card.size


def _used(card: CardRow, profile: Profile) -> int:
    return int(bool(card.pods)) if in_cards(profile) else card.used


def _units(pod: PodRow, profile: Profile) -> int:
    return 1 if in_cards(profile) else pod.units


def _sums(rows: Sequence[NodeRow], profile: Profile) -> tuple[int, int]:
    cards = [card for row in rows for card in _cards(row, profile).values()]
    waiting = [pod for row in rows for pod in _waiting(row, profile)]
    used = sum(_used(card, profile) for card in cards) + sum(_units(pod, profile) for pod in waiting)
    return used, sum(_size(card, profile) for card in cards)


def _percent(used: int, total: int) -> int:
    return used * 100 // total if total else 0


def _address(row: NodeRow) -> str:
    return row.address or "unknown"


def _in_cluster(profile: Profile) -> str:
    return f"Allocated/Total {profile.noun} {'Cards' if in_cards(profile) else 'Memory'} In Cluster"


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
