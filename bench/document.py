"""The results as a page of Markdown.

Belongs here: order and text of docs/benchmarks.md. Never: a number that is not in the results.
"""

from collections.abc import Callable, Iterator
from statistics import median

from bench.figures import Spread, ratios
from bench.goals import verdicts
from bench.page import goals_section, machine_table
from bench.results import (
    BARE,
    LEAST,
    OF_GPUSHARE,
    PROMISES,
    Arrivals,
    Call,
    Crowd,
    FirstByte,
    Results,
    Scrape,
    Step,
    Throughput,
    Waits,
)
from bench.tables import number, spread, table
from bench.workload import CARD_UNITS, CARDS, FULL_SHARE, PRIORITIES, SHARE

HEAD = """\
# Benchmarks

Written by `make bench`, which starts a real etcd (without fsync), kube-apiserver and kube-scheduler on this machine, with fake
Node objects, and our extender as its own process. Do not edit: run it again. Everything shares the cores named below, so
absolute numbers are for orientation only; ratios compare runs that stood next to each other in time.
"""

NOT_MEASURED = """\
## What is not measured

- kubelets and containers: nodes are objects, so a pod ends its way here when it is bound.
- A control plane on machines of its own, disks that are waited for, networks with latency: here all of it shares the cores.
- Several extenders, node agents, preemption.
- Other schedulers, and other extenders than gpushare's.

## Again

```
make bench                              # everything, writes this file
python -m bench --quick                 # small sizes, prints only: to try the code
python -m bench --only throughput --nodes 1000 --rounds 9
python -m bench --only startup --only scrape
make bench GPUSHARE=../gpushare-scheduler-extender    # with a checkout, where the Go module proxy does not serve it
```
"""


def document(results: Results) -> str:
    parts = [HEAD, machine_table(results.machine, results.noise, results.versions), goals_section(verdicts(results))]
    parts += [_throughput(size, gpushare=results.gpushare) for size in results.throughput]
    if results.throughput and results.gpushare and not any(_of_gpushare(size) for size in results.throughput):
        parts.append(f"## Beside gpushare's own extender\n\nNot measured: {results.gpushare}.\n")
    parts += [_arrivals(stream) for stream in results.arrivals]
    if results.calls:
        parts.append(_calls(results.calls))
    steps = (*results.steps, *(results.crowd.steps if results.crowd is not None else ()))
    if steps:
        parts.append(_growth(steps))
    if results.crowd is not None:
        parts.append(_crowd(results.crowd))
    if results.first_bytes:
        parts.append(_first_byte(results.first_bytes))
    if results.scrape is not None:
        parts.append(_scrape(results.scrape))
    return "\n".join([*parts, NOT_MEASURED])


def _of_gpushare(size: Throughput) -> bool:
    return not set(OF_GPUSHARE).isdisjoint(size.paces)


def _throughput(size: Throughput, *, gpushare: str) -> str:
    rounds = len(size.paces[BARE])
    ask = (
        f"ask {SHARE} of a card's {CARD_UNITS} units"
        if size.shapes == 1
        else f"ask in {size.shapes} ways (1 to {CARD_UNITS} units of a card, or of two, with little or much CPU) and have "
        f"{len(PRIORITIES)} priorities"
    )
    words = (
        f"{size.pods} pods that {ask} wait for kube-scheduler, which is paused while they are created; {CARDS} cards a "
        f"node. In all rows, every node is scored (percentageOfNodesToScore 100) and kube-scheduler's client has no limit. "
        f"kube-scheduler calls the extender over mutual TLS and HTTP/2, as the chart installs it; the control plane is new. "
        f"Counted are the middle 80 % of the pods. The rows took turns, {rounds} rounds; each is divided by the bare run of its "
        f"own round. The last column is the noise: what processes that are not part of this took meanwhile. Median (least–most)."
    )
    if PROMISES in size.paces:
        words += (
            f" *Promises* is shortlist 1 with `--promises=16 --promises-from-nodes=1`; "
            f"{median(pace.wasted for pace in size.paces[PROMISES]):.0%} of them did not help."
        )
    if _of_gpushare(size):
        words += (
            f" *gpushare* is its own Go extender ({gpushare}). kube-scheduler calls it over plain HTTP, as its guide says. Its "
            f"manifest sets the log level debug. Its client may send 5 requests a second, and 10 at once."
        )
    if LEAST in size.paces:
        words += (
            f" The *{LEAST}* is not accelshare but a Go program (`bench/least_extender`) that names one node, sends the Binding "
            "and does nothing else, over HTTP/2: it shows what it costs kube-scheduler to have any extender."
        )
    head = (
        "filter answers with",
        "ratio to bare",
        "pods/s",
        "CPU ms a pod: scheduler",
        "extender",
        "API server and etcd",
        "all of these",
        "new connections a pod",
        "cores taken by others",
    )
    title = f"Throughput at {size.nodes:,} nodes" + (f", {size.shapes} shapes of pods" if size.shapes > 1 else "")
    title += ", beside gpushare's own extender" if _of_gpushare(size) else ""
    return f"## {title}\n\n{words}\n\n{table(head, _throughput_rows(size))}\n"


def _throughput_rows(size: Throughput) -> Iterator[tuple[str, ...]]:
    for variant, paces in size.paces.items():
        ratio = Spread.of(ratios(paces, size.paces[BARE], lambda pace: pace.pods_per_s))
        yield (
            variant if variant != BARE else f"({BARE})",
            spread(ratio) if variant != BARE else "1",
            spread(Spread.of([pace.pods_per_s for pace in paces])),
            spread(Spread.of([pace.scheduler_ms for pace in paces])),
            spread(Spread.of([pace.extender_ms for pace in paces])) if variant != BARE else "–",
            number(median(pace.api_server_ms for pace in paces)),
            number(median(pace.scheduler_ms + pace.extender_ms + pace.api_server_ms for pace in paces)),
            number(median(pace.connections for pace in paces)) if variant != BARE else "–",
            spread(Spread.of([pace.others_cores for pace in paces])),
        )


def _arrivals(stream: Arrivals) -> str:
    words = (
        f"{stream.pods} pods arrive one after the other, {stream.per_s:g} a second. From the moment at which its creation is "
        f"sent to the moment at which a watch shows the node, in ms; the rows took turns, {len(stream.waits[BARE])} rounds. "
        f"Median (least–most) of the rounds."
    )
    rows = [
        (
            variant if variant != BARE else f"({BARE})",
            *(spread(Spread.of([value(one) for one in waits])) for value in (_p50, _p99, _most)),
        )
        for variant, waits in stream.waits.items()
    ]
    head = ("filter answers with", "half of the pods within", "99 % within", "all within")
    return f"## Steady arrivals at {stream.nodes:,} nodes\n\n{words}\n\n{table(head, rows)}\n"


def _p50(waits: Waits) -> float:
    return waits.p50_ms


def _p99(waits: Waits) -> float:
    return waits.p99_ms


def _most(waits: Waits) -> float:
    return waits.most_ms


def _calls(calls: tuple[Call, ...]) -> str:
    sizes = sorted({call.nodes for call in calls})
    words = (
        f"The extender's CPU milliseconds for one call over HTTP on one connection, if not said otherwise, and in brackets the "
        f"caller's median wait. "
        f"The cluster has as many nodes as the call names. *Full*: on four of five nodes {FULL_SHARE} of {CARD_UNITS} units of "
        f"each card are taken, so that they must be refused one by one although their sums would do."
    )
    head = ("call", "cluster", *(f"{nodes:,} nodes" for nodes in sizes), f"kB a call at {sizes[-1]:,}")
    rows: list[tuple[str, ...]] = []
    for verb in dict.fromkeys(call.verb for call in calls):
        for full in (False, True):
            found = {call.nodes: call for call in calls if call.verb == verb and call.full == full}
            cells = (f"{number(found[nodes].cpu_ms)} ({number(found[nodes].wall_p50_ms)})" for nodes in sizes)
            rows.append((verb, "full" if full else "empty", *cells, number(found[sizes[-1]].request_kb)))
    return f"## One call\n\n{words}\n\n{table(head, rows)}\n"


def _growth(steps: tuple[Step, ...]) -> str:
    words = (
        "The extender's CPU milliseconds for a pod, from the event of its creation over filter (all nodes named) and bind to the "
        "watch event of the bind, while the cluster fills up; the benchmark plays kube-scheduler here."
    )
    sizes = sorted({step.nodes for step in steps})
    before = sorted({step.pods_before for step in steps})
    found = {(step.pods_before, step.nodes): step for step in steps}
    head = ("pods there before", *(f"{nodes:,} nodes" for nodes in sizes))
    rows = [
        (f"{pods:,}", *(number(found[pods, nodes].cpu_ms) if (pods, nodes) in found else "–" for nodes in sizes))
        for pods in before
    ]
    return f"## Growth\n\n{words}\n\n{table(head, rows)}\n"


def _crowd(crowd: Crowd) -> str:
    starts, bare = crowd.starts, crowd.bare_starts
    words = (
        f"The extender is started {len(starts)} times with {crowd.nodes:,} nodes and {crowd.pods:,} bound pods in the real API "
        f"server (a pod is {crowd.pod_bytes:,} bytes of JSON there). Memory is read one second after it is ready. A bare start "
        f"is a Python that imports asyncio, ssl, msgspec, orjson and uvloop and ends. Median (least–most)."
    )
    rows = [
        ("from exec to ready, s", spread(Spread.of([start.wall_s for start in starts]))),
        ("… ÷ bare start", spread(Spread.of(ratios([s.wall_s for s in starts], [b.wall_s for b in bare], float)))),
        ("CPU until ready, s", spread(Spread.of([start.cpu_s for start in starts]))),
        ("… ÷ bare start", spread(Spread.of(ratios([s.cpu_s for s in starts], [b.cpu_s for b in bare], float)))),
        ("RSS, MB", spread(Spread.of([start.memory.rss_mb for start in starts]))),
        ("PSS, MB", spread(Spread.of([start.memory.pss_mb for start in starts]))),
        ("peak RSS, MB", spread(Spread.of([start.memory.peak_mb for start in starts]))),
    ]
    return f"## Memory and start-up\n\n{words}\n\n{table(('', 'measured'), rows)}\n"


def _first_byte(starts: tuple[FirstByte, ...]) -> str:
    words = (
        f"User and system CPU of `accelshare inspect` against the real API server, over TLS, and of `python -c pass`, started in "
        f"turn {len(starts)} times. Median (least–most)."
    )
    rows = [
        ("a bare Python, ms", spread(Spread.of([start.bare_ms for start in starts]))),
        ("inspect to its first byte, ms", spread(Spread.of([start.inspect_ms for start in starts]))),
        ("… over a bare Python, ms", spread(Spread.of([start.inspect_ms - start.bare_ms for start in starts]))),
        ("… ÷ a bare Python", spread(Spread.of([start.inspect_ms / start.bare_ms for start in starts]))),
        ("inspect to its end, ms", spread(Spread.of([start.to_the_end_ms for start in starts]))),
    ]
    return f"## inspect\n\n{words}\n\n{table(('', 'CPU'), rows)}\n"


def _scrape(scrape: Scrape) -> str:
    words = (
        f"filter calls that name {scrape.nodes:,} nodes, in {len(scrape.quiet)} rounds, each once undisturbed and once while "
        f"another process reads `/metrics` without pause: {scrape.series:,} series, {number(scrape.page_mb)} MB, "
        f"{number(median(scrape.page_s))} s a page. The caller's wait in ms; median (least–most) of the rounds. All share the "
        f"cores of this machine; a real Prometheus scrapes for a hundredth of the time."
    )

    def row(what: str, value: Callable[[Waits], float]) -> tuple[str, ...]:
        return (
            what,
            spread(Spread.of([value(waits) for waits in scrape.quiet])),
            spread(Spread.of([value(waits) for waits in scrape.scraped])),
            spread(Spread.of(ratios(scrape.scraped, scrape.quiet, value))),
        )

    rows = [
        row("half of the calls within", _p50),
        row("99 % within", _p99),
        row("all within", _most),
    ]
    return f"## Scrapes\n\n{words}\n\n{table(('filter', 'undisturbed', 'while scraped', 'ratio'), rows)}\n"
