"""Why a pod waits, node by node; or where it sits, and why there.

Belongs here: putting together what the ledger answers about one pod. Never: choosing cards (ledger/placing.py), colours.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from accelshare.ledger.facts import PodSeen
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.node_ledger import CardLedger, NodeLedger
from accelshare.ledger.nouns import Ask, Assignment, Slice
from accelshare.ledger.placing import Fit, fit
from accelshare.report.capacity import free_of, room
from accelshare.report.cluster_state import Asking, Surroundings, World, keeps_away
from accelshare.report.mistakes import mistakes, nothing_asked
from accelshare.report.tables import tabbed
from accelshare.report.units import amount, cards
from accelshare.terminal import visible
from accelshare.vendors.profile import Profile

ALTERNATIVES: Final = 5
# How a policy says what it likes about a place; one that is not here is only named.
LIKES: Final = {"binpack": "the tightest card that fits", "spread": "the emptiest card"}


@dataclass(frozen=True, slots=True)
class CardLine:
    """One card for people: its name, its size, what is free, who is on it, and what else there is to say."""

    name: str
    size: str
    free: str
    pods: str
    bad: bool = False


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What one node says to the pod. `ways`: each alone would make its cards serve. `besides`: what keeps it away even so."""

    node: str
    serves: bool
    verdict: str
    cards: tuple[CardLine, ...] = ()
    missing: str = ""
    ways: tuple[str, ...] = ()
    besides: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    headline: str
    scheduler_says: str = ""
    mistakes: tuple[str, ...] = ()  # of the request: no node can make them right
    in_short: str = ""
    place: tuple[str, ...] = ()  # where it sits, and why there
    nodes: tuple[NodeAnswer, ...] = ()
    others: tuple[str, ...] = ()  # nodes that are told together


def explain(world: World, pod: PodSeen | None, asking: Asking) -> Explanation:
    """Everything there is to say about this pod. `pod` is what the book read of it; None: it asks for no card."""
    name = f"{asking.namespace}/{asking.name}"
    if pod is None:
        return Explanation(f"{name} asks for no card of any vendor.", mistakes=tuple(nothing_asked(world, asking)))
    asks = _asks(world, pod) if pod.refusal is None else _written(world, asking)
    if pod.ended:
        why = f" ({asking.reason})" if asking.reason else ""
        return Explanation(f"{name} has ended: {asking.phase or 'its phase'}{why}. It asked for {asks}, and holds nothing now.")
    if pod.node:
        return _placed(world, pod, f"{name} is on node {pod.node}. It asks for {asks}.")
    return _waiting(world, pod, asking, f"{name} waits. It asks for {asks}.")


# Waiting.


def _waiting(world: World, pod: PodSeen, asking: Asking, headline: str) -> Explanation:
    wrong = tuple(mistakes(world, pod, asking))
    if pod.refusal is not None:
        short = "The request itself is wrong, so no node is asked."
        return Explanation(headline, asking.scheduler_says, wrong, short)
    answers: list[tuple[tuple[int, int, str], NodeAnswer]] = []
    without: list[str] = []
    elsewhere: list[str] = []
    for book in world.ledger.nodes():
        if book.fact is None:
            continue
        if any(world.labels.get(book.name, {}).get(key) != value for key, value in asking.node_selector.items()):
            elsewhere.append(book.name)
        elif not any(book.cards.get(ask.kind) for ask in pod.request):
            without.append(book.name)
        else:
            answers.append(_answer(world, book, pod, asking))
    nodes = tuple(answer for _, answer in sorted(answers, key=lambda each: each[0]))
    nouns = " or ".join(dict.fromkeys(world.catalog[ask.kind].noun for ask in pod.request))
    others = (
        *_together(without, f"without {nouns}"),
        *_together(elsewhere, f"without the labels of its nodeSelector ({_pairs(asking)})"),
        *(["Its required node affinity is not looked at here; kube-scheduler says what it makes of it."] * asking.has_affinity),
    )
    return Explanation(headline, asking.scheduler_says, wrong, _in_short(nodes, wrong), nodes=nodes, others=others)


def _answer(world: World, book: NodeLedger, pod: PodSeen, asking: Asking) -> tuple[tuple[int, int, str], NodeAnswer]:
    """What a node says, and its place in the list: nodes that serve, those that something else keeps the pod from, then those
    that fewest pods would have to leave.
    """
    around = world.surroundings.get(book.name, Surroundings())
    besides = tuple(keeps_away(around, asking.tolerations, pod.needs))
    lines = _lines(world, book, [ask.kind for ask in pod.request])
    answer = fit(book, pod.request, world.ledger.policy)
    if isinstance(answer, Fit):
        names = _slices(world, answer.assignment)
        if besides:
            return (0, 1, book.name), NodeAnswer(book.name, False, f"has the cards: {names}", lines, besides=besides)
        return (0, 0, book.name), NodeAnswer(book.name, True, f"would take it: {names}", lines)
    text = world.catalog[answer.kind].text(answer.reason)
    made = room(world, book, pod, answer)
    order = (1, made.least, book.name) if made.least is not None else (2, 0, book.name)
    return order, NodeAnswer(book.name, False, f"{text} ({answer.reason.value})", lines, made.missing, made.ways, besides)


def _in_short(nodes: Sequence[NodeAnswer], wrong: Sequence[str]) -> str:
    if nodes and nodes[0].serves:
        return f"Node {nodes[0].node} would take it now. If it still waits, it waits for something other than cards."
    if nodes and not nodes[0].missing and nodes[0].besides:
        return f"Node {nodes[0].node} has the cards, but kube-scheduler keeps the pod away: {nodes[0].besides[0]}."
    if wrong:
        return "As it stands, no node can ever serve it."
    if nodes and nodes[0].ways:
        return f"No node serves it now. The least to do: {nodes[0].ways[0]}, on {nodes[0].node}."
    return "No node serves it now."


def _together(names: Sequence[str], what: str) -> Iterator[str]:
    if names:
        shown = ", ".join(names[:ALTERNATIVES]) + (f" and {len(names) - ALTERNATIVES} more" if len(names) > ALTERNATIVES else "")
        yield f"{len(names)} node{'s' if len(names) > 1 else ''} {what}: {shown}"


def _pairs(asking: Asking) -> str:
    return ", ".join(f"{key}={value}" for key, value in asking.node_selector.items())


# Placed.


def _placed(world: World, pod: PodSeen, headline: str) -> Explanation:
    book = world.ledger.node(pod.node)
    assert book is not None, "a pod with a node is booked there"
    said = [f"problem: {problem}" for problem in pod.problems]
    for ask in book.unplaced.get(pod.uid, ()):
        noun = world.catalog[ask.kind].noun
        said.append(f"Nobody has said which {noun} it has, so it is counted on every {noun} of the node that could be it.")
    held = [(slice_, card) for slice_ in pod.slices if (card := _card(book, slice_, pod.uid)) is not None]
    for slice_, card in held:
        said.append(_sits(world, book, card, slice_, pod.uid))
    if held:
        said += _why_there(world, pod)
    return Explanation(
        headline,
        place=tuple(said),
        nodes=(NodeAnswer(book.name, True, "is where it sits", _lines(world, book, [ask.kind for ask in pod.request])),),
    )


def _card(book: NodeLedger, slice_: Slice, uid: str) -> CardLedger | None:
    return next(
        (
            card
            for card in book.all_cards()
            if uid in card.holders
            and card.card.kind == slice_.kind
            and (card.card.id == slice_.id if slice_.id and card.card.id else card.card.index == slice_.index)
        ),
        None,
    )


def _sits(world: World, book: NodeLedger, card: CardLedger, slice_: Slice, uid: str) -> str:
    profile = world.catalog[slice_.kind]
    unit = world.unit(profile, book.name)
    what = "the whole of" if slice_.whole else f"{amount(slice_.units, unit)} of"
    id_ = f" (id {card.card.id})" if card.card.id else ""
    beside = ", ".join(_holder(world.ledger, other, card, unit) for other in card.holders if other != uid)
    state = "" if card.card.healthy else "; the card is unhealthy" if card.present else "; the node no longer has this card"
    with_ = f", beside {beside}" if beside else ", alone"
    return f"It has {what} {profile.noun}{card.card.index}{id_}{with_}{state}."


def _why_there(world: World, pod: PodSeen) -> Iterator[str]:
    """The places it could have if it were asked again now: derived, because nobody wrote down what was free back then."""
    policy = world.ledger.policy
    if any(not ask.whole for ask in pod.request):
        yield f"The policy {policy.name} takes {LIKES.get(policy.name, 'the best card by its own order')} in the whole cluster."
    if any(ask.whole for ask in pod.request):
        yield "Of empty cards the smallest are given out whole, so that large ones stay for large slices."
    ledger = Ledger(policy)
    for fact in world.ledger.facts():
        if not (isinstance(fact, PodSeen) and fact.uid == pod.uid):
            ledger.apply(fact)
    away = {book.name for book in world.ledger.nodes() if book.away and book.name != pod.node}
    places = [
        (place.rank, book.name, place.assignment)
        for book in ledger.nodes()
        if book.fact is not None and book.name not in away and isinstance(place := fit(book, pod.request, policy), Fit)
    ]
    places.sort(key=lambda each: each[:2])
    if not places:
        yield "Asked again now, no node would take it: what it holds is more than a new pod would be given."
        return
    best = places[0][2]
    here = best.node == pod.node and {(s.kind, s.index) for s in best.slices} == {(s.kind, s.index) for s in pod.slices}
    shown = "; ".join(f"{node} {_slices(world, assignment, ledger)}" for _, node, assignment in places[:ALTERNATIVES])
    more = f"; and {len(places) - ALTERNATIVES} nodes more" if len(places) > ALTERNATIVES else ""
    same = "it would be put there again" if here else "it would be put elsewhere, since pods have come and gone"
    yield f"Asked again now, {same}. In order of liking: {shown}{more}."
    book = ledger.node(pod.node)
    others = list(_also_here(world, book, pod)) if book is not None and here else []
    if others:
        yield f"On this node there would also be {', '.join(others)}; among equals the lowest index is taken."


def _also_here(world: World, book: NodeLedger, pod: PodSeen) -> Iterator[str]:
    """Cards of its own node that would fit as well."""
    taken = {(slice_.kind, slice_.index) for slice_ in pod.slices}
    for ask in pod.request:
        for card in book.cards.get(ask.kind, ()):
            free = free_of(book, card)
            fits = card.empty and card.card.healthy if ask.whole else free >= ask.share
            if fits and (ask.kind, card.card.index) not in taken:
                left = "" if ask.whole else f" ({free - ask.share} stay free)"
                yield f"{world.catalog[ask.kind].noun}{card.card.index}{left}"


# Words that both use.


def _asks(world: World, pod: PodSeen) -> str:
    return " and ".join(_ask(world, world.catalog[ask.kind], ask) for ask in pod.request)


def _written(world: World, asking: Asking) -> str:
    """A request that cannot be read, as it stands there."""
    named = [f"{key}: {value}" for key, value in asking.resources.items() if world.catalog.by_resource(key) is not None]
    return " and ".join(named)


def _ask(world: World, profile: Profile, ask: Ask) -> str:
    if ask.whole:
        return f"{cards(ask.cards, f'whole {profile.noun}')} ({profile.resources.whole}: {ask.cards})"
    nodes = [node for node, _ in world.cards(ask.kind)]
    unit = world.unit(profile, nodes[0]) if nodes else profile.unit.label(profile.unit.default)
    share = f"{amount(ask.share, unit)} of one {profile.noun}"
    if ask.cards > 1:
        share = f"{amount(ask.share, unit)} of each of {cards(ask.cards, profile.noun)}"
    return f"{share} ({profile.resources.memory}: {ask.units})"


def _lines(world: World, book: NodeLedger, kinds: Sequence[str]) -> tuple[CardLine, ...]:
    return tuple(_line(world, book, card) for kind in dict.fromkeys(kinds) for card in book.cards.get(kind, ())) + tuple(
        _hidden(world, book, kinds)
    )


def _line(world: World, book: NodeLedger, card: CardLedger) -> CardLine:
    profile = world.catalog[card.card.kind]
    unit = world.unit(profile, book.name)
    pods = ", ".join(_holder(world.ledger, uid, card, unit) for uid in sorted(card.holders))
    if not card.card.healthy:
        entry = world.told.get(book.name, {}).get(profile.name)
        why = next((each.problem for each in entry.cards if each.index == card.card.index and each.problem), "") if entry else ""
        pods = f"unhealthy{f': {why}' if why else ''}{f'; {pods}' if pods else ''}"
    if not card.card.size or profile.resources.memory is None:
        return CardLine(
            f"{profile.noun}{card.card.index}", "1 card", "0 free" if card.holders else "1 free", pods, not card.card.healthy
        )
    free = free_of(book, card)
    return CardLine(f"{profile.noun}{card.card.index}", amount(card.card.size, unit), f"{free} free", pods, not card.card.healthy)


def _hidden(world: World, book: NodeLedger, kinds: Sequence[str]) -> Iterator[CardLine]:
    for uid, asks in book.unplaced.items():
        found = world.ledger.pod(uid)
        units = sum(ask.units for ask in asks if ask.kind in kinds)
        if found is not None and any(ask.kind in kinds for ask in asks):
            yield CardLine("?", "", "", f"{found.seen.namespace}/{found.seen.name} {units}, nobody has said on which card")


def _holder(ledger: Ledger, uid: str, card: CardLedger, unit: str) -> str:
    found = ledger.pod(uid)
    name = f"{found.seen.namespace}/{found.seen.name}" if found else uid
    return f"{name} whole" if uid in card.wholes else f"{name} {card.holders[uid]}"


def _slices(world: World, assignment: Assignment, ledger: Ledger | None = None) -> str:
    """`GPU1 (3 stay free)`."""
    book = (ledger or world.ledger).node(assignment.node)
    assert book is not None, "an offer is a known node's"
    said = []
    for slice_ in assignment.slices:
        card = next(card for card in book.cards[slice_.kind] if card.card.index == slice_.index)
        left = "whole" if slice_.whole else f"{free_of(book, card) - slice_.units} stay free"
        said.append(f"{world.catalog[slice_.kind].noun}{slice_.index} ({left})")
    return ", ".join(said)


# (text, "good" | "bad" | "title") → the text as it is to be printed.
Paint: TypeAlias = Callable[[str, str], str]


def plain(text: str, _look: str) -> str:
    return text


def text_of(explanation: Explanation, *, paint: Paint = plain, most_nodes: int = 20) -> str:
    """The explanation for a person; of more nodes than that the rest is counted. Each part of it stays on its line."""
    return "\n".join(_text_lines(explanation, lambda text, look: paint(visible(text), look), most_nodes)) + "\n"


def _text_lines(explanation: Explanation, paint: Paint, most_nodes: int) -> Iterator[str]:
    yield paint(explanation.headline, "title")
    if explanation.scheduler_says:
        yield visible(f"kube-scheduler says: {explanation.scheduler_says}")
    yield from map(visible, explanation.place)
    for mistake in explanation.mistakes:
        yield paint(f"Wrong: {mistake}", "bad")
    if explanation.in_short:
        yield visible(explanation.in_short)
    for answer in explanation.nodes[:most_nodes]:
        yield ""
        yield from _node_lines(answer, paint)
    left = len(explanation.nodes) - most_nodes
    if left > 0 or explanation.others:
        yield ""
    if left > 0:
        yield f"… and {left} more nodes (--all-nodes)"
    yield from map(visible, explanation.others)


def _node_lines(answer: NodeAnswer, paint: Paint) -> Iterator[str]:
    yield f"{paint(answer.node, 'title')} {paint(answer.verdict, 'good' if answer.serves else 'bad')}"
    table = tabbed([["", card.name, card.size, card.free, card.pods or "-"] for card in answer.cards]).split("\n")[:-1]
    for card, line in zip(answer.cards, table, strict=True):
        yield paint(line, "bad") if card.bad else line
    if answer.missing:
        yield visible(f"  missing: {answer.missing}")
    for beside in answer.besides:
        yield visible(f"  keeps it away: {beside}")
    for way in answer.ways:
        yield visible(f"  would help: {way}")
