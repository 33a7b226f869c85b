"""A goal of the node is met or it is not, and only what was measured is judged."""

from dataclasses import replace

import pytest

from bench.node.goals import verdicts
from bench.node.results import DEVICE_PLUGIN, NodeResults
from tests.unit.bench.node.builders import NOTHING, at_rest, rushed, started


def met(found: NodeResults) -> list[bool]:
    return [verdict.met for verdict in verdicts(found)]


@pytest.mark.parametrize(
    ("rss_mb", "idle_percent", "judged"), [(60.0, 0.5, [True, True]), (60.1, 0.5, [False, True]), (60.0, 0.51, [True, False])]
)
def test_an_agent_at_rest_is_judged_by_memory_and_cpu(rss_mb: float, idle_percent: float, judged: list[bool]) -> None:
    assert met(replace(NOTHING, footprints=(at_rest(rss_mb=rss_mb, idle_percent=idle_percent),))) == judged


def test_the_runtime_may_wait_three_ms_for_a_container() -> None:
    assert met(replace(NOTHING, starting=started(total_s=0.012))) == [True]
    assert met(replace(NOTHING, starting=started(total_s=0.0125))) == [False]


def test_one_dead_pod_is_one_too_many_where_the_runtime_delivers() -> None:
    assert met(replace(NOTHING, rushes=(rushed(), rushed(victim="kubelet")))) == [True]
    assert met(replace(NOTHING, rushes=(rushed(), rushed(victim="kubelet", failed=1)))) == [False]


def test_by_device_plugins_a_killed_agent_costs_a_handful() -> None:
    assert met(replace(NOTHING, rushes=(rushed(DEVICE_PLUGIN, failed=5),))) == [True]
    assert met(replace(NOTHING, rushes=(rushed(DEVICE_PLUGIN, failed=5), rushed(DEVICE_PLUGIN, failed=6)))) == [False]


def test_a_device_plugin_is_not_held_to_what_it_cannot_promise() -> None:
    assert met(replace(NOTHING, rushes=(rushed(DEVICE_PLUGIN, victim="kubelet", failed=9),))) == []


def test_nothing_measured_is_nothing_claimed() -> None:
    assert verdicts(NOTHING) == []
