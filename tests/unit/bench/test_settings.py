"""Sizes that were not foreseen are measured like the nearest smaller one that was."""

import pytest

from bench.settings import FULL, QUICK, Settings, pods_and_rounds


@pytest.mark.parametrize("settings", [FULL, QUICK], ids=["full", "quick"])
def test_every_size_has_its_pods_and_rounds(settings: Settings) -> None:
    assert len(settings.nodes) == len(settings.pods) == len(settings.rounds)
    assert all(count >= 10 for count in settings.pods)


@pytest.mark.parametrize(("nodes", "at"), [(1000, 0), (5000, 1), (3000, 0), (10_000, 1), (50, 0)])
def test_other_sizes_take_the_next_smaller_ones(nodes: int, at: int) -> None:
    assert pods_and_rounds(FULL, nodes) == (FULL.pods[at], FULL.rounds[at])
