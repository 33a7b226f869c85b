"""What is missing on one node for a request, and what would make room there.

Belongs here: asking the ledger "what if": fewer pods, a smaller request, more cards. Never: doing any of it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from accelshare.ledger.facts import PodSeen
from accelshare.ledger.node_ledger import CardLedger, NodeLedger
from accelshare.ledger.nouns import Ask, Assignment, Request
from accelshare.ledger.placing import Fit, Hidden, fit
from accelshare.ledger.preemption import victims
from accelshare.ledger.refusals import Reason, Refusal
from accelshare.report.cluster_state import World
from accelshare.report.units import amount, cards
from accelshare.vendors.profile import Profile
from accelshare.vendors.refusal_texts import CARD_COUNT_ANNOTATION

ANYBODY: Final = 2**31  # above every priority: who would have to go, whether or not the scheduler may evict them
NAMED: Final = 6  # pods and places that are named before "and more"


@dataclass(frozen=True, slots=True)
class Room:
    """How far a node is from serving, in words; the ways, each of which alone would do; how many pods the first one moves."""

    missing: str
    ways: tuple[str, ...] = ()
    least: int | None = None


def room(world: World, book: NodeLedger, pod: PodSeen, refusal: Refusal) -> Room:
    """How this node could come to serve the pod it refuses."""
    profile = world.catalog[refusal.kind]
    unit = world.unit(profile, book.name)
    if refusal.reason is Reason.DELIVERY_PAUSED:
        who = "its agent is not ready" if book.away else "its agent says that it cannot hand out cards now"
        return Room(f"{who}; once it is back the node is asked again by itself")
    ask = next(ask for ask in pod.request if ask.kind == refusal.kind)
    gone = _fewest(world, book, pod)
    ways = [*([_leave(world, book, pod, gone)] if gone else []), *_smaller(world, book, pod.request, ask, profile, unit)]
    beside = [each for each in pod.request if each.kind == ask.kind and each is not ask]
    missing = _both(book, [ask, *beside], profile, unit) if beside else _missing(book, ask, profile, unit)
    return Room(missing, tuple(ways), len(gone) or None)


def free_of(book: NodeLedger, card: CardLedger) -> int:
    """What a new slice could have of this card, pods of unknown card counted where they hurt most."""
    hidden = book.could_hide(card.card.kind)
    return card.room - Hidden(hidden, card.room).at_worst(card) if hidden and card.room else card.room


def _missing(book: NodeLedger, ask: Ask, profile: Profile, unit: str) -> str:
    there = book.cards.get(ask.kind, [])
    well = [card for card in there if card.card.healthy]
    if ask.whole:
        empty = sum(card.empty for card in well)
        hidden = ", and pods of unknown card may be on any of them" if book.could_hide(ask.kind) else ""
        return f"{cards(ask.cards, f'empty {profile.noun}')} needed, there {_is(empty)} {empty} of {len(there)}{hidden}"
    rooms = sorted(((free_of(book, card), -card.card.index) for card in well), reverse=True)
    if len(rooms) < ask.cards:
        return f"{cards(ask.cards, f'healthy {profile.noun}')} needed, there {_is(len(rooms))} {len(rooms)} of {len(there)}"
    if ask.cards > 1:
        fitting = sum(free >= ask.share for free, _ in rooms)
        return f"{cards(ask.cards, profile.noun)} with {amount(ask.share, unit)} free needed, {fitting} of {len(there)} have that"
    free, index = rooms[0]
    return f"{amount(ask.share - free, unit)} on {profile.noun}{-index}, the roomiest card ({amount(free, unit)} free)"


def _both(book: NodeLedger, asks: list[Ask], profile: Profile, unit: str) -> str:
    """A pod that asks for slices and for whole cards of one vendor gets them from different cards."""
    wants = [
        cards(ask.cards, f"empty {profile.noun}")
        if ask.whole
        else f"{cards(ask.cards, profile.noun)} with {amount(ask.share, unit)}"
        for ask in asks
    ]
    well = [card for card in book.cards.get(asks[0].kind, ()) if card.card.healthy]
    empty = sum(card.empty for card in well)
    there = f"there {_is(len(well))} {cards(len(well), profile.noun)}, {empty} of them empty"
    return f"{' and beside that '.join(wants)} needed, {there}"


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _fewest(world: World, book: NodeLedger, pod: PodSeen) -> list[PodSeen]:
    """The pods that would have to leave: if one is enough the least important and smallest such, else the least harmful set."""
    here = [found.seen for uid in book.pods if (found := world.ledger.pod(uid)) is not None]
    alone = [seen for seen in here if isinstance(fit(book.without({seen.uid}), pod.request, world.ledger.policy), Fit)]
    if alone:
        return [min(alone, key=lambda seen: (seen.priority, sum(ask.units for ask in seen.request), seen.namespace, seen.name))]
    chosen = set(victims(world.ledger, book.name, pod.request, priority=ANYBODY, proposed=()) or ())
    return [seen for seen in here if seen.uid in chosen]


def _leave(world: World, book: NodeLedger, pod: PodSeen, leaving: list[PodSeen]) -> str:
    """Which pods would have to end or move, and where they could go."""
    places = _places(world, book, pod, leaving)
    more = f" and {len(leaving) - NAMED} more" if len(leaving) > NAMED else ""
    who = ", ".join(_pod(world, book, seen) for seen in leaving[:NAMED]) + more
    where = f" to {', '.join(dict.fromkeys(places))}" if all(places) else ""
    if all(seen.priority < pod.priority for seen in leaving):
        where += "; of lower priority, so kube-scheduler may evict"
    return f"{'move' if all(places) else 'end'} {who}{where}"


def _places(world: World, book: NodeLedger, pod: PodSeen, leaving: list[PodSeen]) -> list[str]:
    """Where each of them would find room once the pod has theirs: another card of this node, another node, or nowhere ("")."""
    policy = world.ledger.policy
    after = book.without({seen.uid for seen in leaving})
    served = fit(after, pod.request, policy)
    if isinstance(served, Fit):
        after.book(pod.uid, pod.request, served.assignment.slices)
    places = []
    for seen in leaving:
        here = fit(after, seen.request, policy)
        if isinstance(here, Fit):
            after.book(seen.uid, seen.request, here.assignment.slices)
            nouns = [f"{world.catalog[slice_.kind].noun}{slice_.index}" for slice_ in here.assignment.slices]
            places.append(f"{' and '.join(nouns)} of the same node")
        else:
            others = world.ledger.known_nodes.keys() - {book.name}
            places.append(next(iter(world.ledger.ranking(seen.request).best(others, 1)), ""))
    return places


def _pod(world: World, book: NodeLedger, seen: PodSeen) -> str:
    asks = [
        cards(ask.cards, "whole card") if ask.whole else amount(ask.units, world.unit(world.catalog[ask.kind], book.name))
        for ask in seen.request
    ]
    return f"{seen.namespace}/{seen.name} ({', '.join(asks)})"


def _smaller(world: World, book: NodeLedger, request: Request, ask: Ask, profile: Profile, unit: str) -> Iterator[str]:
    def served(other: Ask) -> bool:
        return isinstance(world.ledger.offer(book.name, tuple(other if each is ask else each for each in request)), Assignment)

    if ask.whole:
        fewer = next((count for count in range(ask.cards - 1, 0, -1) if served(replace(ask, cards=count))), 0)
        if fewer:
            yield f"ask for {cards(fewer, profile.noun)}"
        return
    low, high = 0, ask.share - 1  # the largest share that is served, by halving: what is served is served smaller too
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if served(replace(ask, share=middle)) else (low, middle - 1)
    if low:
        yield f"ask for at most {amount(low * ask.cards, unit)}" + (f" ({amount(low, unit)} a card)" if ask.cards > 1 else "")
    if sum(each.kind == ask.kind for each in request) == 1:
        yield from _parts(book, ask, profile, unit, served=served)


def _parts(book: NodeLedger, ask: Ask, profile: Profile, unit: str, *, served: Callable[[Ask], bool]) -> Iterator[str]:
    """Room that is there, but in parts."""
    rooms = [free_of(book, card) for card in book.cards.get(ask.kind, ()) if card.card.healthy]
    if sum(rooms) < ask.units:
        return
    more = range(ask.cards + 1, len(rooms) + 1)
    even = (count for count in more if not ask.units % count and count <= profile.request.max_cards)
    spread = next((count for count in even if served(replace(ask, cards=count, share=ask.units // count))), 0)
    parts = "+".join(str(free) for free in sorted(rooms, reverse=True)[:NAMED] if free)
    label = profile.request.cards_label
    key = f"label {label}" if label else f"annotation {CARD_COUNT_ANNOTATION}"
    if spread:
        yield (
            f'{amount(sum(rooms), unit)} are free here in parts ({parts}): take it from {spread} cards with the {key}: "{spread}"'
        )
    else:
        yield f"{amount(sum(rooms), unit)} are free here, but in parts ({parts})"
