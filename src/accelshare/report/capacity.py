"""What one node lacks to serve a request, and what would help: pods that could leave, or a smaller request.

Belongs here: "what if" questions to the ledger. Never: changing anything in the cluster.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from accelshare.ledger.facts import PodSeen
from accelshare.ledger.node_ledger import CardLedger, NodeLedger
from accelshare.ledger.nouns import Ask, Assignment, LimitNeed, Request
from accelshare.ledger.placing import Fit, UnplacedPods, fit, may_serve
from accelshare.ledger.preemption import victims
from accelshare.ledger.refusals import Reason, Refusal
from accelshare.report.cluster_state import ClusterState
from accelshare.report.units import amount, cards
from accelshare.vendors.profile import Profile
from accelshare.vendors.refusal_texts import ENFORCEMENT_ANNOTATION, count_key
from accelshare.vendors.shapes import units_of

ABOVE_ALL_PRIORITIES: Final = 2**31  # so that every pod is considered, whether or not the scheduler may evict it
NAMED: Final = 6  # pods and places that are listed before "and more"
_ABOUT_SLICES: Final = frozenset({Reason.LIMITS_NOT_ENFORCED, Reason.SMALLER_THAN_MINIMUM})


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What a node lacks; the remedies, each of which is enough; how many pods the first remedy moves."""

    missing: str
    remedies: tuple[str, ...] = ()
    least: int | None = None


def shortfall(state: ClusterState, node: NodeLedger, pod: PodSeen, refusal: Refusal) -> Shortfall:
    """What this node lacks to serve the pod that it refuses."""
    profile = state.catalog[refusal.kind]
    unit = state.unit(profile, node.name)
    if refusal.reason is Reason.DELIVERY_PAUSED:
        why = "its agent is not ready" if node.away else "its agent reports that it cannot deliver cards now"
        return Shortfall(f"{why}; when it is ready again, the node is considered automatically")
    ask = next(ask for ask in pod.request if ask.kind == refusal.kind and not (ask.whole and refusal.reason in _ABOUT_SLICES))
    if refusal.reason is Reason.LIMITS_NOT_ENFORCED:
        return Shortfall(_missing_limits(node, ask, profile), tuple(_without_requirement(state, node, pod.request, ask)))
    if refusal.reason is Reason.SMALLER_THAN_MINIMUM:
        return Shortfall(_minimum(node, ask, profile, unit), tuple(_larger_request(state, node, pod.request, ask, unit)))
    gone = _fewest_pods(state, node, pod)
    remedies = [
        *([_eviction(state, node, pod, gone)] if gone else []),
        *_smaller_requests(state, node, pod.request, ask, profile, unit),
    ]
    others = [each for each in pod.request if each.kind == ask.kind and each is not ask]
    missing = _both(node, [ask, *others], profile, unit) if others else _missing(node, ask, profile, unit)
    return Shortfall(missing, tuple(remedies), len(gone) or None)


def free_of(node: NodeLedger, card: CardLedger) -> int:
    """The largest slice that this card could still serve, if the pods of unknown card are on it as far as they fit."""
    asks = node.unplaced_asks(card.card.kind)
    return card.free_units - (UnplacedPods(asks, [card.free_units]).most_on(card) if asks and card.free_units else 0)


def _missing(node: NodeLedger, ask: Ask, profile: Profile, unit: str) -> str:
    there = node.cards.get(ask.kind, [])
    well = [card for card in there if card.card.healthy]
    if ask.whole:
        empty = sum(card.empty for card in well)
        unknown = ", and pods of unknown card may be on any of them" if node.unplaced_asks(ask.kind) else ""
        return f"{cards(ask.cards, f'empty {profile.noun}')} needed, there {_is(empty)} {empty} of {len(there)}{unknown}"
    free = sorted(((free_of(node, card), -card.card.index) for card in well if may_serve(card.card, ask)), reverse=True)
    if len(free) < ask.cards:
        return f"{cards(ask.cards, f'healthy {profile.noun}')} needed, there {_is(len(free))} {len(free)} of {len(there)}"
    if ask.cards > 1:
        fitting = sum(units >= ask.share for units, _ in free)
        return f"{cards(ask.cards, profile.noun)} with {amount(ask.share, unit)} free needed, {fitting} of {len(there)} have that"
    if profile.request.max_slices_per_card is not None and free[0][0] >= ask.share:
        most = profile.request.max_slices_per_card
        return (
            f"a slice of a card: each {profile.noun} with {amount(ask.share, unit)} free has {most} already, and can have no more"
        )
    most, index = free[0]
    return f"{amount(ask.share - most, unit)} on {profile.noun}{-index}, the card with the most free ({amount(most, unit)} free)"


def _missing_limits(node: NodeLedger, ask: Ask, profile: Profile) -> str:
    there = [card.card for card in node.cards.get(ask.kind, ()) if card.card.size >= ask.share]
    held = sum(card.limited for card in there)
    return f"{cards(ask.cards, profile.noun)} with an enforced memory limit needed, there {_is(held)} {held} of {len(there)}"


def _without_requirement(state: ClusterState, node: NodeLedger, request: Request, ask: Ask) -> Iterator[str]:
    softer = replace(ask, limits=LimitNeed.PREFERRED)
    if isinstance(state.ledger.offer(node.name, _with(request, ask, softer)), Assignment):
        yield f'the annotation {ENFORCEMENT_ANNOTATION}: "preferred"; then nobody enforces the memory limit here'


def _minimum(node: NodeLedger, ask: Ask, profile: Profile, unit: str) -> str:
    small = [card.card for card in node.cards.get(ask.kind, ()) if card.card.min_units > ask.share]
    least = min(small, key=lambda card: (card.min_units, card.index))
    what = f"a slice of at least {amount(least.min_units, unit)} on {profile.noun}{least.index}"
    return f"{what}, whose memory limit is enforced by {least.way}" if least.way else what


def _larger_request(state: ClusterState, node: NodeLedger, request: Request, ask: Ask, unit: str) -> Iterator[str]:
    for share in sorted({card.card.min_units for card in node.cards.get(ask.kind, ()) if card.card.min_units > ask.share}):
        if isinstance(state.ledger.offer(node.name, _with(request, ask, replace(ask, share=share))), Assignment):
            yield _amount_of("request at least", share, ask, unit)
            return


def _with(request: Request, ask: Ask, other: Ask) -> Request:
    """The request with another ask in place of this one."""
    return tuple(other if each is ask else each for each in request)


def _amount_of(what: str, share: int, ask: Ask, unit: str) -> str:
    return f"{what} {amount(share * ask.cards, unit)}" + (f" ({amount(share, unit)} a card)" if ask.cards > 1 else "")


def _both(node: NodeLedger, asks: list[Ask], profile: Profile, unit: str) -> str:
    """For a pod that requests slices and whole cards of one vendor: they come from different cards."""
    wants = [
        cards(ask.cards, f"empty {profile.noun}")
        if ask.whole
        else f"{cards(ask.cards, profile.noun)} with {amount(ask.share, unit)}"
        for ask in asks
    ]
    well = [card for card in node.cards.get(asks[0].kind, ()) if card.card.healthy]
    empty = sum(card.empty for card in well)
    there = f"there {_is(len(well))} {cards(len(well), profile.noun)}, {empty} of them empty"
    return f"{' and also '.join(wants)} needed, {there}"


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _fewest_pods(state: ClusterState, node: NodeLedger, pod: PodSeen) -> list[PodSeen]:
    """The pods that would have to leave: the least important and smallest if one is enough, else the least harmful set."""
    here = [found.seen for uid in node.pods if (found := state.ledger.pod(uid)) is not None]
    alone = [seen for seen in here if isinstance(fit(node.without({seen.uid}), pod.request, state.ledger.policy), Fit)]
    if alone:
        return [min(alone, key=lambda seen: (seen.priority, sum(ask.units for ask in seen.request), seen.namespace, seen.name))]
    chosen = set(victims(state.ledger, node.name, pod.request, priority=ABOVE_ALL_PRIORITIES, proposed=()) or ())
    return [seen for seen in here if seen.uid in chosen]


def _eviction(state: ClusterState, node: NodeLedger, pod: PodSeen, leaving: list[PodSeen]) -> str:
    """Which pods would have to end or move, and where they could move to."""
    places = _places(state, node, pod, leaving)
    more = f" and {len(leaving) - NAMED} more" if len(leaving) > NAMED else ""
    who = ", ".join(_pod(state, node, seen) for seen in leaving[:NAMED]) + more
    where = f" to {', '.join(dict.fromkeys(places))}" if all(places) else ""
    if all(seen.priority < pod.priority for seen in leaving):
        where += "; of lower priority, so kube-scheduler may evict"
    return f"{'move' if all(places) else 'end'} {who}{where}"


def _places(state: ClusterState, node: NodeLedger, pod: PodSeen, leaving: list[PodSeen]) -> list[str]:
    """Where each of them could go once the pod has their cards: another card of this node, another node, or nowhere ("")."""
    policy = state.ledger.policy
    after = node.without({seen.uid for seen in leaving})
    served = fit(after, pod.request, policy)
    if isinstance(served, Fit):
        after.add_pod(pod.uid, pod.request, served.assignment.slices)
    places = []
    for seen in leaving:
        here = fit(after, seen.request, policy)
        if isinstance(here, Fit):
            after.add_pod(seen.uid, seen.request, here.assignment.slices)
            nouns = [f"{state.catalog[slice_.kind].noun}{slice_.index}" for slice_ in here.assignment.slices]
            places.append(f"{' and '.join(nouns)} of the same node")
        else:
            others = state.ledger.known_nodes.keys() - {node.name}
            places.append(next(iter(state.ledger.ranking(seen.request).best(others, 1)), ""))
    return places


def _pod(state: ClusterState, node: NodeLedger, seen: PodSeen) -> str:
    asks = [
        cards(ask.cards, "whole card") if ask.whole else amount(ask.units, state.unit(state.catalog[ask.kind], node.name))
        for ask in seen.request
    ]
    return f"{seen.namespace}/{seen.name} ({', '.join(asks)})"


def _smaller_requests(
    state: ClusterState, node: NodeLedger, request: Request, ask: Ask, profile: Profile, unit: str
) -> Iterator[str]:
    def served(other: Ask) -> bool:
        return isinstance(state.ledger.offer(node.name, _with(request, ask, other)), Assignment)

    if ask.whole:
        fewer = next((count for count in range(ask.cards - 1, 0, -1) if served(replace(ask, cards=count))), 0)
        if fewer:
            yield f"request {cards(fewer, profile.noun)}"
        return
    # The largest share that is served fills one of the cards. A smaller one need not be served, because cards have minima.
    free = {free_of(node, card) for card in node.cards.get(ask.kind, ())}
    shares = (share for share in sorted(free, reverse=True) if 0 < share < ask.share)
    largest = next((share for share in shares if served(replace(ask, share=share))), 0)
    if profile.request.shapes:  # a smaller request helps only if its shape is smaller
        units = [units_of(profile, shape) for shape in profile.request.shapes]
        largest = max((each for each in units if each <= largest), default=0)
    if largest:
        yield _amount_of("request at most", largest, ask, unit)
    if sum(each.kind == ask.kind for each in request) == 1:
        yield from _parts(node, ask, profile, unit, served=served)


def _parts(node: NodeLedger, ask: Ask, profile: Profile, unit: str, *, served: Callable[[Ask], bool]) -> Iterator[str]:
    """Free capacity that is enough in total, but spread over several cards."""
    any_limits = ask.limits is not LimitNeed.REQUIRED
    there = [card for card in node.cards.get(ask.kind, ()) if card.card.healthy and (any_limits or card.card.limited)]
    free = [free_of(node, card) for card in there]
    if sum(free) < ask.units:
        return
    more = range(ask.cards + 1, len(free) + 1)
    even = (count for count in more if not ask.units % count and count <= profile.request.max_cards)
    spread = next((count for count in even if served(replace(ask, cards=count, share=ask.units // count))), 0)
    some = [units for units in sorted(free, reverse=True) if units]
    parts = "+".join([*map(str, some[:NAMED]), *(["…"] if len(some) > NAMED else [])])
    key = count_key(profile)
    if spread:
        yield (
            f'{amount(sum(free), unit)} are free here in parts ({parts}): take it from {spread} cards with the {key}: "{spread}"'
        )
    else:
        yield f"{amount(sum(free), unit)} are free here, but in parts ({parts})"
