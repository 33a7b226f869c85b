"""Renders the results of a load run as a page of Markdown.

Belongs here: order and words of docs/benchmarks-load.md. Never: a number that is not in the results.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from statistics import quantiles

from bench.load.churn import CHANGES, SHARES
from bench.load.goals import verdicts
from bench.load.results import LoadResults, LoadRun, Window
from bench.page import goals_section, machine_table
from bench.tables import number, table

HEAD = """\
# Benchmarks under load

Written by `make bench-load`, which starts a real etcd (without fsync) and kube-apiserver on this machine, with fake Node objects,
and our extender as its own process. Do not edit: run it again. Everything shares the cores named below, and so does the program
that makes the load: latencies are for orientation only; memory does not depend on the noise.
"""
NOT_MEASURED = """\
## What is not measured

- kube-scheduler: the benchmark makes its calls, each with the names of all nodes.
- kubelets, containers and agents; TLS between kube-scheduler and the extender.
- Nodes that change.

## Again

```
make bench-load                            # ten minutes of load and the time to create the pods; writes this file
python -m bench.load --quick               # small sizes, prints only: to try the code
python -m bench.load --seconds 60 --seed 7 # another length, another load; writes no file
```
"""
PARTS = 10  # rows of the table over time, at most


def document(results: LoadResults) -> str:
    run = results.run
    parts = [HEAD, machine_table(results.machine, results.noise, results.versions), goals_section(verdicts(run))]
    return "\n".join([*parts, _latencies(run), _over_time(run), *_failures(run), NOT_MEASURED])


def _latencies(run: LoadRun) -> str:
    settings = run.settings
    words = (
        f"{settings.changes_per_s:g} changes a second, seed {settings.seed}: a pod is created, filtered, bound and started, and "
        f"another one is deleted, {CHANGES} changes that the extender's watch shows. Pods request {min(SHARES)} to {max(SHARES)} "
        f"units of one card. {run.pods_bound:,} pods were bound; for {run.retries:,} binds another pod had got "
        f"the card since the filter call, and both were repeated. The wait of the caller in ms, who makes all of the load in one "
        f"process; bind includes the API server's part."
    )
    head = ("call", "calls", "half within", "90 %", "99 %", "99.9 %", "all")
    rows = [
        _row("filter", list(chain.from_iterable(window.filter_ms for window in run.windows))),
        _row("bind", list(chain.from_iterable(window.bind_ms for window in run.windows))),
    ]
    return f"## Latency\n\n{words}\n\n{table(head, rows)}\n"


def _row(call: str, waits: Sequence[float]) -> tuple[str, ...]:
    return call, f"{len(waits):,}", *(number(within(waits, part)) for part in (50.0, 90.0, 99.0, 99.9, 100.0))


def within(waits: Sequence[float], percent: float) -> float:
    """The wait that so many of a hundred calls do not exceed."""
    if len(waits) < 2 or percent >= 100:
        return max(waits, default=0.0)
    return quantiles(waits, n=1000, method="inclusive")[round(percent * 10) - 1]


def _over_time(run: LoadRun) -> str:
    words = f"The extender's memory peaked at {run.peak_mb:.0f} MB. CPU is a part of one core; load is that of the machine."
    head = ("until, s", "changes/s", "RSS, MB", "extender's CPU", "filter p50, ms", "p99", "bind p50, ms", "p99", "load")
    return f"## Over time\n\n{words}\n\n{table(head, _time_rows(run.windows))}\n"


def _time_rows(windows: Sequence[Window]) -> Iterator[tuple[str, ...]]:
    size = max(1, -(-len(windows) // PARTS))
    until = 0.0
    for start in range(0, len(windows), size):
        part = windows[start : start + size]
        seconds = sum(window.seconds for window in part)
        until += seconds

        def waits(of: Callable[[Window], Sequence[float]], part: Sequence[Window] = part) -> list[float]:
            return list(chain.from_iterable(of(window) for window in part))

        filters, binds = waits(lambda window: window.filter_ms), waits(lambda window: window.bind_ms)
        yield (
            f"{until:.0f}",
            number(sum(window.changes for window in part) / seconds),
            f"{part[-1].rss_mb:.1f}",
            number(sum(window.cpu_cores * window.seconds for window in part) / seconds),
            *(number(within(filters, percent)) for percent in (50.0, 99.0)),
            *(number(within(binds, percent)) for percent in (50.0, 99.0)),
            number(part[-1].load),
        )


def _failures(run: LoadRun) -> Iterator[str]:
    if run.failures:
        yield "## Failures\n\n" + "\n".join(f"- {failure}" for failure in run.failures) + "\n"
