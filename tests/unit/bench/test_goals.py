"""A goal is met or it is not, and only what was measured is judged."""

from dataclasses import replace

from bench.figures import Pace, Spread
from bench.goals import REFERENCE_LOOP_S, TimeLimit, Verdict, verdicts
from bench.noise import Noise
from bench.procfs import Machine, Memory
from bench.results import VARIANTS, Crowd, FirstByte, Results, Scrape, Start, Throughput, Waits


def noise(loop_s: float) -> Noise:
    loop = Spread(loop_s, loop_s, loop_s)
    return Noise(wall=loop, cpu=loop, samples=3, load_before=0.1, load_after=0.2)


STEADY = noise(REFERENCE_LOOP_S)


def results(*throughput: Throughput, crowd: Crowd | None = None) -> Results:
    return Results(Machine("a CPU", 2, 8.0, "6.18"), STEADY, {}, throughput=throughput, crowd=crowd)


def rounds(nodes: int, *, bare: float, ours: float, extender_ms: float) -> Throughput:
    """Three equal rounds, every variant with an extender as fast as the other."""
    paces = {name: Pace(bare if flags is None else ours, 5.0, extender_ms, 4.0, 0.0) for name, flags in VARIANTS.items()}
    return Throughput(nodes, 400, {name: (one,) * 3 for name, one in paces.items()})


def without_promises(found: Results) -> list[Verdict]:
    return [
        verdict for verdict in verdicts(found) if "promises" not in verdict.goal and "extender CPU a pod ≤" not in verdict.goal
    ]


def crowd(*, rss_mb: float, start_s: float) -> Crowd:
    start = Start(start_s, start_s, Memory(rss_mb, rss_mb, rss_mb))
    return Crowd(5000, 50_000, 4000, (start,), (), ())


def met(found: Results) -> dict[str, bool]:
    return {verdict.goal: verdict.met for verdict in verdicts(found)}


def test_as_fast_as_bare_is_met() -> None:
    assert [verdict.met for verdict in without_promises(results(rounds(1000, bare=100, ours=100, extender_ms=1)))] == [True]


def test_a_little_slower_than_bare_is_not() -> None:
    assert [verdict.met for verdict in without_promises(results(rounds(1000, bare=100, ours=99, extender_ms=1)))] == [False]


def test_growth_is_judged_between_the_smallest_and_the_largest() -> None:
    small = rounds(1000, bare=100, ours=100, extender_ms=1.0)
    large = rounds(5000, bare=40, ours=50, extender_ms=3.1)
    found = without_promises(results(small, large))
    assert [verdict.met for verdict in found] == [True, True, False]
    assert found[-1].measured == "3.10 × (1.00 → 3.10 ms)"


def test_a_small_cluster_has_a_smaller_goal() -> None:
    assert [verdict.met for verdict in without_promises(results(rounds(100, bare=100, ours=80, extender_ms=1)))] == [True]
    assert [verdict.met for verdict in without_promises(results(rounds(100, bare=100, ours=79, extender_ms=1)))] == [False]


def test_growth_leaves_other_sizes_out_where_there_are_1000_and_5000() -> None:
    sizes = [rounds(nodes, bare=100, ours=100, extender_ms=nodes / 1000) for nodes in (100, 1000, 5000, 15_000)]
    (found,) = [verdict for verdict in without_promises(results(*sizes)) if "(shortlist 1)" in verdict.goal]
    assert found.measured == "5.00 × (1.00 → 5.00 ms)"


def test_the_extenders_cost_is_judged_at_every_size() -> None:
    sizes = [rounds(nodes, bare=100, ours=100, extender_ms=cost) for nodes, cost in ((100, 0.5), (1000, 0.51))]
    assert [verdict.met for verdict in verdicts(results(*sizes)) if "extender CPU a pod ≤" in verdict.goal] == [True, False]


def test_a_queue_of_many_shapes_is_judged_by_waste_alone() -> None:
    mixed = replace(rounds(1000, bare=100, ours=10, extender_ms=9), shapes=20)
    assert [(verdict.goal, verdict.met) for verdict in verdicts(results(mixed))] == [
        ("1,000 nodes, 20 shapes of pods: wasted promises ≤ 10%", True)
    ]


def test_promises_are_judged_by_pace_waste_and_growth() -> None:
    small = rounds(1000, bare=100, ours=120, extender_ms=1.0)
    large = rounds(5000, bare=40, ours=119, extender_ms=1.5)
    found = {verdict.goal: verdict.met for verdict in verdicts(results(small, large)) if "promises" in verdict.goal}
    assert list(found.values()) == [True, True, False, True, True]


def test_small_clusters_have_no_goal_for_promises() -> None:
    assert not [
        verdict for verdict in verdicts(results(rounds(300, bare=100, ours=50, extender_ms=1))) if "promises" in verdict.goal
    ]


def test_memory_and_start_up_are_judged_when_measured() -> None:
    assert list(met(results(crowd=crowd(rss_mb=149, start_s=2.9))).values()) == [True, True]
    assert list(met(results(crowd=crowd(rss_mb=151, start_s=3.1))).values()) == [False, False]


def test_a_limit_in_seconds_follows_the_speed_of_the_machine() -> None:
    slow = TimeLimit(5, "s", noise(2 * REFERENCE_LOOP_S).wall)
    assert (slow.holds(9.9), slow.holds(10.1), str(slow)) == (True, False, "5 s × 2.00")
    fast = TimeLimit(5, "s", noise(REFERENCE_LOOP_S / 2).wall)
    assert (fast.holds(4.9), fast.holds(5.1), str(fast)) == (True, False, "5 s")


def test_nothing_measured_is_nothing_claimed() -> None:
    assert verdicts(results()) == []


def test_inspect_is_judged_by_what_it_takes_over_a_bare_python() -> None:
    def judged(inspect_ms: float) -> list[bool]:
        starts = (FirstByte(10.0, inspect_ms, 300.0),) * 3
        return list(met(Results(Machine("a CPU", 2, 8.0, "6.18"), STEADY, {}, first_bytes=starts)).values())

    assert judged(160.0) == [True]
    assert judged(161.0) == [False]


def test_a_scrape_is_judged_by_how_much_longer_the_slowest_calls_wait() -> None:
    def judged(p99_ms: float) -> list[bool]:
        scrape = Scrape(5000, 130_000, 13.0, (0.2,), (Waits(1.0, 2.0, 3.0),), (Waits(1.0, p99_ms, 99.0),))
        return list(met(Results(Machine("a CPU", 2, 8.0, "6.18"), STEADY, {}, scrape=scrape)).values())

    assert judged(12.0) == [True]
    assert judged(12.1) == [False]
