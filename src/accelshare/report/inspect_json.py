"""The inspect JSON: as each original system's users know it, and a neutral one with everything the ledger knows.

Belongs here: names and nesting of the answers. The dialects are data of the profiles.
"""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from accelshare.report.view import CardRow, NodeRow, PodRow
from accelshare.vendors.profile import Profile


def dialect(rows: Iterable[NodeRow], profile: Profile) -> dict[str, Any]:
    """The profile's own form, for the nodes that have its cards or pods that ask for them."""
    kind = profile.name
    return {"nodes": [_node(row, profile) for row in rows if row.of(kind) or row.unplaced_of(kind)]}


def neutral(rows: Iterable[NodeRow]) -> dict[str, Any]:
    """Everything that is in the rows, under their own names."""
    return {"nodes": [asdict(row) for row in rows]}


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
    said: dict[str, Any] = {"name": pod.name, "namespace": pod.namespace}
    if profile.inspect.pod_uid:
        said["uid"] = pod.uid
    if profile.inspect.pod_created:
        said["createTime"] = pod.created
    return {**said, profile.inspect.used: pod.units}


def _amounts(profile: Profile, total: int, used: int) -> dict[str, int]:
    amounts = {profile.inspect.total: total, profile.inspect.used: used}
    if profile.inspect.available is not None:
        amounts[profile.inspect.available] = max(0, total - used)
    return amounts
