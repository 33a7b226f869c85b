"""Explains one pod: why it waits, node by node; or which cards it has, and why these. Also as text.

Belongs here: the ledger's answers about one pod, put together. Never: choosing cards (ledger/placing.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from accelshare.ledger.facts import PodSeen
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.node_ledger import CardLedger, NodeLedger
from accelshare.ledger.nouns import Ask, Assignment, LimitNeed, Slice
from accelshare.ledger.placing import Fit, fit, may_serve
from accelshare.ledger.resizing import is_one_slice
from accelshare.report.capacity import free_of, shortfall
from accelshare.report.cluster_state import ClusterState, NodeConstraints, PodDetails, obstacles
from accelshare.report.lines import Paint, plain
from accelshare.report.mistakes import mistakes, no_request
from accelshare.report.tables import tabbed
from accelshare.report.units import amount, cards
from accelshare.report.view import who_enforces
from accelshare.terminal import visible
from accelshare.vendors.profile import NOBODY, Profile
from accelshare.vendors.refusal_texts import ENFORCEMENT_ANNOTATION
from accelshare.wire.resizing import RESIZE

ALTERNATIVES: Final = 5
# What a policy prefers; a policy that is not listed here is only named.
CHOICE: Final = {"binpack": "the tightest card that fits", "spread": "the emptiest card"}


@dataclass(frozen=True, slots=True)
class CardLine:
    """One card as people read it: its name, its size, what is free, the pods on it or its problem, and who enforces shares."""

    name: str
    size: str
    free: str
    pods: str
    bad: bool = False
    enforced: str = ""


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """Whether one node serves the pod. Each of `remedies` alone would be enough for its cards; `obstacles` remain even then."""

    node: str
    serves: bool
    verdict: str
    cards: tuple[CardLine, ...] = ()
    missing: str = ""
    remedies: tuple[str, ...] = ()
    obstacles: tuple[str, ...] = ()
    reason: str = ""  # of its refusal, in a word


@dataclass(frozen=True, slots=True)
class Explanation:
    headline: str
    scheduler_message: str = ""
    limits: tuple[str, ...] = ()  # whether it needs enforced memory limits, and which nodes enforce them
    mistakes: tuple[str, ...] = ()  # in the request: no node can serve it
    in_short: str = ""
    place: tuple[str, ...] = ()  # which cards it has, and why these
    nodes: tuple[NodeAnswer, ...] = ()
    others: tuple[str, ...] = ()  # nodes that are summarized in one line


def explain(state: ClusterState, pod: PodSeen | None, details: PodDetails) -> Explanation:
    """The explanation of this pod. `pod` is what the ledger knows of it; None: it requests no card."""
    name = f"{details.namespace}/{details.name}"
    if pod is None:
        return Explanation(f"{name} requests no card of any vendor.", mistakes=tuple(no_request(state, details)))
    asks = _asks(state, pod) if pod.refusal is None else _written(state, details)
    if pod.ended:
        why = f" ({details.reason})" if details.reason else ""
        return Explanation(f"{name} has ended: {details.phase or 'its phase'}{why}. It requested {asks}, and holds no card now.")
    if pod.node:
        known = state.ledger.pod(pod.uid)
        requested = _asks(state, known.latest) if known is not None and pod.refusal is None else asks
        headline = f"{name} is on node {pod.node}. It requests {requested}."
        return _placed(state, known.seen if known is not None else pod, headline)  # as it counts, perhaps corrected or resized
    return _waiting(state, pod, details, f"{name} is pending. It requests {asks}.")


# Waiting.


def _waiting(state: ClusterState, pod: PodSeen, details: PodDetails, headline: str) -> Explanation:
    wrong = tuple(mistakes(state, pod, details))
    if pod.refusal is not None:
        short = "The request itself is wrong, so no node is considered."
        return Explanation(headline, details.scheduler_message, mistakes=wrong, in_short=short)
    answers: list[tuple[tuple[int, int, str], NodeAnswer]] = []
    without: list[str] = []
    elsewhere: list[str] = []
    for node in state.ledger.nodes():
        if node.fact is None:
            continue
        if any(state.labels.get(node.name, {}).get(key) != value for key, value in details.node_selector.items()):
            elsewhere.append(node.name)
        elif not any(node.cards.get(ask.kind) for ask in pod.request):
            without.append(node.name)
        else:
            answers.append(_answer(state, node, pod, details))
    nodes = tuple(answer for _, answer in sorted(answers, key=lambda each: each[0]))
    nouns = " or ".join(dict.fromkeys(state.catalog[ask.kind].noun for ask in pod.request))
    others = (
        *_together(without, f"without {nouns}"),
        *_together(elsewhere, f"without the labels of its nodeSelector ({_pairs(details)})"),
        *(["Its required node affinity is not evaluated here; see the message of kube-scheduler."] * details.has_affinity),
    )
    return Explanation(
        headline,
        details.scheduler_message,
        tuple(_limits(state, pod, details)),
        wrong,
        _in_short(nodes, wrong),
        nodes=nodes,
        others=others,
    )


def _limits(state: ClusterState, pod: PodSeen, details: PodDetails) -> Iterator[str]:
    """What it needs, and the nodes whose cards have it."""
    where = f"annotation {ENFORCEMENT_ANNOTATION}" if ENFORCEMENT_ANNOTATION in details.annotations else "by default"
    for ask in pod.request:
        if ask.limits is LimitNeed.ANY:
            continue
        noun = state.catalog[ask.kind].noun
        ways: dict[str, dict[str, int]] = {}
        for node, card in state.cards(ask.kind):
            if card.card.limited:
                ways.setdefault(node, {}).setdefault(card.card.way, 0)
                ways[node][card.card.way] += 1
        named = [f"{node} ({', '.join(f'{way} on {cards(count, noun)}' for way, count in ways[node].items())})" for node in ways]
        more = f" and {len(named) - ALTERNATIVES} more" if len(named) > ALTERNATIVES else ""
        nodes = f"nodes that enforce them: {', '.join(named[:ALTERNATIVES])}{more}" if named else "no node enforces them"
        verb = "requires" if ask.limits is LimitNeed.REQUIRED else "prefers"
        yield f"It {verb} enforced memory limits of its {noun} ({where}); {nodes}."


def _answer(state: ClusterState, node: NodeLedger, pod: PodSeen, details: PodDetails) -> tuple[tuple[int, int, str], NodeAnswer]:
    """A node's answer and its place in the list: nodes that serve, nodes with an obstacle, then by how many pods would have to
    leave.
    """
    around = state.constraints.get(node.name, NodeConstraints())
    kept_away_by = tuple(obstacles(around, details.tolerations, pod.needs))
    lines = _lines(state, node, [ask.kind for ask in pod.request])
    answer = fit(node, pod.request, state.ledger.policy)
    if isinstance(answer, Fit):
        names = _slices(state, answer.assignment)
        if kept_away_by:
            return (0, 1, node.name), NodeAnswer(node.name, False, f"has the cards: {names}", lines, obstacles=kept_away_by)
        return (0, 0, node.name), NodeAnswer(node.name, True, f"can serve it: {names}", lines)
    text = state.catalog[answer.kind].text(answer.reason)
    gap = shortfall(state, node, pod, answer)
    order = (1, gap.least, node.name) if gap.least is not None else (2, 0, node.name)
    word = answer.reason.value
    return order, NodeAnswer(node.name, False, f"{text} ({word})", lines, gap.missing, gap.remedies, kept_away_by, word)


def _in_short(nodes: Sequence[NodeAnswer], wrong: Sequence[str]) -> str:
    if nodes and nodes[0].serves:
        return f"Node {nodes[0].node} can serve it now. If it stays pending, the cause is not its request for cards."
    if nodes and not nodes[0].missing and nodes[0].obstacles:
        return f"Node {nodes[0].node} has the cards, but kube-scheduler cannot use it: {nodes[0].obstacles[0]}."
    if wrong:
        return "No node can ever serve this request."
    if nodes and nodes[0].remedies:
        return f"No node serves it now. The least to do: {nodes[0].remedies[0]}, on {nodes[0].node}."
    return "No node serves it now."


def _together(names: Sequence[str], what: str) -> Iterator[str]:
    if names:
        shown = ", ".join(names[:ALTERNATIVES]) + (f" and {len(names) - ALTERNATIVES} more" if len(names) > ALTERNATIVES else "")
        yield f"{len(names)} node{'s' if len(names) > 1 else ''} {what}: {shown}"


def _pairs(details: PodDetails) -> str:
    return ", ".join(f"{key}={value}" for key, value in details.node_selector.items())


# Placed.


def _placed(state: ClusterState, pod: PodSeen, headline: str) -> Explanation:
    node = state.ledger.node(pod.node)
    assert node is not None, "a pod with a node is in that node's ledger"
    lines = [f"problem: {problem}" for problem in pod.problems]
    for ask in node.unplaced.get(pod.uid, ()):
        noun = state.catalog[ask.kind].noun
        lines.append(f"Its {noun} is not known, so it is counted on every {noun} of the node that it could be on.")
    held = [(slice_, card) for slice_ in pod.slices if (card := _card(node, slice_, pod.uid)) is not None]
    for slice_, card in held:
        lines.append(_sits(state, node, card, slice_, pod.uid))
        if not slice_.whole and card.present:
            lines.append(_enforced(state, pod, card))
    lines += _resizes(state, pod)
    if held:
        lines += _why_there(state, pod)
    return Explanation(
        headline,
        place=tuple(lines),
        nodes=(NodeAnswer(node.name, True, "is its node", _lines(state, node, [ask.kind for ask in pod.request])),),
    )


def _resizes(state: ClusterState, pod: PodSeen) -> Iterator[str]:
    """What became of the resize that its owner requested."""
    known, node = state.ledger.pod(pod.uid), state.ledger.node(pod.node)
    applied = node.fact.applied if node is not None and node.fact is not None else None
    if known is None or applied is None or not is_one_slice(pod.request):
        return
    unit = state.unit(state.catalog[pod.request[0].kind], pod.node)
    requested, counted = known.latest.request[0].share, pod.request[0].share
    if counted != requested:
        yield f"It was resized: {amount(counted, unit)} count instead of the {amount(requested, unit)} of its request."
    answered = applied.get(pod.uid)
    if pod.granted is not None and (answered is None or answered.number != pod.granted.number):
        yield f"{amount(pod.granted.units, unit)} are granted, and the agent of its node has not set this limit yet."
    elif pod.resize is not None and pod.resize.units != counted:
        yield f"Its owner wants {pod.resize.text!r} (annotation {RESIZE}), which it did not get; its events say why."


def _card(node: NodeLedger, slice_: Slice, uid: str) -> CardLedger | None:
    return next(
        (
            card
            for card in node.all_cards()
            if uid in card.holders
            and card.card.kind == slice_.kind
            and (card.card.id == slice_.id if slice_.id and card.card.id else card.card.index == slice_.index)
        ),
        None,
    )


def _sits(state: ClusterState, node: NodeLedger, card: CardLedger, slice_: Slice, uid: str) -> str:
    profile = state.catalog[slice_.kind]
    unit = state.unit(profile, node.name)
    what = "the whole of" if slice_.whole else f"{amount(slice_.units, unit)} of"
    id_ = f" (id {card.card.id})" if card.card.id else ""
    others = ", ".join(_holder(state.ledger, other, card, unit) for other in card.holders if other != uid)
    problem = "" if card.card.healthy else "; the card is unhealthy" if card.present else "; the node no longer has this card"
    shared = f", together with {others}" if others else ", alone"
    return f"It has {what} {profile.noun}{card.card.index}{id_}{shared}{problem}."


def _enforced(state: ClusterState, pod: PodSeen, card: CardLedger) -> str:
    profile = state.catalog[card.card.kind]
    line = f"Its memory limit on {profile.noun}{card.card.index} is enforced by {card.card.way or NOBODY}."
    if not_limited := profile.enforcement.not_limited(card.card.way):
        line += f" Not limited even then: {', '.join(not_limited)}."
    required = any(ask.kind == card.card.kind and ask.limits is LimitNeed.REQUIRED for ask in pod.request)
    if required and not card.card.limited:
        line += " It requires an enforced limit: it keeps its card, and a new pod like it would not get this card."
    return line


def _why_there(state: ClusterState, pod: PodSeen) -> Iterator[str]:
    """Where it would be placed now. What was free when it was bound is not recorded."""
    policy = state.ledger.policy
    if any(not ask.whole for ask in pod.request):
        yield f"The policy {policy.name} takes {CHOICE.get(policy.name, 'the best card by its own order')} in the whole cluster."
    if any(ask.limits is LimitNeed.REQUIRED for ask in pod.request):
        yield "Only cards with enforced memory limits are considered."
    elif any(ask.limits is LimitNeed.PREFERRED for ask in pod.request):
        yield "Cards with enforced memory limits come first."
    if any(ask.whole for ask in pod.request):
        yield "Of the empty cards the smallest are allocated whole, so that large cards stay free for large slices."
    ledger = Ledger(policy)
    for fact in state.ledger.facts():
        if not (isinstance(fact, PodSeen) and fact.uid == pod.uid):
            ledger.apply(fact)
    away = {node.name for node in state.ledger.nodes() if node.away and node.name != pod.node}
    places = [
        (place.rank, node.name, place.assignment)
        for node in ledger.nodes()
        if node.fact is not None and node.name not in away and isinstance(place := fit(node, pod.request, policy), Fit)
    ]
    places.sort(key=lambda each: each[:2])
    if not places:
        yield "If it were scheduled again now, no node could serve it."
        return
    best = places[0][2]
    here = best.node == pod.node and {(s.kind, s.index) for s in best.slices} == {(s.kind, s.index) for s in pod.slices}
    shown = "; ".join(f"{node} {_slices(state, assignment, ledger)}" for _, node, assignment in places[:ALTERNATIVES])
    more = f"; and {len(places) - ALTERNATIVES} nodes more" if len(places) > ALTERNATIVES else ""
    same = "it would get the same cards" if here else "it would get other cards, because other pods have started or ended"
    yield f"If it were scheduled again now, {same}. In order of preference: {shown}{more}."
    node = ledger.node(pod.node)
    others = list(_also_here(state, node, pod)) if node is not None and here else []
    if others:
        yield f"On this node {', '.join(others)} would fit as well; among equal cards the lowest index is chosen."


def _also_here(state: ClusterState, node: NodeLedger, pod: PodSeen) -> Iterator[str]:
    """Cards of its own node that would fit as well."""
    taken = {(slice_.kind, slice_.index) for slice_ in pod.slices}
    for ask in pod.request:
        for card in node.cards.get(ask.kind, ()):
            free = free_of(node, card)
            fits = card.empty and card.card.healthy if ask.whole else free >= ask.share and may_serve(card.card, ask)
            if fits and (ask.kind, card.card.index) not in taken:
                left = "" if ask.whole else f" ({free - ask.share} stay free)"
                yield f"{state.catalog[ask.kind].noun}{card.card.index}{left}"


# Text for both.


def _asks(state: ClusterState, pod: PodSeen) -> str:
    return " and ".join(_ask(state, state.catalog[ask.kind], ask, dict(pod.needs)) for ask in pod.request)


def _written(state: ClusterState, details: PodDetails) -> str:
    """A request that cannot be read, as it is written."""
    named = [f"{key}: {value}" for key, value in details.resources.items() if state.catalog.by_resource(key) is not None]
    return " and ".join(named)


def _ask(state: ClusterState, profile: Profile, ask: Ask, needs: Mapping[str, int]) -> str:
    if ask.whole:
        return f"{cards(ask.cards, f'whole {profile.noun}')} ({profile.resources.whole}: {ask.cards})"
    nodes = [node for node, _ in state.cards(ask.kind)]
    unit = state.unit(profile, nodes[0]) if nodes else profile.unit.label(profile.unit.default)
    share = f"{amount(ask.share, unit)} of one {profile.noun}"
    if ask.cards > 1:
        share = f"{amount(ask.share, unit)} of each of {cards(ask.cards, profile.noun)}"
    memory = profile.resources.memory or ""
    requested = needs.get(memory, 0) // 1000 or ask.units
    if requested != ask.units:  # it takes the shape that holds it
        return f"{amount(requested, unit)} and takes {share} ({memory}: {requested})"
    return f"{share} ({memory}: {requested})"


def _lines(state: ClusterState, node: NodeLedger, kinds: Sequence[str]) -> tuple[CardLine, ...]:
    return tuple(_line(state, node, card) for kind in dict.fromkeys(kinds) for card in node.cards.get(kind, ())) + tuple(
        _hidden(state, node, kinds)
    )


def _line(state: ClusterState, node: NodeLedger, card: CardLedger) -> CardLine:
    profile = state.catalog[card.card.kind]
    unit = state.unit(profile, node.name)
    pods = ", ".join(sorted(_holder(state.ledger, uid, card, unit) for uid in card.holders))
    if not card.card.healthy:
        entry = state.inventories.get(node.name, {}).get(profile.name)
        why = next((each.problem for each in entry.cards if each.index == card.card.index and each.problem), "") if entry else ""
        pods = f"unhealthy{f': {why}' if why else ''}{f'; {pods}' if pods else ''}"
    if not card.card.size or profile.resources.memory is None:
        return CardLine(
            f"{profile.noun}{card.card.index}", "1 card", "0 free" if card.holders else "1 free", pods, not card.card.healthy
        )
    return CardLine(
        f"{profile.noun}{card.card.index}",
        amount(card.card.size, unit),
        f"{free_of(node, card)} free",
        pods,
        not card.card.healthy,
        f"enforced by {who_enforces(card)}",
    )


def _hidden(state: ClusterState, node: NodeLedger, kinds: Sequence[str]) -> Iterator[CardLine]:
    for uid, asks in node.unplaced.items():
        found = state.ledger.pod(uid)
        units = sum(ask.units for ask in asks if ask.kind in kinds)
        if found is not None and any(ask.kind in kinds for ask in asks):
            yield CardLine("?", "", "", f"{found.seen.namespace}/{found.seen.name} {units}, card not known")


def _holder(ledger: Ledger, uid: str, card: CardLedger, unit: str) -> str:
    found = ledger.pod(uid)
    name = f"{found.seen.namespace}/{found.seen.name}" if found else uid
    return f"{name} whole" if uid in card.wholes else f"{name} {card.holders[uid]}"


def _slices(state: ClusterState, assignment: Assignment, ledger: Ledger | None = None) -> str:
    """`GPU1 (3 stay free)`."""
    node = (ledger or state.ledger).node(assignment.node)
    assert node is not None, "only known nodes make offers"
    lines = []
    for slice_ in assignment.slices:
        card = next(card for card in node.cards[slice_.kind] if card.card.index == slice_.index)
        left = "whole" if slice_.whole else f"{free_of(node, card) - slice_.units} stay free"
        lines.append(f"{state.catalog[slice_.kind].noun}{slice_.index} ({left})")
    return ", ".join(lines)


def document(explanation: Explanation, details: PodDetails) -> dict[str, Any]:
    """The explanation for programs: the same sentences under their names, and the reason of each node in a word."""
    return {"namespace": details.namespace, "name": details.name, **asdict(explanation)}


def text_of(explanation: Explanation, *, paint: Paint = plain, most_nodes: int = 20) -> str:
    """The explanation as text for people; nodes beyond `most_nodes` are only counted. Each part stays on its own line."""
    return "\n".join(_text_lines(explanation, lambda text, style: paint(visible(text), style), most_nodes)) + "\n"


def _text_lines(explanation: Explanation, paint: Paint, most_nodes: int) -> Iterator[str]:
    yield paint(explanation.headline, "title")
    if explanation.scheduler_message:
        yield visible(f"kube-scheduler: {explanation.scheduler_message}")
    yield from map(visible, explanation.limits)
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
    rows = [["", card.name, card.size, card.free, card.enforced, card.pods or "-"] for card in answer.cards]
    if not any(card.enforced for card in answer.cards):
        rows = [[*row[:4], row[5]] for row in rows]
    table = tabbed(rows).split("\n")[:-1]
    for card, line in zip(answer.cards, table, strict=True):
        yield paint(line, "bad") if card.bad else line
    if answer.missing:
        yield visible(f"  missing: {answer.missing}")
    for obstacle in answer.obstacles:
        yield visible(f"  obstacle: {obstacle}")
    for remedy in answer.remedies:
        yield visible(f"  would help: {remedy}")
