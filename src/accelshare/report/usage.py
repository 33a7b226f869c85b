"""Who uses the cards: what `inspect` adds to its tables and its JSON, and its table of idle pods.

Belongs here: columns and lines of use. Names of pods come from the ledger's rows, numbers from the nodes' agents.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import to_builtins

from accelshare.report.view import CardRow, NodeRow, PodRow
from accelshare.vendors.profile import Profile
from accelshare.wire.usage import CardUse, NodeUse, PodUse

# By node.
Uses: TypeAlias = Mapping[str, NodeUse]
NO_USES: Final[Uses] = {}
UNKNOWN: Final = "-"
_UNITS: Final = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"))
_HOUR: Final = 3600


class UsedPart(NamedTuple):
    """One pod's part of one card, and what is known of its use."""

    node: NodeRow
    card: CardRow
    pod: PodRow
    use: PodUse


def in_bytes(amount: int | None) -> str:
    if amount is None:
        return UNKNOWN
    for size, name in _UNITS:
        if amount >= size:
            return f"{amount / size:.1f} {name}"
    return "0" if amount == 0 else "<1 MiB"


def in_percent(ratio: float | None) -> str:
    return UNKNOWN if ratio is None else f"{ratio:.0%}"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return UNKNOWN
    minutes = int(seconds // 60)
    days, hours = divmod(minutes // 60, 24)
    if days:
        return f"{days}d{hours}h"
    return f"{hours}h{minutes % 60}m" if hours else f"{minutes}m"


def card_use(uses: Uses, node: str, card: CardRow) -> CardUse | None:
    known = uses.get(node)
    found = (use for use in (known.cards if known else ()) if (use.kind, use.card) == (card.kind, card.index))
    return next(found, None) if card.present else None


def pod_use(uses: Uses, node: str, card: CardRow, pod: PodRow) -> PodUse | None:
    known = uses.get(node)
    wanted = (pod.uid, card.kind, card.index)
    found = (use for use in (known.pods if known else ()) if (use.uid, use.kind, use.card) == wanted)
    return next(found, None) if card.present else None


def cells(uses: Uses, node: str, card: CardRow) -> list[str]:
    """A card's memory in use, its utilisation, and the memory that others use."""
    use = card_use(uses, node, card)
    if use is None:
        return [UNKNOWN] * len(WIDE_HEAD)
    return [in_bytes(use.used_bytes), in_percent(use.utilisation), in_bytes(use.used_by_others_bytes)]


WIDE_HEAD: Final = ("MEMORY IN USE", "UTILISATION", "BY OTHERS")


def of_pod(uses: Uses, node: str, card: CardRow, pod: PodRow) -> str:
    """What follows a pod's name: ` (1.0 GiB, 25%)`, with a mark if it uses more than it holds; empty if nothing is known."""
    use = pod_use(uses, node, card, pod)
    if use is None:
        return ""
    over = ", MORE THAN IT HOLDS" if use.over_use else ""
    return f" ({in_bytes(use.used_bytes)}, {in_percent(use.utilisation)}{over})"


def parts(rows: Sequence[NodeRow], profiles: Sequence[Profile], uses: Uses) -> Iterator[UsedPart]:
    """Every pod's part of a card whose use is known."""
    for row in rows:
        for profile in profiles:
            for card in row.of(profile.name):
                for pod in sorted(card.pods, key=lambda pod: (pod.namespace, pod.name)):
                    use = pod_use(uses, row.name, card, pod)
                    if use is not None:
                        yield UsedPart(row, card, pod, use)


def pod_lines(rows: Sequence[NodeRow], profiles: Sequence[Profile], uses: Uses) -> list[list[str]]:
    """A table with one line for each pod's part of a card; without lines if nothing is known."""
    nouns = {profile.name: profile.noun for profile in profiles}
    lines = [
        [
            part.node.name,
            f"{nouns[part.card.kind]}{part.card.index}",
            f"{part.pod.namespace}/{part.pod.name}",
            in_bytes(part.use.held_bytes),
            in_bytes(part.use.used_bytes),
            in_percent(part.use.utilisation),
            duration(part.use.idle_s),
            "uses more than it holds" if part.use.over_use else "",
        ]
        for part in parts(rows, profiles, uses)
    ]
    return [["NODE", "CARD", "POD", "HELD", "IN USE", "UTILISATION", "IDLE", ""], *lines] if lines else []


class IdlePod(NamedTuple):
    """A pod that holds cards of one node and uses none of them."""

    namespace: str
    name: str
    node: str
    cards: tuple[str, ...]
    held_bytes: int
    used_bytes: int
    idle_s: float


def idle_pods(rows: Sequence[NodeRow], profiles: Sequence[Profile], uses: Uses, *, least_s: float) -> list[IdlePod]:
    """Pods that have used none of their cards for so long, the longest first."""
    nouns = {profile.name: profile.noun for profile in profiles}
    by_pod: dict[tuple[str, str], list[UsedPart]] = {}
    for part in parts(rows, profiles, uses):
        by_pod.setdefault((part.node.name, part.pod.uid), []).append(part)
    idle = []
    for found in by_pod.values():
        times = [part.use.idle_s for part in found if part.use.idle_s is not None]
        if len(times) == len(found) and min(times) >= least_s:
            pod = found[0].pod
            idle.append(
                IdlePod(
                    pod.namespace,
                    pod.name,
                    found[0].node.name,
                    tuple(f"{nouns[part.card.kind]}{part.card.index}" for part in found),
                    sum(part.use.held_bytes for part in found),
                    sum(part.use.used_bytes or 0 for part in found),
                    min(times),
                )
            )
    return sorted(idle, key=lambda pod: (-pod.idle_s, pod.namespace, pod.name))


def idle_lines(pods: Sequence[IdlePod]) -> list[list[str]]:
    head = ["NAMESPACE", "NAME", "NODE", "CARDS", "HELD", "IN USE", "IDLE"]
    lines = []
    for pod in pods:
        amounts = in_bytes(pod.held_bytes), in_bytes(pod.used_bytes), duration(pod.idle_s)
        lines.append([pod.namespace, pod.name, pod.node, ",".join(pod.cards), *amounts])
    return [head, *lines]


def idle_document(pods: Sequence[IdlePod]) -> dict[str, Any]:
    return {"idle": [pod._asdict() | {"cards": list(pod.cards)} for pod in pods]}


def add_to_card(document: dict[str, Any], uses: Uses, node: str, card: CardRow) -> dict[str, Any]:
    """A card of the inspect JSON with `use` on it and on its pods, where it is known."""
    pods = []
    for written, pod in zip(document["pods"], card.pods, strict=True):
        use = pod_use(uses, node, card, pod)
        pods.append({**written, "use": _numbers(use)} if use is not None else written)
    on_card = card_use(uses, node, card)
    known = {"use": _numbers(on_card)} if on_card is not None else {}
    return {**document, "pods": pods, **known}


_PLACE: Final = frozenset({"namespace", "name", "uid", "kind", "card"})


def _numbers(use: PodUse | CardUse) -> dict[str, Any]:
    """Every number under its own name; null where it is not known."""
    fields: dict[str, Any] = to_builtins({name: getattr(use, name) for name in use.__struct_fields__ if name not in _PLACE})
    return fields
