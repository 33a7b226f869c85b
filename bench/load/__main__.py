"""The command line: `python -m bench.load` runs the load and writes docs/benchmarks-load.md.

Belongs here: options, where the page goes. Never: a measurement.
"""

import argparse
import asyncio
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from accelshare.kube.errors import KubeError
from bench.load.document import document
from bench.load.goals import verdicts
from bench.load.measuring import measure
from bench.load.results import LoadResults
from bench.load.settings import FULL, QUICK, LoadSettings
from bench.noise import NoiseMeter
from bench.procfs import load, machine
from bench.progress import Progress
from bench.scene import ROOT, Scene, open_scene, versions
from cluster.control_plane import ControlPlane
from cluster.errors import ClusterError

PAGE: Final = ROOT / "docs/benchmarks-load.md"
ENDED_BY_SIGNAL: Final = 130


@dataclass(frozen=True, slots=True)
class LoadPlan:
    settings: LoadSettings
    writes: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """0 after measuring, also if goals were missed; 1 with an error if it could not measure; 130 if interrupted."""
    plan = _plan(arguments)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # so that both signals clean up
    progress = Progress()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="accelshare-load-") as directory,
            ControlPlane.start(Path(directory) / "plane", progress.say, controllers=None) as plane,
        ):
            results = asyncio.run(_run(plane, plan.settings, progress))
    except (ClusterError, KubeError, RuntimeError, TimeoutError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        progress.say("stopped")
        return ENDED_BY_SIGNAL
    report(results, progress, writes=plan.writes)
    return 0


async def _run(plane: ControlPlane, settings: LoadSettings, progress: Progress) -> LoadResults:
    async with open_scene(plane, progress) as scene, progress.beating():
        return await results_of(scene, settings)


async def results_of(scene: Scene, settings: LoadSettings) -> LoadResults:
    noise = NoiseMeter(load)
    for _ in range(3):
        noise.listen()
    run = await measure(scene, noise, settings)
    for _ in range(3):
        noise.listen()
    return LoadResults(machine(), noise.summary(), versions(), run)


def report(results: LoadResults, progress: Progress, *, writes: bool) -> None:
    page = document(results)
    print(f"\n{page}")
    for verdict in verdicts(results.run):
        progress.say(f"{'met' if verdict.met else 'NOT MET'}: {verdict.goal}: {verdict.measured}")
    if writes:
        PAGE.write_text(page)
        progress.say(f"written to {PAGE.relative_to(ROOT)}")


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
