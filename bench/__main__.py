"""The command line: `python -m bench` measures everything and writes docs/benchmarks.md.

Belongs here: options, the order of the measurements, where the page goes. Never: a measurement.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from bench import arrivals, calls, crowd, first_byte, growth, scrape, throughput
from bench.document import document
from bench.goals import verdicts
from bench.gpushare import Gpushare, NotServedError, check_checkout
from bench.measurement import ROOT, run
from bench.noise import NoiseMeter
from bench.procfs import load, machine
from bench.progress import Progress
from bench.results import OF_GPUSHARE, Arrivals, Call, Crowd, FirstByte, Results, Scrape, Step, Throughput
from bench.scene import Scene, open_scene, versions
from bench.settings import FULL, QUICK, Queue, Settings, with_nodes, with_rounds
from cluster.control_plane import ControlPlane

PAGE: Final = ROOT / "docs/benchmarks.md"
MEASURES: Final = ("startup", "throughput", "arrivals", "calls", "growth", "scrape", "crowd")
# With one worker, the API server takes longer to delete a run's pods than the run itself.
API_SERVER_ARGS: Final = ("--delete-collection-workers=16",)


@dataclass(frozen=True, slots=True)
class Plan:
    settings: Settings
    measures: tuple[str, ...]
    writes: bool
    gpushare: Gpushare


def main(arguments: Sequence[str] | None = None) -> int:
    plan = _plan(arguments)
    return run(partial(_measure_all, plan), document=document, verdicts=verdicts, page=PAGE if plan.writes else None)


def _measure_all(plan: Plan, progress: Progress) -> Results:
    noise = NoiseMeter(load)
    for _ in range(3):
        noise.listen()
    queues = plan.settings.queues if "throughput" in plan.measures else ()
    programs, origin = _gpushare(plan, queues, progress)
    queues = tuple(queue for queue in queues if programs or not queue.of_gpushare)
    rates = tuple(_measure_queue(queue, noise, progress, programs) for queue in queues)
    with _control_plane(progress) as plane:
        results = asyncio.run(_measure(plane, plan, noise, progress))
    return replace(results, throughput=rates, gpushare=origin)


def _gpushare(plan: Plan, queues: Sequence[Queue], progress: Progress) -> tuple[Mapping[str, Path], str]:
    """The programs of gpushare's rows and where they are from; or none, and why."""
    if not any(queue.of_gpushare for queue in queues):
        return {}, ""
    try:
        return {variant: plan.gpushare.program(variant, progress.say) for variant in OF_GPUSHARE}, plan.gpushare.origin
    except NotServedError as error:
        progress.say(f"gpushare's extender is left out: {error}")
        return {}, str(error)


def _measure_queue(queue: Queue, noise: NoiseMeter, progress: Progress, programs: Mapping[str, Path]) -> Throughput:
    """On a control plane of its own: one that has gone through other queues may be slower."""

    async def measure(plane: ControlPlane) -> Throughput:
        async with open_scene(plane, progress) as scene, progress.beating():
            return await throughput.measure(scene, noise, queue, programs)

    with _control_plane(progress) as plane:
        return asyncio.run(measure(plane))


@contextlib.contextmanager
def _control_plane(progress: Progress) -> Iterator[ControlPlane]:
    with (
        tempfile.TemporaryDirectory(prefix="accelshare-bench-") as directory,
        ControlPlane.start(Path(directory) / "plane", progress.say, controllers=None, api_server_args=API_SERVER_ARGS) as plane,
    ):
        yield plane


async def _measure(plane: ControlPlane, plan: Plan, noise: NoiseMeter, progress: Progress) -> Results:
    """All but the queues, from the smallest cluster to the largest, because nodes are only ever added."""
    streams: list[Arrivals] = []
    called: list[Call] = []
    steps: list[Step] = []
    first_bytes: tuple[FirstByte, ...] = ()
    scraped: Scrape | None = None
    crowded: Crowd | None = None
    async with open_scene(plane, progress) as scene, progress.beating():
        if "startup" in plan.measures:
            first_bytes = await first_byte.measure(scene, noise, starts=plan.settings.inspects)
        for nodes in _sizes(plan):
            if "arrivals" in plan.measures:
                streams += [await arrivals.measure(scene, noise, each) for each in plan.settings.streams if each.nodes == nodes]
            if "calls" in plan.measures and nodes in plan.settings.call_nodes:
                called += await calls.measure(scene, noise, nodes=nodes, calls=plan.settings.calls)
            if "growth" in plan.measures and nodes in plan.settings.growth_nodes:
                steps += await growth.measure(
                    scene, noise, nodes=nodes, steps=plan.settings.growth_steps, step_pods=plan.settings.growth_step_pods
                )
        if "scrape" in plan.measures:
            scraped = await _scrape(scene, noise, plan.settings)
        if "crowd" in plan.measures:
            crowded = await _crowd(scene, noise, plan.settings)
    for _ in range(3):
        noise.listen()
    return Results(
        machine=machine(),
        noise=noise.summary(),
        versions=versions(),
        throughput=(),
        arrivals=tuple(streams),
        calls=tuple(called),
        steps=tuple(steps),
        crowd=crowded,
        first_bytes=first_bytes,
        scrape=scraped,
    )


async def _scrape(scene: Scene, noise: NoiseMeter, settings: Settings) -> Scrape:
    return await scrape.measure(
        scene, noise, nodes=settings.scrape_nodes, calls=settings.scrape_calls, rounds=settings.scrape_rounds
    )


async def _crowd(scene: Scene, noise: NoiseMeter, settings: Settings) -> Crowd:
    return await crowd.measure(
        scene,
        noise,
        nodes=settings.crowd_nodes,
        pods=settings.crowd_pods,
        starts=settings.starts,
        step_pods=settings.growth_step_pods,
    )


def _sizes(plan: Plan) -> list[int]:
    settings = plan.settings
    wanted = {
        "arrivals": tuple(stream.nodes for stream in settings.streams),
        "calls": settings.call_nodes,
        "growth": settings.growth_nodes,
    }
    return sorted({nodes for measure in plan.measures for nodes in wanted.get(measure, ())})


def _plan(arguments: Sequence[str] | None) -> Plan:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure accelshare on a real control plane.")
    parser.add_argument("--quick", action="store_true", help="small sizes, to test the code; prints the page and writes no file")
    parser.add_argument("--only", choices=MEASURES, action="append", help="measure only this; can be repeated; writes no file")
    parser.add_argument("--nodes", type=_numbers, metavar="N,N", help="numbers of nodes for throughput; writes no file")
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds of throughput at each size")
    parser.add_argument(
        "--gpushare-source",
        type=Path,
        metavar="DIR",
        help="a checkout of gpushare's extender, where the Go module proxy has none",
    )
    options = parser.parse_args(arguments)
    if options.gpushare_source is not None:
        try:
            check_checkout(options.gpushare_source)
        except ValueError as error:
            parser.error(f"--gpushare-source: {error}")
    settings = QUICK if options.quick else FULL
    if options.rounds is not None:
        if options.rounds < 1:
            parser.error(f"--rounds is {options.rounds}; it must be at least 1")
        settings = with_rounds(settings, options.rounds)
    if options.nodes is not None:
        settings = with_nodes(settings, options.nodes)
    complete = not (options.quick or options.only or options.nodes)
    return Plan(settings, tuple(options.only or MEASURES), complete, Gpushare(options.gpushare_source))


def _numbers(text: str) -> tuple[int, ...]:
    sizes = tuple(sorted({int(part) for part in text.split(",")}))
    if not sizes or sizes[0] < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers of nodes, such as 1000,5000")
    return sizes


if __name__ == "__main__":
    sys.exit(main())
