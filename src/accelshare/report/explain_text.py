"""An explanation as text.

Belongs here: lines, indentation, which word has a colour. Never: whether there are colours (the caller's `paint`).
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from accelshare.report.explain import Explanation, NodeAnswer
from accelshare.report.tabbed import tabbed

# (text, "good" | "bad" | "title") → the text as it is to be printed.
Paint: TypeAlias = Callable[[str, str], str]


def plain(text: str, _look: str) -> str:
    return text


def text_of(explanation: Explanation, *, paint: Paint = plain, most_nodes: int = 20) -> str:
    """The explanation for a person; of more nodes than that the rest is counted."""
    return "\n".join(_lines(explanation, paint, most_nodes)) + "\n"


def _lines(explanation: Explanation, paint: Paint, most_nodes: int) -> Iterator[str]:
    yield paint(explanation.headline, "title")
    if explanation.scheduler_says:
        yield f"kube-scheduler says: {explanation.scheduler_says}"
    yield from explanation.place
    for mistake in explanation.mistakes:
        yield paint(f"Wrong: {mistake}", "bad")
    if explanation.in_short:
        yield explanation.in_short
    for answer in explanation.nodes[:most_nodes]:
        yield ""
        yield from _node(answer, paint)
    left = len(explanation.nodes) - most_nodes
    if left > 0 or explanation.others:
        yield ""
    if left > 0:
        yield f"… and {left} more nodes (--all-nodes)"
    yield from explanation.others


def _node(answer: NodeAnswer, paint: Paint) -> Iterator[str]:
    yield f"{paint(answer.node, 'title')} {paint(answer.verdict, 'good' if answer.serves else 'bad')}"
    table = tabbed([["", card.name, card.size, card.free, card.pods or "-"] for card in answer.cards]).splitlines()
    for card, line in zip(answer.cards, table, strict=True):
        yield paint(line, "bad") if card.bad else line
    if answer.missing:
        yield f"  missing: {answer.missing}"
    for beside in answer.besides:
        yield f"  keeps it away: {beside}"
    for way in answer.ways:
        yield f"  would help: {way}"
