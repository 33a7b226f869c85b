"""The inspect table, to the letter as the original systems print it.

Belongs here: columns and padding. Two spaces after the widest cell of each column, a line of dashes as long as the first row
and twenty more, percentages cut off rather than rounded.
"""

from collections.abc import Sequence

from accelshare.report.view import CardRow, NodeRow
from accelshare.vendors.profile import Profile

PADDING = 2


def summary(rows: Sequence[NodeRow], profile: Profile) -> str:
    """One line a node, one column a card, and the cluster's sum."""
    kind, noun = profile.name, profile.noun
    shown = [row for row in rows if row.of(kind) or row.unplaced_of(kind)]
    columns = max((card.index + 1 for row in shown for card in row.of(kind) if card.present), default=0)
    pending = any(row.unplaced_of(kind) for row in shown)
    head = ["NAME", "IPADDRESS", *(f"{noun}{index}(Allocated/Total)" for index in range(columns))]
    head += ["PENDING(Allocated)"] if pending else []
    table = [[*head, f"{noun} Memory({_unit(shown, profile)})"]]
    held = all_units = 0
    for row in shown:
        cards = {card.index: card for card in row.of(kind) if card.present}
        waiting = sum(pod.units for pod in row.unplaced_of(kind))
        used = sum(card.used for card in cards.values()) + waiting
        total = sum(card.size for card in cards.values())
        line = [row.name, row.address or "unknown", *(_cell(cards.get(index)) for index in range(columns))]
        line += [str(waiting)] if pending else []
        table.append([*line, f"{used}/{total}"])
        held, all_units = held + used, all_units + total
    lines = _aligned(table)
    # The dash line is as long as the first row with its tabs counted as one character each, and twenty more.
    dashes = "-" * (sum(len(cell) + 1 for cell in table[1] if cell) + 20) if len(table) > 1 else "-" * 20
    share = held * 100 // all_units if all_units else 0
    return "\n".join([*lines, dashes, f"Allocated/Total {noun} Memory In Cluster:", f"{held}/{all_units} ({share}%)  "]) + "\n"


def _cell(card: CardRow | None) -> str:
    return f"{card.used}/{card.size}" if card else "0/0"


def _unit(rows: Sequence[NodeRow], profile: Profile) -> str:
    sizes = [card.size for row in rows for card in row.of(profile.name) if card.present]
    return "MiB" if sizes and sizes[0] > 100 else "GiB"


def _aligned(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in table) + PADDING for column in range(len(table[0]))]
    return ["".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
