"""What the API server answers to a nomination is told to the plan, and to filter calls that wait for it."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from accelshare.extender.promises.nominator import Nominator
from accelshare.extender.promises.plan import FAILED, LATE, Nomination
from accelshare.kube.errors import Conflict, Forbidden, KubeError
from accelshare.ledger.ledger import Ledger
from tests.builders import pending, share


class RefusingClient:
    def __init__(self, error: KubeError) -> None:
        self._error = error

    async def request(self, *_: object, **__: object) -> bytes:
        raise self._error


class WritingClient:
    """Writes the nomination as version 9."""

    async def request(self, *_: object, **__: object) -> bytes:
        return b'{"kind": "PartialObjectMetadata", "metadata": {"resourceVersion": "9"}}'


class Plan:
    """One nomination, and what became of it."""

    cluster_too_small = paused = False

    def __init__(self) -> None:
        self._nominations = [Nomination("u", "ml", "a", 7, "n1")]
        self.outcome = ""
        self.written_as = 0
        self.checks = 0

    def end_wrong_ones(self) -> None:
        self.checks += 1

    def next(self) -> Nomination | None:
        return self._nominations.pop() if self._nominations else None

    def not_written(self, nomination: Nomination, outcome: str) -> None:
        assert nomination.uid == "u"
        self.outcome = outcome

    def written(self, _: Nomination, version: int) -> None:
        self.written_as = version


@pytest.mark.parametrize(
    ("error", "outcome"), [(Forbidden(403, "Forbidden", "no"), FAILED), (Conflict(409, "Conflict", "changed"), LATE)]
)
async def test_one_that_was_not_written_ends_the_wait_for_it(error: KubeError, outcome: str) -> None:
    plan: Any = Plan()
    client: Any = RefusingClient(error)
    ended = asyncio.Event()

    def on_end() -> None:
        assert plan.outcome == outcome
        ended.set()

    nominator = Nominator(client, plan, Ledger(), on_end=on_end)
    await nominator._start_writes()
    async with asyncio.timeout(60):
        await ended.wait()


@pytest.mark.parametrize(("known", "after"), [(7, 9), (6, 6), (12, 12)], ids=["the-same", "older", "newer"])
async def test_a_bind_right_after_the_nomination_names_the_version_that_it_has_made(known: int, after: int) -> None:
    """Unless the ledger knows another version: then the watch shows what else has changed."""
    plan: Any = Plan()
    client: Any = WritingClient()
    ledger = Ledger()
    ledger.apply(replace(pending("u", share(4)), version=known))
    ended = asyncio.Event()
    nominator = Nominator(client, plan, ledger, on_end=ended.set)
    await nominator._start_writes()
    async with asyncio.timeout(60):
        await ended.wait()
    pod = ledger.pod("u")
    assert plan.written_as == 9
    assert pod is not None
    assert pod.latest.version == after


async def test_promises_end_also_while_nothing_may_be_written(ledger: Ledger) -> None:
    """They keep other pods from their cards: without the Lease, or while the API server refuses, nobody writes."""
    plan: Any = Plan()
    client: Any = WritingClient()
    nominator = Nominator(client, plan, ledger, may_write=lambda: False)
    await nominator._start_writes()
    assert (plan.checks, plan.written_as) == (1, 0)
