"""Kueue with the resources of cards: Jobs wait for quota, borrow it, and give their cards back when they are evicted."""

import pytest

from tests.e2e.oversell_watch import watch_for_oversell
from tests.e2e.queues.queue_cluster import MEMORY, NPU, SIZE, QueueCluster
from tests.e2e.scheduling_cluster import cards

pytestmark = pytest.mark.real

URGENT = "urgent"  # the class of the page


async def test_a_job_within_the_quota_runs_and_the_next_one_waits_for_it(queues: QueueCluster) -> None:
    """team-b uses its own quota, so that there is nothing to borrow."""
    await queues.job("other", "team-b")
    await queues.placed("other", 2, "team-b")
    await queues.job("training")
    await queues.placed("training", 2)
    await queues.holds([SIZE] * 4)
    await queues.job("next")
    await queues.waits("next", MEMORY)
    assert await queues.suspended("next")
    assert await queues.pods("next") == []
    await queues.end("training")
    await queues.placed("next", 2)
    await queues.holds([SIZE] * 4)


async def test_whole_cards_are_counted_beside_slices(queues: QueueCluster) -> None:
    """A queue of one NPU, which may borrow the other queue's: the third pod is one too many."""
    await queues.job("pair", limits={NPU: 1})
    assert [cards(pod, "stream") for pod in await queues.placed("pair", 2)] in ([[0], [1]], [[1], [0]])
    await queues.job("single", limits={NPU: 1})
    await queues.waits("single", NPU)
    await queues.job("slices", limits={MEMORY: 4})
    await queues.placed("slices", 2)
    assert await queues.pods("single") == []


async def test_an_evicted_job_gives_its_cards_to_the_one_that_evicts_it(queues: QueueCluster) -> None:
    await queues.job("other", "team-b")
    await queues.placed("other", 2, "team-b")
    await queues.job("training")
    before = sorted(cards(pod, "nvidia") for pod in await queues.placed("training", 2))
    async with watch_for_oversell(queues.cluster.client, size=SIZE) as watch:
        await queues.job("now", priority=URGENT)
        after = sorted(cards(pod, "nvidia") for pod in await queues.placed("now", 2))
        await queues.gone("training")
        assert after == before
        assert await queues.suspended("training")
        await queues.holds([SIZE] * 4)
        await queues.end("now")
        await queues.placed("training", 2)
        assert watch.wrong == []


async def test_the_cards_of_an_evicted_job_are_free(queues: QueueCluster) -> None:
    """The job that evicts needs half of them only."""
    await queues.job("other", "team-b")
    await queues.placed("other", 2, "team-b")
    await queues.job("training")
    await queues.placed("training", 2)
    await queues.job("now", priority=URGENT, limits={MEMORY: 8})
    await queues.placed("now", 2)
    await queues.gone("training")
    await queues.holds([0, SIZE, SIZE, SIZE])


async def test_what_a_queue_lent_is_taken_back_from_the_borrower(queues: QueueCluster) -> None:
    await queues.job("first")
    await queues.placed("first", 2)
    await queues.job("second")
    await queues.placed("second", 2)  # with the quota of team-b
    await queues.holds([SIZE] * 4)
    async with watch_for_oversell(queues.cluster.client, size=SIZE) as watch:
        await queues.job("own", "team-b")
        await queues.placed("own", 2, "team-b")

        async def one_is_left() -> bool:
            return len(await queues.pods("first")) + len(await queues.pods("second")) == 2

        await queues.cluster.until(one_is_left, "one Job of team-a is evicted")
        await queues.holds([SIZE] * 4)
        assert [await queues.suspended("first"), await queues.suspended("second")].count(True) == 1
        assert watch.wrong == []
