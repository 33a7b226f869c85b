"""Measures memory and start-up of the extender in a large cluster with many pods.

Belongs here: creating the pods, starting the extender several times, and the cost of one more pod. Never: how memory is used.
"""

import asyncio
import sys
import time
from typing import Final

from bench import workload
from bench.growth import one_step
from bench.noise import NoiseMeter
from bench.procfs import cpu_s, memory
from bench.results import BareStart, Crowd, Start, Step
from bench.scene import PODS, Extender, Scene
from cluster.process import Process

IMPORTS: Final = "import time, asyncio, ssl, msgspec, orjson, uvloop; print(time.process_time())"
LOOK_EVERY_S: Final = 0.05  # each look costs the extender 0.3 ms of the time that is measured
LIMIT_S: Final = 120.0
SETTLE_S: Final = 1.0


async def measure(scene: Scene, noise: NoiseMeter, *, nodes: int, pods: int, starts: int, step_pods: int) -> Crowd:
    """Must run last: deleting this many pods exceeds the API server's request timeout, so they stay."""
    await scene.grow_to(nodes)
    nodes = scene.nodes
    scene.progress.doing(f"creating {pods:,} bound pods on {nodes:,} nodes")
    bodies = await scene.create(PODS, (workload.crowd_pod(number, nodes) for number in range(pods)), pods)
    await asyncio.sleep(2)  # the API server still processes the new pods
    measured: list[Start] = []
    bare: list[BareStart] = []
    steps: list[Step] = []
    for number in range(1, starts + 1):
        noise.listen()
        scene.progress.doing(f"start {number} of {starts} with {nodes:,} nodes and {pods:,} pods")
        bare.append(await asyncio.to_thread(_bare_start, scene, number))
        begun = time.perf_counter()
        async with scene.extender(wait_ready=False) as extender:
            measured.append(await asyncio.to_thread(_watch_start, extender, begun))
            scene.progress.say(f"  ready in {measured[-1].wall_s:.2f} s, {measured[-1].memory.rss_mb:.0f} MB")
            if number == starts:
                scene.progress.doing(f"growth with {nodes:,} nodes and {pods:,} pods there")
                steps.append(await one_step(scene, extender, nodes=nodes, pods_before=pods, pods=step_pods))
    return Crowd(nodes, pods, len(bodies[-1]), tuple(measured), tuple(bare), tuple(steps))


def _watch_start(extender: Extender, begun: float) -> Start:
    while not extender.ready():
        if not extender.process.running or time.perf_counter() - begun > LIMIT_S:
            raise RuntimeError(f"the extender was not ready within {LIMIT_S:g} s:\n{extender.process.last_lines()}")
        time.sleep(LOOK_EVERY_S)
    wall_s, used_s = time.perf_counter() - begun, cpu_s(extender.pid)
    time.sleep(SETTLE_S)
    return Start(wall_s, used_s, memory(extender.pid))


def _bare_start(scene: Scene, number: int) -> BareStart:
    """The start of a Python that only imports the libraries of such a server."""
    begun = time.perf_counter()
    process = Process("bare-start", [sys.executable, "-c", IMPORTS], scene.plane.directory / f"bare-start-{number}.log")
    while process.running:
        if time.perf_counter() - begun > LIMIT_S:
            process.stop()
            raise RuntimeError(f"a Python that only imports did not end within {LIMIT_S:g} s")
        time.sleep(LOOK_EVERY_S / 2)
    wall_s = time.perf_counter() - begun
    return BareStart(wall_s, float(process.log.read_text()))
