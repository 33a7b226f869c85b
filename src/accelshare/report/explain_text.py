"""An explanation as text.

Belongs here: lines, indentation, which word has a colour. Never: whether there are colours (the caller's `paint`).
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from accelshare.report.explain import Explanation, NodeAnswer
from accelshare.report.tabbed import tabbed
from accelshare.terminal import visible

# (text, "good" | "bad" | "title") → the text as it is to be printed.
Paint: TypeAlias = Callable[[str, str], str]


def plain(text: str, _look: str) -> str:
    return text


def text_of(explanation: Explanation, *, paint: Paint = plain, most_nodes: int = 20) -> str:
    """The explanation for a person; of more nodes than that the rest is counted. Each part of it stays on its line."""
    return "\n".join(_lines(explanation, lambda text, look: paint(visible(text), look), most_nodes)) + "\n"


def _lines(explanation: Explanation, paint: Paint, most_nodes: int) -> Iterator[str]:
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
        yield from _node(answer, paint)
    left = len(explanation.nodes) - most_nodes
    if left > 0 or explanation.others:
        yield ""
    if left > 0:
        yield f"… and {left} more nodes (--all-nodes)"
    yield from map(visible, explanation.others)


def _node(answer: NodeAnswer, paint: Paint) -> Iterator[str]:
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
