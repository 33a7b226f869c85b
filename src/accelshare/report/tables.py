"""The tables of `inspect`: summary and details exactly as the original systems print them, and `-o wide`.

Belongs here: columns, and lines of dashes. Percentages are cut off, not rounded. The dashes of the summary are as
many as the first node's row has characters, its tabs and its line break counted as one each, and twenty more; those of the
details as many as all pod rows of the first node, and ten more.

Nodes with different units are in different tables. A vendor whose cards are only allocated whole is counted in cards.
`-o wide` has one line for each card of every vendor, because the unit is one of its columns.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from accelshare.report.units import NO_INVENTORIES, Inventories, in_cards, unit_label
from accelshare.report.view import CardRow, NodeRow, PodRow
from accelshare.terminal import padded, visible, width
from accelshare.vendors.profile import Profile
from accelshare.wire.inventory import CardEntry

if TYPE_CHECKING:
    from accelshare.report.usage import Uses

PADDING: Final = 2


def tabbed(lines: Sequence[Sequence[str]]) -> str:
    """Each line's cells, the last one as it is and the others padded to the widest of their column.

    A column is a run of neighbouring lines that have it: a line with fewer cells ends it, so that the lines below are
    aligned independently. To pad the last visible cell of a line too, add an empty last cell.
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


def summary(rows: Sequence[NodeRow], profile: Profile, inventories: Inventories = NO_INVENTORIES) -> str:
    """One line a node, one column a card, and the cluster's sum."""
    return "\n".join(_summary(part, profile, unit) for unit, part in _by_unit(rows, profile, inventories).items())


def details(rows: Sequence[NodeRow], profile: Profile, inventories: Inventories = NO_INVENTORIES) -> str:
    """One block a node with one line a pod, and the cluster's sum."""
    return "\n".join(_details(part, profile) for part in _by_unit(rows, profile, inventories).values())


def totals(rows: Sequence[NodeRow], profile: Profile, inventories: Inventories = NO_INVENTORIES) -> list[str]:
    """The cluster's sums, as they are below the tables: one line for each unit."""
    lines = []
    for part in _by_unit(rows, profile, inventories).values():
        used, total = _sums(part, profile)
        lines.append(f"{_in_cluster(profile)}: {used}/{total} ({_percent(used, total)}%)")
    return lines


def has_anything(row: NodeRow, profile: Profile) -> bool:
    """Is this node in the table? Cards without memory to share are not, unless the vendor's cards are only allocated whole."""
    return any(_size(card, profile) for card in row.of(profile.name) if card.present) or bool(_waiting(row, profile))


def _by_unit(rows: Sequence[NodeRow], profile: Profile, inventories: Inventories) -> dict[str, list[NodeRow]]:
    parts: dict[str, list[NodeRow]] = {}
    for row in rows:
        if has_anything(row, profile):
            size = next((card.size for card in row.of(profile.name) if card.present), 0)
            parts.setdefault(unit_label(profile, row.name, size, inventories), []).append(row)
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
        # As in the original: the first node sets the length for all; a first node without pods sets ten.
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
    """What each pod has of each card, and last of an unknown card; by its first card, then by its name."""
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
    """The indexes that have a column: 0 to the highest, as in the original; only existing ones if there would be too many."""
    there = {index for row in rows for index in _cards(row, profile)}
    count = max(there, default=-1) + 1
    return range(count) if count <= _MOST_COLUMNS else sorted(there)


def _waiting(row: NodeRow, profile: Profile) -> list[PodRow]:
    """Pods of this node on none of its present cards: their card is not known, or it is gone."""
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


def wide(
    rows: Sequence[NodeRow], profiles: Sequence[Profile], inventories: Inventories = NO_INVENTORIES, uses: "Uses | None" = None
) -> str:
    """One line for each card, and one for each node's pods whose card is not known. Columns of use, if it is known anywhere."""
    from accelshare.report.usage import WIDE_HEAD  # not above: the originals' tables, which must be fast, do without

    table = [[*HEAD[:-1], *WIDE_HEAD, HEAD[-1]] if uses else list(HEAD)]
    for row in rows:
        for profile in profiles:
            table += _lines(row, profile, inventories, uses or {})
    return tabbed(table)


def _lines(row: NodeRow, profile: Profile, inventories: Inventories, uses: "Uses") -> list[list[str]]:
    from accelshare.report.usage import WIDE_HEAD, cells, of_pod

    inventory = inventories.get(row.name, {}).get(profile.name)
    entries = {entry.index: entry for entry in inventory.cards} if inventory else {}
    lines = []
    for card in row.of(profile.name):
        entry = entries.get(card.index, CardEntry(card.index, card.size)) if card.present else CardEntry(card.index, card.size)
        unit = unit_label(profile, row.name, card.size, inventories) if card.size and not in_cards(profile) else "card"
        # A card of no size is only allocated whole.
        used, total = (card.used, card.size) if unit != "card" else (int(bool(card.pods)), 1)
        free = card.free if unit != "card" else int(not card.pods and card.healthy)
        pods = ", ".join(
            _pod(pod, whole=unit == "card") + of_pod(uses, row.name, card, pod)
            for pod in sorted(card.pods, key=lambda pod: (pod.namespace, pod.name))
        )
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
                card.enforced_by if unit != "card" and card.enforced_by else "-",
                *(cells(uses, row.name, card) if uses else ()),
                pods or "-",
            ]
        )
    waiting = row.unplaced_of(profile.name)
    if waiting:
        names = ", ".join(_pod(pod, whole=pod.whole) for pod in sorted(waiting, key=lambda pod: (pod.namespace, pod.name)))
        units = str(sum(pod.units for pod in waiting))
        unknown = [row.name, row.address or "unknown", f"{profile.noun}?", "-", "-", units, "-", "-", "-", "card unknown", "-"]
        lines.append([*unknown, *(["-"] * len(WIDE_HEAD) if uses else ()), names])
    return lines


def _health(card: CardRow, entry: CardEntry) -> str:
    if not card.present:
        return "missing"
    return "healthy" if card.healthy else f"unhealthy: {entry.problem}" if entry.problem else "unhealthy"


def _pod(pod: PodRow, *, whole: bool) -> str:
    name = f"{pod.namespace}/{pod.name}"
    return f"{name} whole" if whole or pod.whole else f"{name} {pod.units}"
