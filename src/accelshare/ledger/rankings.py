"""Cached rankings: for each request, the nodes that can serve it in the policy's order, and why the others cannot.

Belongs here: the cache. A request over thousands of nodes evaluates only the nodes that changed since the same request was last
asked. Never: the answers themselves (placing.py). Dropping the cache changes no answer.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from itertools import chain, islice
from typing import Final

from accelshare.ledger.nouns import Request
from accelshare.ledger.placing import Fit, Rank
from accelshare.ledger.refusals import Refusal

CHANGES_REMEMBERED: Final = 8192
# To all requests together, some 140 bytes each: 102 requests on 5,000 nodes take 72 MB. Evaluating 5,000 nodes takes 70 ms.
ANSWERS_REMEMBERED: Final = 512_000
FEWEST_REQUESTS: Final = 32
MOST_REQUESTS: Final = 1_024


class Ranking:
    """The answers of every node to one request: the fitting ones in order, the refused ones with their reason."""

    __slots__ = ("_order", "_ranks", "_refused", "refused")

    def __init__(self) -> None:
        self._ranks: dict[str, Rank] = {}
        self._order: list[tuple[Rank, str]] = []
        self._refused: dict[str, Refusal] = {}
        self.refused: dict[Refusal, set[str]] = {}  # the same by reason: there are few reasons and many nodes

    def put(self, node: str, answer: Fit | Refusal | None) -> None:
        """Replace what is known of one node; None forgets it."""
        before = self._ranks.pop(node, None)
        if before is not None:
            del self._order[bisect_left(self._order, (before, node))]
        refusal = self._refused.pop(node, None)
        if refusal is not None:
            self.refused[refusal].discard(node)
        if isinstance(answer, Fit):
            self._ranks[node] = answer.rank
            insort(self._order, (answer.rank, node))
        elif answer is not None:
            self._refused[node] = answer
            self.refused.setdefault(answer, set()).add(node)

    def put_all(self, answers: Mapping[str, Fit | Refusal]) -> None:
        """Fill an empty ranking at once."""
        self._ranks = {node: answer.rank for node, answer in answers.items() if isinstance(answer, Fit)}
        self._refused = {node: answer for node, answer in answers.items() if isinstance(answer, Refusal)}
        for node, refusal in self._refused.items():
            self.refused.setdefault(refusal, set()).add(node)
        self._order = sorted((rank, node) for node, rank in self._ranks.items())

    def __contains__(self, node: object) -> bool:
        return node in self._ranks

    def __len__(self) -> int:
        return len(self._ranks)

    def best(self, among: Container[str], most: int | None = None, *, last: Collection[str] = ()) -> list[str]:
        """The fitting nodes among these, the policy's best first; those in `last` after all others."""
        first = (node for _, node in self._order if node not in last and node in among)
        return list(
            islice(chain(first, (node for _, node in self._order if node in last and node in among) if last else ()), most)
        )

    def in_order(self, among: Container[str]) -> Iterator[str]:
        """The fitting nodes among these, the policy's best first. Only until the next change of the ranking."""
        return (node for _, node in self._order if node in among)

    def answers(self) -> Iterator[tuple[str, Rank | Refusal]]:
        yield from self._ranks.items()
        yield from self._refused.items()


class RankingCache:
    """The rankings of recent requests, each updated when it is needed again."""

    def __init__(self, answer: Callable[[str, Request], Fit | Refusal | None], *, most: int = MOST_REQUESTS) -> None:
        self._answer = answer
        self._most = most
        self._rankings: dict[
            Request, tuple[Ranking, int]
        ] = {}  # least recently used first; the number: how much of the log it has applied
        self._log: list[str] = []  # nodes that changed, oldest first
        self._log_start = 0

    def touch(self, node: str) -> None:
        """This node's answers may have changed."""
        self._log.append(node)
        # A ranking that missed that many changes is evaluated again for every node.
        if len(self._log) > 2 * CHANGES_REMEMBERED:
            del self._log[:CHANGES_REMEMBERED]
            self._log_start += CHANGES_REMEMBERED

    def changes_since(self, position: int) -> tuple[set[str] | None, int]:
        """The nodes that were touched since this position, and the position now. None: too many to be remembered."""
        end = self._log_start + len(self._log)
        return (set(self._log[position - self._log_start :]) if position >= self._log_start else None), end

    def ranking(self, request: Request, nodes: Collection[str]) -> Ranking:
        """The up-to-date answers of all these nodes."""
        ranking, known = self._rankings.pop(request, (None, 0))
        end = self._log_start + len(self._log)
        if ranking is None or known < self._log_start:
            ranking = Ranking()
            ranking.put_all({node: answer for node in nodes if (answer := self._answer(node, request)) is not None})
        else:
            for node in set(self._log[known - self._log_start :]):
                ranking.put(node, self._answer(node, request))
        self._rankings[request] = (ranking, end)
        few = max(FEWEST_REQUESTS, ANSWERS_REMEMBERED // max(1, len(nodes)))
        while len(self._rankings) > min(few, self._most):
            del self._rankings[next(iter(self._rankings))]
        return ranking

    def rankings(self, nodes: Collection[str]) -> Iterator[tuple[Request, Ranking]]:
        """Every ranking in memory, up to date."""
        for request in list(self._rankings):
            yield request, self.ranking(request, nodes)
