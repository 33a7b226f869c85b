"""A goal is met or it is not, and only what was measured is judged."""

from bench.figures import Pace, Spread
from bench.goals import verdicts
from bench.noise import Noise
from bench.procfs import Machine, Memory
from bench.results import VARIANTS, Crowd, FirstByte, Results, Scrape, Start, Throughput, Waits

STEADY = Noise(wall=Spread(0.1, 0.1, 0.1), cpu=Spread(0.1, 0.1, 0.1), samples=3, load_before=0.1, load_after=0.2)


def results(*throughput: Throughput, crowd: Crowd | None = None) -> Results:
    return Results(Machine("a CPU", 2, 8.0, "6.18"), STEADY, {}, throughput=throughput, crowd=crowd)


def rounds(nodes: int, *, bare: float, ours: float, extender_ms: float) -> Throughput:
    """Three equal rounds, every variant with an extender as fast as the other."""
    paces = {name: Pace(bare if shortlist is None else ours, 5.0, extender_ms, 4.0, 0.0) for name, shortlist in VARIANTS.items()}
    return Throughput(nodes, 400, {name: (one,) * 3 for name, one in paces.items()})


def crowd(*, rss_mb: float, start_s: float) -> Crowd:
    start = Start(start_s, start_s, Memory(rss_mb, rss_mb, rss_mb))
    return Crowd(5000, 50_000, 4000, (start,), (), ())


def met(found: Results) -> dict[str, bool]:
    return {verdict.goal: verdict.met for verdict in verdicts(found)}


def test_as_fast_as_bare_is_met() -> None:
    assert list(met(results(rounds(1000, bare=100, ours=100, extender_ms=1))).values()) == [True]


def test_a_little_slower_than_bare_is_not() -> None:
    assert list(met(results(rounds(1000, bare=100, ours=99, extender_ms=1))).values()) == [False]


def test_growth_is_judged_between_the_smallest_and_the_largest() -> None:
    small = rounds(1000, bare=100, ours=100, extender_ms=1.0)
    large = rounds(5000, bare=40, ours=50, extender_ms=3.1)
    found = verdicts(results(small, large))
    assert [verdict.met for verdict in found] == [True, True, False]
    assert found[-1].measured == "3.10 × (1.00 → 3.10 ms)"


def test_memory_and_start_up_are_judged_when_measured() -> None:
    assert list(met(results(crowd=crowd(rss_mb=149, start_s=4.9))).values()) == [True, True]
    assert list(met(results(crowd=crowd(rss_mb=151, start_s=5.1))).values()) == [False, False]


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
