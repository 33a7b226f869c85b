"""The inspect JSON: as each original system's users know it, and a neutral one with everything the ledger knows.

Belongs here: names and nesting of the answers. The dialects are data of the profiles.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import to_builtins

from accelshare.report.units import Inventories, in_cards, unit_label
from accelshare.report.usage import NO_USES, Uses, add_to_card
from accelshare.report.view import CardRow, NodeRow, PodRow
from accelshare.vendors.profile import Profile


def dialect(rows: Iterable[NodeRow], profile: Profile) -> dict[str, Any]:
    """The profile's own form, for the nodes that have its cards or pods that request them."""
    kind = profile.name
    return {"nodes": [_node(row, profile) for row in rows if row.has(kind)]}


def neutral(rows: Iterable[NodeRow]) -> dict[str, Any]:
    """Everything that is in the rows, under their own names."""
    return {"nodes": [to_builtins(row) for row in rows]}


def document(
    rows: Iterable[NodeRow], profiles: Sequence[Profile], inventories: Inventories, uses: Uses = NO_USES
) -> dict[str, Any]:
    """The rows of these vendors, each card with what only the inventory has: unit, model, and the card's problem;
    and with its use, where that is known.
    """
    return {"nodes": [_document_node(row, profiles, inventories, uses) for row in rows]}


def _document_node(row: NodeRow, profiles: Sequence[Profile], inventories: Inventories, uses: Uses) -> dict[str, Any]:
    by_name = {profile.name: profile for profile in profiles}
    kinds = inventories.get(row.name, {})
    node: dict[str, Any] = to_builtins(row)
    node["cards"] = [
        add_to_card(_document_card(to_builtins(card), by_name[card.kind], row.name, inventories), uses, row.name, card)
        for card in row.cards
        if card.kind in by_name
    ]
    node["unplaced"] = [to_builtins(pod) for pod in row.unplaced if pod.kind in by_name]
    node["delivery"] = {
        kind: {"way": entry.delivery, "works": entry.delivers} for kind, entry in sorted(kinds.items()) if kind in by_name
    }
    return node


def _document_card(card: dict[str, Any], profile: Profile, node: str, inventories: Inventories) -> dict[str, Any]:
    entry = inventories.get(node, {}).get(profile.name)
    lines = next((each for each in entry.cards if each.index == card["index"] and card["present"]), None) if entry else None
    if in_cards(profile):
        held = int(bool(card["pods"]))
        free = int(not held and card["healthy"])
        pods = [{**pod, "units": 1} for pod in card["pods"]]
        card = {**card, "size": int(card["present"]), "used": held, "free": free, "enforced_by": "", "pods": pods}
    return {
        **card,
        "not_limited": profile.enforcement.not_limited(card["enforced_by"]),
        "unit": "card" if in_cards(profile) else unit_label(profile, node, card["size"], inventories),
        "model": lines.model if lines else "",
        "problem": lines.problem if lines else "",
    }


def _node(row: NodeRow, profile: Profile) -> dict[str, Any]:
    cards = [card for card in row.of(profile.name) if card.present]
    total = sum(card.size for card in cards)
    used = sum(card.used for card in cards) + sum(pod.units for pod in row.unplaced_of(profile.name))
    return {
        "name": row.name,
        **_amounts(profile, total, used),
        profile.inspect.cards: [_card(card, profile) for card in cards],
    }


def _card(card: CardRow, profile: Profile) -> dict[str, Any]:
    return {"id": card.index, **_amounts(profile, card.size, card.used), "pods": [_pod(pod, profile) for pod in card.pods]}


def _pod(pod: PodRow, profile: Profile) -> dict[str, Any]:
    lines: dict[str, Any] = {"name": pod.name, "namespace": pod.namespace}
    if profile.inspect.pod_uid:
        lines["uid"] = pod.uid
    if profile.inspect.pod_created:
        lines["createTime"] = pod.created
    return {**lines, profile.inspect.used: pod.units}


def _amounts(profile: Profile, total: int, used: int) -> dict[str, int]:
    amounts = {profile.inspect.total: total, profile.inspect.used: used}
    if profile.inspect.available is not None:
        amounts[profile.inspect.available] = max(0, total - used)
    return amounts
