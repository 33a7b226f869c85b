"""The command line: `python -m bench.node` measures everything and writes docs/benchmarks-node.md.

Belongs here: options, the order of the measurements, where the page goes. Never: a measurement.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from accelshare import __version__
from bench.measurement import ROOT, python_version, run
from bench.node import footprint, plugin_calls, rush, starting, zpu
from bench.node.document import document
from bench.node.goals import verdicts
from bench.node.real_node import open_real_bench_node
from bench.node.results import DEVICE_PLUGIN, NRI, Footprints, NodeResults, PluginCalls, Rush, Starting
from bench.node.settings import FULL, QUICK, NodeSettings
from bench.noise import NoiseMeter
from bench.procfs import load, machine
from bench.progress import Progress
from cluster.versions import CONTAINERD_VERSION, KUBERNETES_VERSION

PAGE: Final = ROOT / "docs/benchmarks-node.md"
REAL: Final = ("starting", "rush")  # on the local cluster
MEASURES: Final = ("calls", "footprint", *REAL)
# Of each size of card, how much of it pods ask for: the least there is, an eighth, all.
ASKS: Final = ((zpu.COARSE, (2,)), (zpu.FINE, (1, 504, 4032)))
RESTS: Final = ((NRI, zpu.COARSE), (NRI, zpu.FINE), (DEVICE_PLUGIN, zpu.COARSE), (DEVICE_PLUGIN, zpu.FINE))


@dataclass(frozen=True, slots=True)
class NodePlan:
    settings: NodeSettings
    measures: tuple[str, ...]
    writes: bool


def main(arguments: Sequence[str] | None = None) -> int:
    plan = _plan(arguments)
    if os.geteuid() != 0 and set(REAL) & set(plan.measures):
        print("error: a real kubelet needs root; use --only calls --only footprint without root", file=sys.stderr)
        return 1
    return run(
        lambda progress: asyncio.run(_measure(plan, progress)),
        document=document,
        verdicts=verdicts,
        page=PAGE if plan.writes else None,
    )


async def _measure(plan: NodePlan, progress: Progress) -> NodeResults:
    """First what needs the agent alone, then the local cluster."""
    settings, noise = plan.settings, NoiseMeter(load)
    for _ in range(3):
        noise.listen()
    calls: list[PluginCalls] = []
    rests: list[Footprints] = []
    started: Starting | None = None
    rushes: tuple[Rush, ...] = ()
    async with progress.beating():
        for size, asks in ASKS if "calls" in plan.measures else ():
            calls += await plugin_calls.measure(noise, progress, size=size, asks=asks, groups=settings.groups)
        for way, size in RESTS if "footprint" in plan.measures else ():
            rests.append(
                await footprint.measure(
                    noise,
                    progress,
                    way=way,
                    size=size,
                    starts=settings.starts,
                    settle_s=settings.settle_s,
                    idle_s=settings.idle_s,
                )
            )
        if set(REAL) & set(plan.measures):
            async with open_real_bench_node(progress) as node:
                if "starting" in plan.measures:
                    started = await starting.measure(node, noise, progress, rounds=settings.rounds, pairs=settings.pairs)
                if "rush" in plan.measures:
                    rushes = await rush.measure(node, noise, progress, rushes=settings.rushes, pods=settings.rush_pods)
    for _ in range(3):
        noise.listen()
    return NodeResults(
        machine=machine(),
        noise=noise.summary(),
        versions=_versions(),
        calls=tuple(calls),
        footprints=tuple(rests),
        starting=started,
        rushes=rushes,
    )


def _versions() -> dict[str, str]:
    return {
        "accelshare": __version__,
        "Python": python_version(),
        "Kubernetes": KUBERNETES_VERSION,
        "containerd": CONTAINERD_VERSION,
    }


def _plan(arguments: Sequence[str] | None) -> NodePlan:
    parser = argparse.ArgumentParser(prog="python -m bench.node", description="Measure accelshare's side of a node.")
    parser.add_argument("--quick", action="store_true", help="small sizes, to try the code; prints the page, writes nothing")
    parser.add_argument("--only", choices=MEASURES, action="append", help="only this, several times for several; writes nothing")
    options = parser.parse_args(arguments)
    settings = QUICK if options.quick else FULL
    return NodePlan(settings, tuple(options.only or MEASURES), not (options.quick or options.only))


if __name__ == "__main__":
    sys.exit(main())
