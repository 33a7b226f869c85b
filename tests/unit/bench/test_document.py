"""The page says what was measured, and nothing about what was not."""

from bench.document import document
from bench.figures import Pace, Spread
from bench.noise import Noise
from bench.procfs import Machine, Memory
from bench.results import (
    BARE,
    GPUSHARE,
    LEAST,
    MAIN,
    OF_GPUSHARE,
    OURS,
    SHORTLIST_1,
    Arrivals,
    BareStart,
    Call,
    Crowd,
    FirstByte,
    Results,
    Scrape,
    Start,
    Step,
    Throughput,
    Waits,
)

NOISY = Noise(wall=Spread(0.04, 0.036, 0.052), cpu=Spread(0.04, 0.04, 0.044), samples=12, load_before=0.25, load_after=1.5)
MACHINE = Machine("a CPU", 2, 8.0, "6.18")


def whole() -> Results:
    paces = {name: (Pace(100, 5, 1, 4, 0.1), Pace(120, 5, 1, 4, 0.3)) for name in (*OURS, LEAST)}
    calls = tuple(Call("filter", nodes, full, 48.0, 0.3, 0.4) for nodes in (100, 1000) for full in (False, True))
    start = Start(4.0, 3.5, Memory(120.0, 110.0, 140.0))
    crowd = Crowd(5000, 50_000, 4655, (start,), (BareStart(0.25, 0.2),), (Step(5000, 50_000, 500, 1.9),))
    steps = (Step(100, 0, 500, 1.1), Step(5000, 0, 500, 1.8))
    first_bytes = (FirstByte(10.0, 120.0, 140.0), FirstByte(12.0, 132.0, 150.0), FirstByte(11.0, 121.0, 141.0))
    scrape = Scrape(5000, 130_000, 13.0, (0.25,), (Waits(1.0, 2.0, 4.0),), (Waits(1.5, 3.0, 20.0),))
    rates = (Throughput(1000, 400, paces), Throughput(1000, 400, paces, shapes=20))
    streams = (Arrivals(1000, 300, 20, {name: (Waits(8.0, 20.0, 30.0),) for name in MAIN}),)
    return Results(MACHINE, NOISY, {"Python": "3.11.7"}, rates, streams, calls, steps, crowd, first_bytes, scrape)


def test_every_measure_has_its_section() -> None:
    page = document(whole())
    headings = [line for line in page.splitlines() if line.startswith("## ")]
    assert headings == [
        "## Goals",
        "## Throughput at 1,000 nodes",
        "## Throughput at 1,000 nodes, 20 shapes of pods",
        "## Steady arrivals at 1,000 nodes",
        "## One call",
        "## Growth",
        "## Memory and start-up",
        "## inspect",
        "## Scrapes",
        "## What is not measured",
        "## Again",
    ]


def test_gpushares_extender_has_a_table_that_says_where_it_is_from() -> None:
    paces = {name: (Pace(2, 5, 600, 4, 0.1),) for name in (BARE, SHORTLIST_1, *OF_GPUSHARE)}
    page = document(Results(MACHINE, NOISY, {}, (Throughput(1000, 200, paces),), gpushare="from a checkout"))
    assert "## Throughput at 1,000 nodes, beside gpushare's own extender" in page
    assert "its own Go extender (from a checkout)" in page
    assert f"| {GPUSHARE} | **1.00** (1.00–1.00) |" in page
    assert "Promises" not in page


def test_the_reason_why_gpushares_extender_is_missing_is_said() -> None:
    rates = whole().throughput
    page = document(Results(MACHINE, NOISY, {}, rates, gpushare="the proxy says 403"))
    assert "Not measured: the proxy says 403." in page


def test_what_was_not_measured_has_no_section() -> None:
    page = document(Results(MACHINE, NOISY, {}))
    assert "## Goals" not in page
    assert "## Throughput" not in page
    assert "## What is not measured" in page


def test_the_noise_is_shown_with_the_results() -> None:
    page = document(whole())
    assert "wall 40 ms, spread 40 %" in page
    assert "| load before and after | 0.25 and 1.50 |" in page


def test_each_round_is_divided_by_its_own_bare_run() -> None:
    assert "| shortlist 1 | **1.00** (1.00–1.00) |" in document(whole())


def test_arrivals_show_what_half_nearly_all_and_all_of_the_pods_waited() -> None:
    assert "| promises | **8.00** (8.00–8.00) | **20.0** (20.0–20.0) | **30.0** (30.0–30.0) |" in document(whole())


def test_a_combination_that_was_not_measured_is_a_dash() -> None:
    page = document(whole())
    assert "| 0 | 1.10 | 1.80 |" in page
    assert "| 50,000 | – | 1.90 |" in page


def test_the_page_has_no_date_of_its_own() -> None:
    """The same results give the same page, so that a run changes only what it measured."""
    assert document(whole()) == document(whole())


def test_inspect_is_compared_with_the_bare_python_started_next_to_it() -> None:
    page = document(whole())
    assert "| … over a bare Python, ms | **110** (110–120) |" in page
    assert "| … ÷ a bare Python | **11.0** (11.0–12.0) |" in page


def test_calls_while_scraped_are_divided_by_the_undisturbed_ones_of_their_round() -> None:
    page = document(whole())
    assert "130,000 series, 13.0 MB, 0.25 s a page" in page
    assert "| 99 % within | **2.00** (2.00–2.00) | **3.00** (3.00–3.00) | **1.50** (1.50–1.50) |" in page
