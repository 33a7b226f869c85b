"""Measures how long pods wait for their node if they arrive at a steady rate, with the extender and without.

Belongs here: creating pods on time, and the time from creation to bound. Never: comparing (document.py).
"""

import asyncio
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack, aclosing
from typing import Any, Final

import msgspec

from bench import workload
from bench.noise import NoiseMeter
from bench.results import MAIN, VARIANTS, Arrivals, Waits
from bench.scene import PODS, Scene
from bench.settings import Stream
from bench.throughput import binds

LIMIT_S: Final = 300.0
WARM_UP: Final = 10  # pods that are bound before the clock starts


async def measure(scene: Scene, noise: NoiseMeter, stream: Stream) -> Arrivals:
    await scene.grow_to(stream.nodes)
    waits: dict[str, list[Waits]] = {variant: [] for variant in MAIN}
    for round_ in range(1, stream.rounds + 1):
        for number, variant in enumerate(MAIN):
            noise.listen()
            scene.progress.doing(
                f"{stream.per_s:g} pods a second, {stream.nodes:,} nodes, round {round_} of {stream.rounds}: {variant}"
            )
            waits[variant].append(await _run(scene, f"stream-{round_}-{number}", stream, VARIANTS[variant]))
            await scene.clear_pods()
            scene.progress.say(f"  p50 {waits[variant][-1].p50_ms:.0f} ms, p99 {waits[variant][-1].p99_ms:.0f} ms")
    noise.listen()
    return Arrivals(stream.nodes, stream.pods, stream.per_s, {variant: tuple(measured) for variant, measured in waits.items()})


async def _run(scene: Scene, prefix: str, stream: Stream, flags: tuple[str, ...] | None) -> Waits:
    names = [f"{prefix}-{number:05d}" for number in range(WARM_UP + stream.pods)]
    sent: dict[str, float] = {}
    bound: dict[str, float] = {}

    async def create(name: str) -> None:
        body = msgspec.json.encode(workload.pod(name))
        sent[name] = time.perf_counter()
        await scene.client.request("POST", PODS, body=body, timeout_s=60)

    async with AsyncExitStack() as running:
        extender = None if flags is None else await running.enter_async_context(scene.extender(*flags, tls=True))
        version = await scene.version_of_pods()
        await running.enter_async_context(scene.scheduler(extender))
        seen = await running.enter_async_context(
            aclosing(binds(scene, version, record=extender.record if extender is not None else ""))
        )
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as creating:
            for name in names[:WARM_UP]:
                creating.create_task(create(name))
            while len(bound) < WARM_UP:
                name = await anext(seen)
                bound[name] = time.perf_counter()
            creating.create_task(_on_time([create(name) for name in names[WARM_UP:]], stream.per_s))
            while len(bound) < len(names):
                name = await anext(seen)
                bound[name] = time.perf_counter()
    return Waits.of(1000 * (bound[name] - sent[name]) for name in names[WARM_UP:])


async def _on_time(works: list[Coroutine[Any, Any, None]], per_s: float) -> None:
    """Each begins at its time, whether or not those before it have ended."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.TaskGroup() as running:
        for number, work in enumerate(works):
            await asyncio.sleep(began + number / per_s - loop.time())
            running.create_task(work)
