"""`inspect` for a screen: one line for each node, one bar for each card with its pods, what waits, and the totals.

Belongs here: what is shown, for any number of columns. What does not fit beside a bar is below it; nothing is left out.
Never: colours and escape sequences (`Paint`), reading the cluster. The originals' tables are in tables.py.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from accelshare.report.lines import NARROWEST, Line, Paint, Piece, line_width, painted, piece, plain, wrapped
from accelshare.report.units import NO_INVENTORIES, Inventories, amount, cards, in_cards, unit_label
from accelshare.report.usage import NO_USES, Uses, card_use, in_bytes, in_percent, of_pod, pod_use
from accelshare.report.view import CardRow, NodeRow, PodRow
from accelshare.report.waiting import WaitingPod
from accelshare.terminal import width
from accelshare.vendors.profile import NOBODY, Profile

_SHORTEST_BAR: Final = 10
_LONGEST_BAR: Final = 32
_ROOM_FOR_PODS: Final = 36  # columns beside a bar, so that pods are there and not below
_INDENT: Final = "  "
_BY_CARD: Final = "card"  # the unit of cards that are only allocated whole


class Glyphs(NamedTuple):
    """What a bar is made of: neighbouring pods in turn, free memory, and a card that serves nothing."""

    pods: tuple[str, str]
    free: str
    out: str


BLOCKS: Final = Glyphs(("█", "▓"), "░", "×")
ASCII: Final = Glyphs(("#", "="), ".", "x")
POD_STYLES: Final = ("pod", "next-pod")


class Overview(NamedTuple):
    """Everything that is shown."""

    rows: Sequence[NodeRow]
    profiles: Sequence[Profile]
    inventories: Inventories = NO_INVENTORIES
    uses: Uses = NO_USES
    waiting: Sequence[WaitingPod] = ()


@dataclass(frozen=True, slots=True)
class Sections:
    """The lines of each node, of each pod that waits, and of the totals."""

    nodes: tuple[tuple[str, ...], ...]
    waiting: tuple[tuple[str, ...], ...]  # first their number
    totals: tuple[str, ...]

    def text(self) -> str:
        """All of it."""
        return _joined(_flat(self.nodes), _flat(self.waiting), self.totals)

    def cut(self, lines: int) -> str:
        """As much of it as fits so many lines, always with the totals; what is left out is counted."""
        totals = _cut(self.totals, max(1, lines))
        left = lines - len(totals) - 1  # an empty line above them
        waiting: list[str] = []
        if self.waiting and left > 2:
            room = max(1, (left - 1) // 3, left - 1 - len(_flat(self.nodes)))
            waiting = [*self.waiting[0], *_cut_blocks(self.waiting[1:], room - 1, "waiting pod")]
        left -= len(waiting) + bool(waiting)
        return _joined(_cut_blocks(self.nodes, left, "node"), waiting, totals)


def _joined(*blocks: Sequence[str]) -> str:
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _flat(blocks: Sequence[Sequence[str]]) -> list[str]:
    return [line for block in blocks for line in block]


def _cut_blocks(blocks: Sequence[Sequence[str]], lines: int, noun: str) -> list[str]:
    """The blocks that fit so many lines, and a line about the others. Of a first block that is too long, the lines that fit."""
    if len(_flat(blocks)) <= lines:
        return _flat(blocks)
    shown: list[str] = []
    for number, block in enumerate(blocks):
        last = lines - len(shown) - 1  # one line counts what is left out
        if len(block) <= last:
            shown += block
            continue
        more = _count(len(blocks) - number, f"more {noun}")
        if number or last < 1:
            return [*shown, f"… {more}"] if lines > 0 else []
        others = f" and {_count(len(blocks) - 1, f'more {noun}')}" if len(blocks) > 1 else ""
        return [*block[:last], f"… {_count(len(block) - last, 'more line')} of this {noun}{others}"]
    return shown


def _cut(lines: Sequence[str], most: int) -> list[str]:
    return list(lines) if len(lines) <= most else [*lines[: most - 1], f"… {_count(len(lines) - most + 1, 'more line')}"]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class _Card(NamedTuple):
    """One card before its place on the screen is known."""

    node: str
    noun: str
    name: str
    row: CardRow | None  # none: pods whose card is not known
    bar: tuple[int, tuple[int, ...]]  # its size, and the units of each pod
    amount: str
    health: str
    enforced: str
    use: str
    problem: str  # why it is not healthy
    pods: Line
    unit: str


def sections(overview: Overview, columns: int, *, glyphs: Glyphs = BLOCKS, paint: Paint = plain) -> Sections:
    """The overview in lines of at most so many columns."""
    columns = max(columns, NARROWEST)
    by_node = [
        (row, [card for profile in overview.profiles for card in _cards(row, profile, overview, glyphs)])
        for row in overview.rows
        if any(row.has(profile.name) for profile in overview.profiles)
    ]
    layout = _Layout.of([card for _, found in by_node for card in found], columns)
    nodes = tuple(
        tuple(
            painted(line, paint)
            for line in (
                *_node_lines(row, _sums(found), columns),
                *(line for card in found for line in layout.lines(card, glyphs)),
            )
        )
        for row, found in by_node
    )
    return Sections(
        nodes,
        tuple(tuple(painted(line, paint) for line in pod) for pod in _waiting_lines(overview.waiting, columns)),
        tuple(painted(line, paint) for line in _total_lines(overview, by_node, columns)),
    )


# Cards.


def _cards(row: NodeRow, profile: Profile, overview: Overview, glyphs: Glyphs) -> Iterator[_Card]:
    entry = overview.inventories.get(row.name, {}).get(profile.name)
    problems = {each.index: each.problem for each in entry.cards} if entry else {}
    for card in row.of(profile.name):
        by_card = not card.size or in_cards(profile)
        unit = _BY_CARD if by_card else unit_label(profile, row.name, card.size, overview.inventories)
        size = (1 if by_card else card.size) if card.present else 0
        pods = sorted(card.pods, key=lambda pod: (pod.namespace, pod.name))
        units = tuple(1 if by_card else pod.units for pod in pods)
        used = min(sum(units), 1) if by_card else card.used
        use = card_use(overview.uses, row.name, card)
        health = "missing" if not card.present else "healthy" if card.healthy else "unhealthy"
        problem = problems.get(card.index, "") if card.present and not card.healthy else ""
        yield _Card(
            node=row.name,
            noun=profile.noun,
            name=f"{profile.noun}{card.index}",
            row=card,
            bar=(size, units),
            amount=_of(used, size, unit),
            health=health,
            enforced=f"enforced by {card.enforced_by}" if not by_card and card.enforced_by else "",
            use=f"use {in_bytes(use.used_bytes)} {in_percent(use.utilisation)}" if use is not None else "",
            problem=problem,
            pods=[_pod(pod, number, overview, row.name, card, glyphs, len(pods)) for number, pod in enumerate(pods)],
            unit=unit,
        )
    hidden = sorted(row.unplaced_of(profile.name), key=lambda pod: (pod.namespace, pod.name))
    if hidden:
        size = next((card.size for card in row.of(profile.name) if card.present), 0)
        by_card = not size or in_cards(profile)
        unit = _BY_CARD if by_card else unit_label(profile, row.name, size, overview.inventories)
        units = tuple(1 if by_card else pod.units for pod in hidden)
        counts = Counter((pod.uid, _pod_text(pod)) for pod in hidden)
        pods_of = [piece(f"{count} × {text}" if count > 1 else text) for (_, text), count in counts.items()]
        sum_of = cards(sum(units), unit) if by_card else amount(sum(units), unit)
        name = f"{profile.noun}?"
        yield _Card(row.name, profile.noun, name, None, (0, units), sum_of, "card unknown", "", "", "", pods_of, unit)


def _of(used: int, total: int, unit: str) -> str:
    return f"{used}/{cards(total, unit)}" if unit == _BY_CARD else f"{used}/{amount(total, unit)}"


def _pod_text(pod: PodRow) -> str:
    return f"{pod.namespace}/{pod.name} {'whole' if pod.whole else pod.units}"


def _pod(pod: PodRow, number: int, overview: Overview, node: str, card: CardRow, glyphs: Glyphs, count: int) -> Piece:
    use = pod_use(overview.uses, node, card, pod)
    text = f"{_pod_text(pod)}{of_pod(overview.uses, node, card, pod)}"
    mark = f"{glyphs.pods[number % 2]} " if count > 1 else ""
    return piece(f"{mark}{text}", "bad" if use is not None and use.over_use else POD_STYLES[number % 2] if count > 1 else "")


def bar(size: int, parts: Sequence[int], columns: int, glyphs: Glyphs = BLOCKS, *, healthy: bool = True) -> Line:
    """One part after the other, in cells. What is used has a cell at least, and so has what is free."""
    if not size:
        return [Piece(glyphs.out * columns, "bad")]
    total = min(sum(parts), size)
    filled = round(total * columns / size)
    filled = max(filled, 1) if total else 0
    filled = min(filled, columns - 1) if total < size else columns
    line: Line = []
    at = units = 0
    for number, part in enumerate(parts):
        units += part
        end = min(filled, round(min(units, size) * columns / size)) if number < len(parts) - 1 else filled
        if end > at:
            line.append(Piece(glyphs.pods[number % 2] * (end - at), POD_STYLES[number % 2]))
            at = end
    return [*line, Piece(glyphs.free * (columns - at), "dim") if healthy else Piece(glyphs.out * (columns - at), "bad")]


class _Layout(NamedTuple):
    """Which columns are beside the bars, and their widths. Everything else is below."""

    columns: int
    name: int
    bar: int
    beside: tuple[str, ...]  # fields of _Card, as they are shown
    widths: tuple[int, ...]
    pods: int  # columns for pods beside the bar; 0: they are below

    @classmethod
    def of(cls, found: Sequence[_Card], columns: int) -> "_Layout":
        name = max((width(card.name) for card in found), default=0)
        most = {field: max((width(getattr(card, field)) for card in found), default=0) for field in _FIELDS}
        shortest = max(1, min(_SHORTEST_BAR, columns - len(_INDENT) - name - 1))
        left = columns - len(_INDENT) - name - 1 - shortest
        beside = set()
        for field in _BY_IMPORTANCE:
            gap = 1 if field == "amount" else 2
            if most[field] and most[field] + gap <= left:
                beside.add(field)
                left -= most[field] + gap
        shown = tuple(field for field in _FIELDS if field in beside)
        pods = left - 2 if left - 2 >= _ROOM_FOR_PODS else 0
        if pods:
            wider = min(_LONGEST_BAR - shortest, pods - _ROOM_FOR_PODS)
            return cls(columns, name, shortest + wider, shown, tuple(most[field] for field in shown), pods - wider)
        longest = min(_LONGEST_BAR, shortest + left)
        return cls(columns, name, longest, shown, tuple(most[field] for field in shown), 0)

    def lines(self, card: _Card, glyphs: Glyphs) -> Iterator[Line]:
        bad = card.row is None or not card.row.healthy or not card.row.present
        first: Line = [Piece(_INDENT), Piece(card.name.ljust(self.name), "bad" if bad else ""), Piece(" ")]
        first += bar(*card.bar, self.bar, glyphs, healthy=not bad) if card.row is not None else [Piece(" " * self.bar)]
        for field, columns in zip(self.beside, self.widths, strict=True):
            text = getattr(card, field)
            first.append(Piece(" " if field == "amount" else "  "))
            first.append(piece(text, _style(field, text)))
            first.append(Piece(" " * (columns - width(text))))
        below = [
            piece(text, _style(field, text)) for field in _FIELDS if field not in self.beside and (text := getattr(card, field))
        ]
        if card.problem:
            below.append(piece(card.problem, "bad"))
        if self.pods:
            column = line_width(first) + 2
            beside = list(wrapped([*below, *card.pods], self.pods))
            yield [*first, Piece("  "), *(beside[0] if beside else [])]
            for line in beside[1:]:
                yield [Piece(" " * column), *line]
            return
        yield first
        under = len(_INDENT) + self.name + 1
        if self.columns - under < NARROWEST:
            under = len(_INDENT)
        for line in wrapped([*below, *card.pods], self.columns - under):
            yield [Piece(" " * under), *line]


# As they are shown, and which come first where not all have room.
_FIELDS: Final = ("amount", "use", "enforced", "health")
_BY_IMPORTANCE: Final = ("amount", "health", "enforced", "use")


def _style(field: str, text: str) -> str:
    if field == "health":
        return "good" if text == "healthy" else "bad"
    return "warn" if text == f"enforced by {NOBODY}" else ""


# Nodes and totals.


def _sums(found: Sequence[_Card]) -> dict[tuple[str, str], tuple[int, int]]:
    """What is used, and the total, by noun and unit."""
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for card in found:
        key = card.noun, card.unit
        used, total = sums.get(key, (0, 0))
        size, parts = card.bar
        sums[key] = used + (min(sum(parts), 1) if card.unit == _BY_CARD and card.row is not None else sum(parts)), total + size
    return sums


def _node_lines(row: NodeRow, sums: dict[tuple[str, str], tuple[int, int]], columns: int) -> Iterator[Line]:
    name = piece(row.name, "title")
    parts = [piece(row.address or "unknown", "dim")] if row.known else [piece("the node is gone", "bad")]
    parts += [
        piece(f"{noun} {_of(used, total, unit)} ({_percent(used, total)}%)") for (noun, unit), (used, total) in sums.items()
    ]
    line: Line = [name]
    for part in parts:
        line += [Piece("  "), part]
    if line_width(line) <= columns:
        yield line
        return
    yield from wrapped([name], columns)
    for rest in wrapped(parts, columns - len(_INDENT), separator="  "):
        yield [Piece(_INDENT), *rest]


def _percent(used: int, total: int) -> int:
    return used * 100 // total if total else 0  # cut off, as in the originals' tables


def _total_lines(overview: Overview, by_node: Sequence[tuple[NodeRow, list[_Card]]], columns: int) -> Iterator[Line]:
    if not by_node:
        yield from wrapped([piece("No node shows a card.")], columns)
        return
    for (noun, unit), (used, total) in sorted(_sums([card for _, found in by_node for card in found]).items()):
        counted = [card for _, found in by_node for card in found if (card.noun, card.unit) == (noun, unit)]
        there = [card.row for card in counted if card.row is not None]
        nodes = len({card.node for card in counted})
        parts = [
            piece(f"Total {noun} {_of(used, total, unit)} ({_percent(used, total)}%)", "title"),
            piece(f"{cards(len(there), 'card')} on {_count(nodes, 'node')}"),
        ]
        unhealthy = sum(not card.healthy and card.present for card in there)
        missing = sum(not card.present for card in there)
        nobody = sum(card.enforced_by == NOBODY for card in there) if unit != _BY_CARD else 0
        hidden = sum(len(card.pods) for card in counted if card.row is None)
        parts += [piece(f"{unhealthy} unhealthy", "bad")] * bool(unhealthy)
        parts += [piece(f"{missing} missing", "bad")] * bool(missing)
        parts += [piece(f"{nobody} enforced by {NOBODY}", "warn")] * bool(nobody)
        parts += [piece(f"{_count(hidden, 'pod')} on unknown cards", "bad")] * bool(hidden)
        yield from wrapped(parts, columns)
        yield from _not_limited_lines(overview.profiles, there if unit != _BY_CARD else (), columns)


def _not_limited_lines(profiles: Sequence[Profile], there: Sequence[CardRow], columns: int) -> Iterator[Line]:
    """What the ways that enforce limits on these cards do not limit."""
    enforcement = {profile.name: profile.enforcement for profile in profiles}
    for kind, way in sorted({(card.kind, card.enforced_by) for card in there}):
        if named := enforcement[kind].not_limited(way):
            texts = (f"{way} does not limit: {named[0]}", *named[1:])
            for line in wrapped([piece(text, "dim") for text in texts], columns - len(_INDENT)):
                yield [Piece(_INDENT), *line]


def _waiting_lines(waiting: Sequence[WaitingPod], columns: int) -> Iterator[list[Line]]:
    if not waiting:
        return
    yield [[piece(f"{_count(len(waiting), 'pod')} {'waits' if len(waiting) == 1 else 'wait'}:", "title")]]
    names = [piece(f"{pod.namespace}/{pod.name}") for pod in waiting]
    requests = [piece(pod.requests) for pod in waiting]
    name, request = (max(width(part.text) for part in column) for column in (names, requests))
    reason = max(width(pod.reason) for pod in waiting)
    fits = len(_INDENT) + name + 2 + request + 2 + reason <= columns
    for pod, who, what in zip(waiting, names, requests, strict=True):
        why = piece(pod.reason, "warn")
        if fits:
            pad = Piece(" " * (name + 2 - width(who.text))), Piece(" " * (request + 2 - width(what.text)))
            yield [[Piece(_INDENT), who, pad[0], what, pad[1], why]]
        else:
            parts = [part for part in (who, what, why) if part.text]
            yield [[Piece(_INDENT), *line] for line in wrapped(parts, columns - len(_INDENT), separator="  ")]
