"""What is wrong with a request, in words that name the key, its value and what would be right.

Belongs here: requests that no eviction and no waiting will serve. Never: room that other pods take (room.py).
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from math import ceil
from typing import Final

from accelshare.ledger.facts import PodSeen
from accelshare.ledger.node_ledger import CardLedger
from accelshare.ledger.nouns import Ask
from accelshare.ledger.refusals import Reason, Refusal
from accelshare.report.cluster_state import Asking, World
from accelshare.report.units import amount, cards
from accelshare.vendors.profile import Profile
from accelshare.vendors.refusal_texts import CARD_COUNT_ANNOTATION

# What people count memory in when they do not count in the cluster's unit, in MiB.
OTHER_UNITS: Final[Mapping[str, float]] = {"MiB": 1.0, "GiB": 1024.0, "KiB": 1 / 1024, "bytes": 1 / 2**20}
SMALL_MIB: Final = 100.0  # less than any framework needs for itself


def mistakes(world: World, pod: PodSeen, asking: Asking) -> list[str]:
    """Everything about this request that no node could make right."""
    found = [_refused(world.catalog[pod.refusal.kind], pod, pod.refusal, asking)] if pod.refusal is not None else []
    if pod.refusal is None:
        for ask in pod.request:
            found += _sizes(world, world.catalog[ask.kind], ask)
    return found + list(selectors(world.labels, asking.node_selector))


def nothing_asked(world: World, asking: Asking) -> list[str]:
    """Why a pod that asks for no card may have been meant to."""
    names = [name for profile in world.catalog for name in (profile.resources.memory, profile.resources.whole) if name]
    strange = [name for name in asking.resources if "/" in name]
    near = {name: get_close_matches(name, names, n=1) for name in strange}
    found = [f"{name} is no resource of any profile; did you mean {close[0]}?" for name, close in near.items() if close]
    return found or [f"it names none of {', '.join(names)} in the limits of its containers"]


def selectors(labels: Mapping[str, Mapping[str, str]], wanted: Mapping[str, str]) -> Iterator[str]:
    """Node labels that the pod selects and no node carries."""
    for key, value in wanted.items():
        if any(carried.get(key) == value for carried in labels.values()):
            continue
        others = sorted({carried[key] for carried in labels.values() if key in carried})
        near = get_close_matches(key, {name for carried in labels.values() for name in carried}, n=1)
        hint = f"; there is {key} with {', '.join(others[:5])}" if others else f"; did you mean {near[0]}?" if near else ""
        yield f"nodeSelector {key}={value}: no node carries this label{hint}"
    if wanted and not any(_carries(carried, wanted) for carried in labels.values()):
        pairs = ", ".join(f"{key}={value}" for key, value in wanted.items())
        if all(any(carried.get(key) == value for carried in labels.values()) for key, value in wanted.items()):
            yield f"nodeSelector: each of {pairs} is carried by some node, but no node carries them all"


def _carries(carried: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(carried.get(key) == value for key, value in wanted.items())


def _refused(profile: Profile, pod: PodSeen, refusal: Refusal, asking: Asking) -> str:
    memory, whole = profile.resources.memory or "", profile.resources.whole or ""
    key, text = _count(profile, asking)
    match refusal.reason:
        case Reason.CARD_COUNT_UNREADABLE:
            return f"{key} is {text!r}; it must be a whole number from 1 to {profile.request.max_cards}"
        case Reason.CARD_COUNT_LEAVES_REMAINDER:
            units = sum(ask.units for ask in pod.request if ask.kind == profile.name and not ask.whole)
            below = units - units % int(text)
            right = f"{below} and {below + int(text)} do" if below else f"{int(text)} does"
            return f"{key} is {text}, and {memory}: {units} does not divide by {text} equally; {right}"
        case Reason.TOO_MANY_WHOLE_CARDS:
            return f"{whole}: {asking.resources.get(whole, '')} is too many; {profile.text(refusal.reason)}"
        case Reason.AMOUNT_UNREADABLE:
            said = [f"{name}: {asking.resources[name]}" for name in (memory, whole) if name in asking.resources]
            return f"{' and '.join(said)} cannot be read; it must be a whole number of at most {2**31 - 1}"
    return profile.text(refusal.reason)


def _count(profile: Profile, asking: Asking) -> tuple[str, str]:
    """Where the pod says how many cards it wants, and what it says there."""
    label = profile.request.cards_label
    if label is not None and label in asking.labels:
        return f"label {label}", asking.labels[label]
    return f"annotation {CARD_COUNT_ANNOTATION}", asking.annotations.get(CARD_COUNT_ANNOTATION, "1")


def _sizes(world: World, profile: Profile, ask: Ask) -> Iterator[str]:
    there = list(world.cards(profile.name))
    if not there:
        yield _nobody_has_any(world, profile)
        return
    counts: dict[str, int] = {}
    for node, _ in there:
        counts[node] = counts.get(node, 0) + 1
    most = max(counts, key=lambda node: counts[node])
    if ask.cards > counts[most]:
        yield f"it asks for {cards(ask.cards, profile.noun)} on one node; the most that a node has is {counts[most]} ({most})"
    if not ask.whole:
        yield from _share(world, profile, ask, *max(there, key=lambda each: each[1].card.size))


def _share(world: World, profile: Profile, ask: Ask, node: str, largest: CardLedger) -> Iterator[str]:
    size = largest.card.size
    memory, unit, mib = profile.resources.memory, world.unit(profile, node), world.unit_mib(profile, node)
    if ask.share > size:
        meant = [
            (other, asked)
            for other, other_mib in OTHER_UNITS.items()
            # In this unit it would fit, and still be enough to work with.
            if mib and ask.units * other_mib >= SMALL_MIB and (asked := ceil(ask.units * other_mib / mib)) <= size * ask.cards
        ]
        if meant:
            other, asked = meant[0]
            yield (
                f"{memory}: {ask.units} is counted in {unit} here, and no {profile.noun} has {amount(ask.share, unit)}"
                f" (the largest has {size}); if you mean {ask.units} {other}, ask for {asked}"
            )
            return
        yield (
            f"no {profile.noun} in this cluster has {amount(ask.share, unit)};"
            f" the largest has {amount(size, unit)} ({profile.noun}{largest.card.index} of {node})"
        )
    elif mib and ask.share * mib < SMALL_MIB:
        asked = ceil(ask.units * 1024 / mib)
        if unit != "GiB" and asked <= size * ask.cards:
            yield (
                f"{memory}: {ask.units} is counted in {unit} here, which is very little;"
                f" if you mean {ask.units} GiB, ask for {asked}"
            )


def _nobody_has_any(world: World, profile: Profile) -> str:
    said = f"no node of this cluster shows a {profile.noun}"
    if profile.node_label is None:
        return said
    key, value = profile.node_label
    carriers = [node for node, carried in world.labels.items() if carried.get(key) == value]
    if carriers:
        return f"{said}; {', '.join(sorted(carriers)[:5])} should, having the label {key}={value}: does the agent run there?"
    near = sorted(node for node, carried in world.labels.items() if key in carried)
    but = f" ({', '.join(near[:5])} has {key} with another value)" if near else ""
    return f"{said}, and no node carries the label {key}={value} that its agent is placed by{but}"
