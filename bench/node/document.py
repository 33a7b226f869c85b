"""Renders the results of the node as a page of Markdown.

Belongs here: order and words of docs/benchmarks-node.md. Never: a number that is not in the results.
"""

from collections.abc import Callable
from statistics import median, quantiles

from bench.figures import Spread, ratios
from bench.node.goals import added_ms, verdicts
from bench.node.results import WAYS, Footprint, Footprints, NodeResults, PluginCalls, PodPair, Rush, Starting, Verb
from bench.node.zpu import CARDS
from bench.page import goals_section, machine_table
from bench.tables import number, spread, table

HEAD = """\
# Benchmarks of the node

Written by `make bench-node`: our agent as its own process with 8 cards of the `static` driver, beside an in-memory API server
and on the real kubelet, containerd and kube-scheduler of `make up`. Do not edit: run it again. Everything shares the cores
named below, so absolute numbers are for orientation only; ratios compare runs that stood next to each other in time.
"""

NOT_MEASURED = """\
## What is not measured

- Vendors' drivers: the static driver only looks at device files. A driver that asks a tool takes that tool's time.
- Real cards: device files behave like `/dev/null`, and images are local.
- Kernels under memory pressure, disks that are waited for, nodes with hundreds of running pods.
- CRI-O.

## Again

```
make bench-node                         # everything, writes this file; needs root
python -m bench.node --quick            # small sizes, prints only: to try the code
python -m bench.node --only calls --only footprint    # needs neither root nor the local cluster
```
"""


def document(results: NodeResults) -> str:
    parts = [HEAD, machine_table(results.machine, results.noise, results.versions), goals_section(verdicts(results))]
    if results.calls:
        parts.append(_calls(results.calls))
    if results.footprints:
        parts.append(_footprints(results.footprints))
    if results.starting is not None:
        parts += [_starting(results.starting), _added(results.starting)]
    if results.rushes:
        parts.append(_rushes(results.rushes))
    return "\n".join([*parts, NOT_MEASURED])


def _calls(calls: tuple[PluginCalls, ...]) -> str:
    words = (
        f"What kubelet waits for when it admits a container, in ms over gRPC: half of the calls and 99 % of them within, and the "
        f"agent's CPU meanwhile (median). kubelet sends every free id with GetPreferredAllocation. Pods come in groups of "
        f"{CARDS}, one on each card of an empty node; {len(calls[0].prefer.wall_ms)} calls a row. The last column is all "
        f"that the agent does for a pod, from its arrival over both calls and the correction of its record to its end."
    )
    head = ("ids", "asked", "GetPreferredAllocation p50", "p99", "CPU", "Allocate p50", "p99", "CPU", "CPU ms a pod")
    rows = [
        (f"{call.ids:,}", f"{call.asks:,}", *_verb(call.prefer), *_verb(call.allocate), number(call.pod_cpu_ms)) for call in calls
    ]
    return f"## Allocate\n\n{words}\n\n{table(head, rows)}\n"


def _verb(verb: Verb) -> tuple[str, str, str]:
    return number(median(verb.wall_ms)), number(percentile(verb.wall_ms, 99)), number(median(verb.cpu_ms))


def percentile(values: tuple[float, ...], percent: int) -> float:
    """The value that so many of a hundred do not pass; of few values, the largest."""
    return quantiles(values, n=100, method="inclusive")[percent - 1] if len(values) > 1 else values[0]


def _footprints(footprints: tuple[Footprints, ...]) -> str:
    starts = len(footprints[0].starts)
    words = (
        f"The agent with {CARDS} cards and nothing to do, started {starts} times for each row: memory in MB (private is what no "
        f"other process shares), and CPU as a part of one core. Median (least–most)."
    )

    def cell(row: Footprints, value: Callable[[Footprint], float]) -> str:
        return spread(Spread.of([value(start) for start in row.starts]))

    rows = [
        (
            row.way,
            f"{row.units:,}",
            cell(row, lambda start: start.rss_mb),
            cell(row, lambda start: start.private_mb),
            cell(row, lambda start: start.peak_mb),
            cell(row, lambda start: start.idle_percent),
        )
        for row in footprints
    ]
    head = ("delivery", "units", "RSS", "private", "peak RSS", "CPU, % of a core")
    return f"## The agent at rest\n\n{words}\n\n{table(head, rows)}\n"


def _starting(starting: Starting) -> str:
    pairs = len(starting.pairs[WAYS[0]])
    words = (
        f"From the moment at which a watcher of the API server sees a pod bound to the first line that its container prints, "
        f"which is what it sees of the cards, by containerd's clock for that line. {pairs} pairs a row: a pod that asks for "
        f"nothing, then one that asks for a card, each alone on the node. Median (least–most)."
    )
    head = ("delivery", "asks for nothing, ms", "asks for a card, ms", "card ÷ nothing", "card − nothing, ms")
    rows = [(way, *_pairs(starting.pairs[way])) for way in WAYS if starting.pairs.get(way)]
    return f"## From bound to running\n\n{words}\n\n{table(head, rows)}\n"


def _pairs(pairs: tuple[PodPair, ...]) -> tuple[str, ...]:
    nothing, card = [pair.nothing_ms for pair in pairs], [pair.card_ms for pair in pairs]
    more = [this - that for this, that in zip(card, nothing, strict=True)]
    return tuple(spread(Spread.of(values)) for values in (nothing, card, ratios(card, nothing, float), more))


def _added(starting: Starting) -> str:
    words = (
        f"What containerd itself says that it waited for the agent (its metric containerd_nri_plugin_latency_seconds) while the "
        f"{starting.containers} containers above were made with delivery `nri`; it asks about those without a card, too."
    )
    rows = [(one.operation, str(one.calls), number(one.mean_ms)) for one in starting.latencies]
    if starting.containers:
        rows.append(("all, for each container", "", f"**{number(added_ms(starting))}**"))
    return f"## Time added by NRI\n\n{words}\n\n{table(('call', 'calls', 'mean, ms'), rows)}\n"


def _rushes(rushes: tuple[Rush, ...]) -> str:
    words = (
        f"{rushes[0].pods} equal pods are created at once, and when a third of them is bound, one process is killed with SIGKILL "
        f"and started again. Assigned: the container sees just the card of its record. Misassigned: another card. Without a "
        f"card: none. Failed: rejected by kubelet at admission. Records corrected: to the card that kubelet allocated. A pod "
        f"represents the agent: its readiness probe asks the agent each second, and the extender watches it."
    )
    head = ("delivery", "killed", "pods", "assigned", "misassigned", "without a card", "failed", "pending", "records corrected")
    rows = []
    for way, victim in dict.fromkeys((rush.way, rush.victim) for rush in rushes):
        these = [rush for rush in rushes if (rush.way, rush.victim) == (way, victim)]
        columns = ("pods", "assigned", "misassigned", "without_card", "failed", "pending", "corrected")
        counts = [sum(getattr(rush, column) for rush in these) for column in columns]
        rows.append((way, victim, *map(str, counts)))
    return f"## A rush with a kill in the middle\n\n{words}\n\n{table(head, rows)}\n"
