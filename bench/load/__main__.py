"""The command line: `python -m bench.load` runs the load and writes docs/benchmarks-load.md.

Belongs here: options, where the page goes. Never: a measurement.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from bench.load.document import document
from bench.load.goals import verdicts
from bench.load.measuring import measure
from bench.load.results import LoadResults
from bench.load.settings import FULL, QUICK, LoadSettings
from bench.measurement import ROOT, run
from bench.noise import NoiseMeter
from bench.procfs import load, machine
from bench.progress import Progress
from bench.scene import open_scene, versions
from cluster.control_plane import ControlPlane

PAGE: Final = ROOT / "docs/benchmarks-load.md"


@dataclass(frozen=True, slots=True)
class LoadPlan:
    settings: LoadSettings
    writes: bool


def main(arguments: Sequence[str] | None = None) -> int:
    plan = _plan(arguments)
    return run(
        partial(_measure, plan.settings),
        document=document,
        verdicts=lambda results: verdicts(results.run),
        page=PAGE if plan.writes else None,
    )


def _measure(settings: LoadSettings, progress: Progress) -> LoadResults:
    with (
        tempfile.TemporaryDirectory(prefix="accelshare-load-") as directory,
        ControlPlane.start(Path(directory) / "plane", progress.say, controllers=None) as plane,
    ):
        return asyncio.run(_run(plane, settings, progress))


async def _run(plane: ControlPlane, settings: LoadSettings, progress: Progress) -> LoadResults:
    async with open_scene(plane, progress) as scene, progress.beating():
        noise = NoiseMeter(load)
        for _ in range(3):
            noise.listen()
        measured = await measure(scene, noise, settings)
        for _ in range(3):
            noise.listen()
        return LoadResults(machine(), noise.summary(), versions(), measured)


def _plan(arguments: Sequence[str] | None) -> LoadPlan:
    parser = argparse.ArgumentParser(prog="python -m bench.load", description="Measure the extender while pods come and go.")
    parser.add_argument("--quick", action="store_true", help="small sizes, to test the code; prints the page and writes no file")
    parser.add_argument("--seconds", type=float, metavar="S", help="how long the load lasts; writes no file")
    parser.add_argument("--seed", type=int, default=FULL.seed, help="which pods come and go")
    options = parser.parse_args(arguments)
    settings = replace(QUICK if options.quick else FULL, seed=options.seed)
    if options.seconds is not None:
        settings = replace(settings, duration_s=options.seconds, every_s=min(settings.every_s, options.seconds / 10))
    return LoadPlan(settings, not (options.quick or options.seconds))


if __name__ == "__main__":
    sys.exit(main())
