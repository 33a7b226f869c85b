"""What the API server answers to a nomination is told to the plan, and to filter calls that wait for it."""

import asyncio
from typing import Any

import pytest

from accelshare.extender.promises.nominator import Nominator
from accelshare.extender.promises.plan import FAILED, LATE, Nomination
from accelshare.kube.errors import Conflict, Forbidden, KubeError
from accelshare.ledger.ledger import Ledger


class RefusingClient:
    def __init__(self, error: KubeError) -> None:
        self._error = error

    async def request(self, *_: object, **__: object) -> bytes:
        raise self._error


class Plan:
    """One nomination, and what became of it."""

    cluster_too_small = paused = False

    def __init__(self) -> None:
        self._nominations = [Nomination("u", "ml", "a", 7, "n1")]
        self.outcome = ""

    def next(self) -> Nomination | None:
        return self._nominations.pop() if self._nominations else None

    def not_written(self, nomination: Nomination, outcome: str) -> None:
        assert nomination.uid == "u"
        self.outcome = outcome


@pytest.mark.parametrize(
    ("error", "outcome"), [(Forbidden(403, "Forbidden", "no"), FAILED), (Conflict(409, "Conflict", "changed"), LATE)]
)
async def test_one_that_was_not_written_ends_the_wait_for_it(error: KubeError, outcome: str) -> None:
    plan: Any = Plan()
    client: Any = RefusingClient(error)
    reader: Any = None
    ended = asyncio.Event()

    def on_end() -> None:
        assert plan.outcome == outcome
        ended.set()

    nominator = Nominator(client, plan, Ledger(), reader, on_free_capacity=lambda _: None, on_end=on_end)
    await nominator._start_writes()
    async with asyncio.timeout(60):
        await ended.wait()
