"""Every version of every pod and node, and what is wrong with them. It shares no code with the product, so it can disagree.

Belongs here: sums over records and inventories, and the rules that a history must keep. Never: reading a cluster (etcd_watch.py).

The rules: a bind puts no more on a card than the card has; it names as many cards and units as the pod requests; a pod's node and
record do not change after its bind; no pod is deleted that nobody deleted; each pod that fits is bound in the end.

The extender can learn that a card shrank only after it did. A bind may therefore use the inventory that its Node had at any
moment of the last `grace_s` seconds.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

Object = dict[str, Any]
KIND: Final = "enflame"
MEMORY: Final = "enflame.com/gcu-memory"
WHOLE: Final = "enflame.com/gcu"
CARD_COUNT: Final = "accelshare.io/card-count"
RECORD: Final = "accelshare.io/assignment"
INVENTORY: Final = "accelshare.io/inventory"
ENDED: Final = ("Succeeded", "Failed")
GRACE_S: Final = 60.0
UNREADABLE: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


class Ask(NamedTuple):
    """What a pod requests: so many cards, and of each so many units, or all of it."""

    cards: int
    units: int
    whole: bool

    @classmethod
    def of(cls, pod: Object) -> "Ask | None":
        """None: the pod requests no card."""
        limits = pod["spec"]["containers"][0].get("resources", {}).get("limits", {})
        if WHOLE in limits:
            return cls(int(limits[WHOLE]), 0, True)
        if MEMORY not in limits:
            return None
        cards = int((pod["metadata"].get("annotations") or {}).get(CARD_COUNT, "1"))
        return cls(cards, int(limits[MEMORY]) // cards, False)


class Part(NamedTuple):
    """A part of a card in a record."""

    card: str
    units: int
    whole: bool


class Version(NamedTuple):
    """One version of a pod, as far as it matters here."""

    revision: int
    at_s: float
    node: str
    record: str
    phase: str
    deleted: bool = False

    def __str__(self) -> str:
        where = f"on {self.node} {self.record}" if self.node else "pending"
        return f"revision {self.revision} at {self.at_s:.2f} s: {self.phase} {where}{', deleted' if self.deleted else ''}"


@dataclass(slots=True)
class PodHistory:
    uid: str
    name: str
    ask: Ask | None
    versions: list[Version] = field(default_factory=list)

    @property
    def now(self) -> Version:
        return self.versions[-1]

    @property
    def living(self) -> bool:
        return not self.now.deleted and self.now.phase not in ENDED

    @property
    def bound_at_s(self) -> float | None:
        return next((version.at_s for version in self.versions if version.node), None)

    def __str__(self) -> str:
        return "\n".join([f"pod {self.name} {self.uid} requests {self.ask}", *(f"  {version}" for version in self.versions)])


class Inventory(NamedTuple):
    """The cards of a Node: id → size of the healthy ones, and what kube-scheduler counts."""

    sizes: dict[str, int]
    allocatable: dict[str, int]


class Finding(NamedTuple):
    """A rule that was broken, and the history of the pod that broke it."""

    rule: str
    text: str
    history: str = ""


class History:
    def __init__(self, grace_s: float = GRACE_S) -> None:
        self._grace_s = grace_s
        self.pods: dict[str, PodHistory] = {}  # by uid
        self.findings: list[Finding] = []
        self.binds = 0
        self.versions = 0
        self.last_bind_s = 0.0
        self._inventories: dict[str, list[tuple[float, Inventory]]] = defaultdict(list)  # by node; the last is in force
        self._parts: dict[str, tuple[str, list[Part]]] = {}  # by uid of each living bound pod: node, parts
        self._used: Counter[tuple[str, str]] = Counter()  # units by node and card
        self._wholes: Counter[tuple[str, str]] = Counter()
        self._released: set[str] = set()  # names of pods whose deletion was asked for

    # What happened.

    def see_node(self, node: Object, *, at_s: float, deleted: bool = False) -> None:
        self.versions += 1
        now = Inventory({}, {}) if deleted else _inventory(node)
        known = self._inventories[node["metadata"]["name"]]
        if not known or known[-1][1] != now:
            known.append((at_s, now))

    def see_pod(self, pod: Object, *, revision: int, at_s: float, deleted: bool = False) -> None:
        self.versions += 1
        meta = pod["metadata"]
        uid = meta["uid"]
        history = self.pods.setdefault(uid, PodHistory(uid, meta["name"], Ask.of(pod)))
        node = pod["spec"].get("nodeName", "")
        record = (meta.get("annotations") or {}).get(RECORD, "") if node else ""
        version = Version(revision, at_s, node, record, pod.get("status", {}).get("phase", ""), deleted)
        before = history.versions[-1] if history.versions else None
        if before is not None and before[2:] == version[2:]:
            return
        history.versions.append(version)
        if history.ask is None:
            return
        if before is not None and before.node:
            self._judge_change(history, before, version)
        elif node and not deleted:
            self._judge_bind(history, version)
        if not history.living:
            self._forget(uid)
        if deleted and history.name not in self._released:
            self._find("lost", f"pod {history.name} was deleted and nobody asked for it", history)

    def release(self, name: str) -> None:
        """Somebody asked for the deletion of this pod."""
        self._released.add(name)

    # What is true now.

    def living(self) -> set[str]:
        """The uids of all pods that are not deleted."""
        return {uid for uid, pod in self.pods.items() if pod.ask is not None and not pod.now.deleted}

    def pending(self) -> list[PodHistory]:
        return [pod for pod in self.pods.values() if pod.ask is not None and pod.living and not pod.now.node]

    def bound(self) -> list[PodHistory]:
        return [self.pods[uid] for uid in self._parts]

    def fitting(self) -> list[PodHistory]:
        """Pending pods for which a node has enough now, in kube-scheduler's count and on its cards."""
        pending = self.pending()
        if not pending:
            return []
        requested = self._requested()
        fits: dict[Ask, bool] = {}
        for pod in pending:
            assert pod.ask is not None
            if pod.ask not in fits:
                fits[pod.ask] = any(self._fits(name, pod.ask, requested[name]) for name in self._inventories)
        return [pod for pod in pending if pod.ask is not None and fits[pod.ask]]

    def books(self) -> dict[str, list[str]]:
        """Who is on each card, as `node/card: pod units`, by sums of our own."""
        books: dict[str, list[str]] = defaultdict(list)
        for uid, (node, parts) in self._parts.items():
            for part in parts:
                books[f"{node}/{part.card}"].append(f"{self.pods[uid].name} {'whole' if part.whole else part.units}")
        return {place: sorted(pods) for place, pods in books.items()}

    # The rules.

    def judge_end(self, *, created: set[str], early: set[str]) -> None:
        """After the last pod: each of these names was seen and, unless it was deleted early, bound."""
        by_name = {pod.name: pod for pod in self.pods.values()}
        for name in sorted(created - by_name.keys()):
            self._find("lost", f"pod {name} was created, and no version of it was ever seen")
        for name in sorted((created & by_name.keys()) - early):
            if by_name[name].bound_at_s is None:
                self._find("not bound", f"pod {name} fits on an empty node and was never bound", by_name[name])

    def _judge_bind(self, history: PodHistory, version: Version) -> None:
        self.binds += 1
        self.last_bind_s = version.at_s
        ask = history.ask
        assert ask is not None
        try:
            parts = _parts(version.record)
        except UNREADABLE as error:
            self._find("without a card", f"pod {history.name} is bound with the record {version.record!r}: {error!r}", history)
            return
        named = [(part.units, part.whole) for part in parts]
        if len({part.card for part in parts}) != ask.cards or named != [(ask.units, ask.whole)] * ask.cards:
            self._find("without a card", f"pod {history.name} requests {ask} and its record has {parts}", history)
        self._parts[history.uid] = (version.node, parts)
        for part in parts:
            place = (version.node, part.card)
            self._used[place] += part.units
            self._wholes[place] += part.whole
            self._judge_card(place, history, version)

    def _judge_card(self, place: tuple[str, str], history: PodHistory, version: Version) -> None:
        size = max((found.sizes.get(place[1], -1) for found in self._recent(place[0], version.at_s)), default=-1)
        used, wholes = self._used[place], self._wholes[place]
        others = "; ".join(str(self.pods[uid]) for uid, (node, parts) in self._parts.items() if _on(node, parts, place))
        if size < 0:
            self._find("oversold", f"{place} is not in the inventory, and {history.name} was bound to it", history)
        elif wholes > 1 or (wholes and used) or used > size:
            text = f"{place} has {size} units, and {used} and {wholes} times all of it are assigned:\n{others}"
            self._find("oversold", text, history)

    def _judge_change(self, history: PodHistory, before: Version, now: Version) -> None:
        if now.node != before.node:
            self._find("bound twice", f"pod {history.name} was on {before.node} and is on {now.node or 'no node'}", history)
        elif now.record != before.record:
            self._find("record changed", f"the record of pod {history.name} was {before.record} and is {now.record}", history)

    def _recent(self, node: str, at_s: float) -> Iterator[Inventory]:
        """The inventories that were in force at any moment of the last `grace_s` seconds."""
        until = float("inf")
        for since, inventory in reversed(self._inventories.get(node, [])):
            if until >= at_s - self._grace_s:
                yield inventory
            until = since

    def _forget(self, uid: str) -> None:
        node, parts = self._parts.pop(uid, ("", []))
        for part in parts:
            self._used[node, part.card] -= part.units
            self._wholes[node, part.card] -= part.whole

    def _requested(self) -> dict[str, Counter[str]]:
        """What kube-scheduler counts on each node."""
        requested: dict[str, Counter[str]] = defaultdict(Counter)
        for uid, (node, _) in self._parts.items():
            ask = self.pods[uid].ask
            assert ask is not None
            requested[node][WHOLE if ask.whole else MEMORY] += ask.cards if ask.whole else ask.cards * ask.units
        return requested

    def _fits(self, node: str, ask: Ask, requested: Counter[str]) -> bool:
        inventory = self._inventories[node][-1][1]
        resource, amount = (WHOLE, ask.cards) if ask.whole else (MEMORY, ask.cards * ask.units)
        if requested[resource] + amount > inventory.allocatable.get(resource, 0):
            return False
        free = [size - self._used[node, card] for card, size in inventory.sizes.items() if not self._wholes[node, card]]
        if ask.whole:
            empty = [card for card in inventory.sizes if not self._wholes[node, card] and not self._used[node, card]]
            return len(empty) >= ask.cards
        return sum(units >= ask.units for units in free) >= ask.cards

    def _find(self, rule: str, text: str, history: PodHistory | None = None) -> None:
        self.findings.append(Finding(rule, text, str(history) if history is not None else ""))


def _inventory(node: Object) -> Inventory:
    """No cards if the annotation cannot be read."""
    text = (node["metadata"].get("annotations") or {}).get(INVENTORY, "{}")
    allocatable = node.get("status", {}).get("allocatable", {})
    amounts = {name: int(allocatable[name]) for name in (MEMORY, WHOLE) if allocatable.get(name, "").isdigit()}
    try:
        cards = json.loads(text)[KIND]["cards"]
        if len({card["id"] for card in cards}) < len(cards) or any(card["index"] < 0 for card in cards):
            return Inventory({}, amounts)
        return Inventory({card["id"]: card["size"] for card in cards if card.get("healthy", True)}, amounts)
    except UNREADABLE:
        return Inventory({}, amounts)


def _parts(record: str) -> list[Part]:
    entries = json.loads(record)[KIND]
    return [Part(entry["id"], entry.get("units", 0), entry.get("whole", False)) for entry in entries]


def _on(node: str, parts: list[Part], place: tuple[str, str]) -> bool:
    return node == place[0] and any(part.card == place[1] for part in parts)
