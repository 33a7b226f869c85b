"""JobSet through Kueue: all of its pods are admitted at once, with all of their cards, or none is."""

import pytest

from tests.e2e.queues.queue_cluster import JOBSETS, MEMORY, NPU, QueueCluster, manifests

pytestmark = pytest.mark.real


async def jobset(queues: QueueCluster, name: str) -> None:
    (found,) = manifests("JobSet")
    found["metadata"]["name"] = name
    await queues.cluster.create("/" + JOBSETS.format(team="team-a"), found)


async def test_a_jobset_gets_all_of_its_cards_at_once(queues: QueueCluster) -> None:
    await jobset(queues, "pipeline")
    pods = await queues.placed("pipeline", 3)
    assert {pod["spec"]["nodeName"] for pod in pods} == {"gpus", "k8smasterdemo"}
    await queues.holds([0, 0, 0, 16])


async def test_a_jobset_that_lacks_one_card_creates_no_pod(queues: QueueCluster) -> None:
    """Both NPUs are taken; the slices are free."""
    await queues.job("npus", limits={NPU: 1})
    await queues.placed("npus", 2)
    await jobset(queues, "pipeline")
    await queues.waits("pipeline", NPU)
    assert await queues.pods("pipeline") == []
    assert await queues.units_held() == [0, 0, 0, 0]
    await queues.job("slices", limits={MEMORY: 4})
    await queues.placed("slices", 2)
    await queues.end("npus")
    await queues.placed("pipeline", 3)
