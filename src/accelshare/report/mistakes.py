"""What is wrong with a request: the key, its value and what would be right.

Belongs here: requests that neither eviction nor waiting will serve. Never: capacity that other pods use (capacity.py).
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from math import ceil
from typing import Final

from accelshare.ledger.facts import PodSeen
from accelshare.ledger.node_ledger import CardLedger
from accelshare.ledger.nouns import Ask, LimitNeed
from accelshare.ledger.refusals import Reason, Refusal
from accelshare.report.cluster_state import ClusterState, PodDetails
from accelshare.report.units import amount, cards
from accelshare.vendors.profile import Profile
from accelshare.vendors.refusal_texts import CARD_COUNT_ANNOTATION, ENFORCEMENT_ANNOTATION, card_counts
from accelshare.vendors.shapes import units_of

# Units that people use by mistake instead of the cluster's unit, in MiB.
OTHER_UNITS: Final[Mapping[str, float]] = {"MiB": 1.0, "GiB": 1024.0, "KiB": 1 / 1024, "bytes": 1 / 2**20}
SMALL_MIB: Final = 100.0  # less than any framework needs for itself


def mistakes(state: ClusterState, pod: PodSeen, details: PodDetails) -> list[str]:
    """Everything in this request that no node can serve."""
    found = [_refused(state.catalog[pod.refusal.kind], pod, pod.refusal, details)] if pod.refusal is not None else []
    if pod.refusal is None:
        for ask in pod.request:
            found += _sizes(state, state.catalog[ask.kind], ask)
            found += _limits(state, state.catalog[ask.kind], ask, details)
    return found + list(selectors(state.labels, details.node_selector))


def no_request(state: ClusterState, details: PodDetails) -> list[str]:
    """What a pod that requests no card may have meant to request."""
    names = [name for profile in state.catalog for name in (profile.resources.memory, profile.resources.whole) if name]
    strange = [name for name in details.resources if "/" in name]
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


def _refused(profile: Profile, pod: PodSeen, refusal: Refusal, details: PodDetails) -> str:
    memory, whole = profile.resources.memory or "", profile.resources.whole or ""
    key, text = _count(profile, details)
    match refusal.reason:
        case Reason.CARD_COUNT_UNREADABLE:
            return f"{key} is {text!r}; it must be {card_counts(profile)}"
        case Reason.CARD_COUNT_LEAVES_REMAINDER:
            units = sum(ask.units for ask in pod.request if ask.kind == profile.name and not ask.whole)
            below = units - units % int(text)
            right = f"{below} and {below + int(text)} do" if below else f"{int(text)} does"
            return f"{key} is {text}, and {memory}: {units} does not divide by {text} equally; {right}"
        case Reason.TOO_MANY_WHOLE_CARDS:
            return f"{whole}: {details.resources.get(whole, '')} is too many; {profile.text(refusal.reason)}"
        case Reason.LARGER_THAN_ANY_SHAPE:
            largest = max(profile.request.shapes, key=lambda shape: shape.mib)
            size = amount(units_of(profile, largest), profile.unit.label(profile.unit.default))
            return f"{memory}: {details.resources.get(memory, '')} is more than the largest slice, {largest.name} with {size}"
        case Reason.AMOUNT_UNREADABLE:
            lines = [f"{name}: {details.resources[name]}" for name in (memory, whole) if name in details.resources]
            return f"{' and '.join(lines)} cannot be read; it must be a whole number of at most {2**31 - 1}"
        case Reason.ENFORCEMENT_UNREADABLE:
            value = details.annotations.get(ENFORCEMENT_ANNOTATION, "")
            return f"annotation {ENFORCEMENT_ANNOTATION} is {value[:64]!r}; it must be required or preferred"
    return profile.text(refusal.reason)


def _count(profile: Profile, details: PodDetails) -> tuple[str, str]:
    """The label or annotation for the number of cards, and its value."""
    label, annotation = profile.request.cards_label, profile.request.cards_annotation
    if label is not None and label in details.labels:
        return f"label {label}", details.labels[label]
    if annotation is not None and annotation in details.annotations:
        return f"annotation {annotation}", details.annotations[annotation]
    return f"annotation {CARD_COUNT_ANNOTATION}", details.annotations.get(CARD_COUNT_ANNOTATION, "1")


def _sizes(state: ClusterState, profile: Profile, ask: Ask) -> Iterator[str]:
    there = list(state.cards(profile.name))
    if not there:
        yield _no_node_has_any(state, profile)
        return
    counts: dict[str, int] = {}
    for node, _ in there:
        counts[node] = counts.get(node, 0) + 1
    most = max(counts, key=lambda node: counts[node])
    if ask.cards > counts[most]:
        yield f"it requests {cards(ask.cards, profile.noun)} on one node; the most that a node has is {counts[most]} ({most})"
    if not ask.whole:
        yield from _share(state, profile, ask, *max(there, key=lambda each: each[1].card.size))


def _limits(state: ClusterState, profile: Profile, ask: Ask, details: PodDetails) -> Iterator[str]:
    if ask.whole:
        return
    large = [(card.card, node) for node, card in state.cards(profile.name) if card.card.size >= ask.share]
    if ask.limits is LimitNeed.REQUIRED and large:
        large = [(card, node) for card, node in large if card.limited]
        if not large:
            where = f"annotation {ENFORCEMENT_ANNOTATION}" if ENFORCEMENT_ANNOTATION in details.annotations else "the default"
            yield f"{where} is required, and nobody enforces memory limits on a {profile.noun} that is large enough"
    if large and all(card.min_units > ask.share for card, _ in large):
        least, node = min((card.min_units, node) for card, node in large)
        enough = amount(least * ask.cards, state.unit(profile, node))
        yield f"{profile.resources.memory}: {ask.units} is too small to run on any {profile.noun}; request at least {enough}"


def _share(state: ClusterState, profile: Profile, ask: Ask, node: str, largest: CardLedger) -> Iterator[str]:
    size = largest.card.size
    memory, unit, mib = profile.resources.memory, state.unit(profile, node), state.unit_mib(profile, node)
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
                f" (the largest has {size}); if you mean {ask.units} {other}, request {asked}"
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
                f" if you mean {ask.units} GiB, request {asked}"
            )


def _no_node_has_any(state: ClusterState, profile: Profile) -> str:
    lines = f"no node of this cluster shows a {profile.noun}"
    if profile.node_label is None:
        return lines
    key, value = profile.node_label
    carriers = [node for node, carried in state.labels.items() if carried.get(key) == value]
    if carriers:
        return f"{lines}; {', '.join(sorted(carriers)[:5])} should, having the label {key}={value}: does the agent run there?"
    near = sorted(node for node, carried in state.labels.items() if key in carried)
    but = f" ({', '.join(near[:5])} has {key} with another value)" if near else ""
    return f"{lines}, and no node carries the label {key}={value} that its agent is placed by{but}"
