"""A cluster size without settings of its own uses those of the next smaller size."""

from dataclasses import replace

import pytest

from bench.results import BARE
from bench.settings import FULL, QUICK, Settings, with_nodes, with_rounds


@pytest.mark.parametrize("settings", [FULL, QUICK], ids=["full", "quick"])
def test_every_queue_has_a_middle_and_can_be_divided_by_a_bare_run(settings: Settings) -> None:
    for queue in settings.queues:
        assert queue.pods >= 10
        assert BARE in queue.variants


@pytest.mark.parametrize(("nodes", "like"), [(1000, 1000), (5000, 5000), (3000, 1000), (10_000, 5000), (50, 100)])
def test_other_sizes_take_the_next_smaller_ones(nodes: int, like: int) -> None:
    (queue,) = with_nodes(FULL, [nodes]).queues
    (known,) = [each for each in FULL.queues if (each.nodes, each.shapes) == (like, 1) and not each.of_gpushare]
    assert queue == replace(known, nodes=nodes)


def test_rounds_are_those_of_every_queue() -> None:
    changed = with_rounds(FULL, 9)
    assert {queue.rounds for queue in changed.queues} == {9}
