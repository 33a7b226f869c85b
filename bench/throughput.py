"""Measures pods bound per second with a full queue, with the extender and without.

Belongs here: one run of one variant, and the order of the runs. Never: comparing them (document.py, goals.py).

kube-scheduler is paused while the pods are created, so its queue is full and in the order of their creation, as if it had been
busy. (A kube-scheduler that starts later has pods that wait already in no order: client-go lists them into a map.) All variants
run in turn in every round, and only variants of one round are compared, because a slow minute of the machine affects all of them.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from bench import workload
from bench.figures import Moment, Pace, middle_of, pace
from bench.noise import NoiseMeter
from bench.procfs import cpu_s, machine_cpu_s
from bench.results import BARE, LEAST, OF_GPUSHARE, PROMISES, VARIANTS, Throughput
from bench.scene import PODS, Extender, Scene
from bench.settings import Queue
from cluster.process import Process

LIMIT_S: Final = 300.0
ATTEMPTS: Final = 5
_PROMISES: Final = re.compile(r'^accelshare_promises_total\{outcome="(?P<outcome>[^"]+)"\} (?P<count>[0-9.e+]+)$', re.MULTILINE)

_CONNECTIONS: Final = re.compile(r"^accelshare_tls_connections_total (?P<count>[0-9.e+]+)$", re.MULTILINE)


class WatchEndedError(Exception):
    """The benchmark has not seen all binds at their time."""


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    resource_version: str
    annotations: dict[str, str] = {}


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec


_decode: Final = msgspec.json.Decoder(_Pod).decode


async def measure(scene: Scene, noise: NoiseMeter, queue: Queue, programs: Mapping[str, Path]) -> Throughput:
    """`programs`: of the rows that are not ours and that need one."""
    await scene.grow_to(queue.nodes)
    paces: dict[str, list[Pace]] = {variant: [] for variant in queue.variants}
    where = f"{queue.nodes:,} nodes" + (f", {queue.shapes} shapes" if queue.shapes > 1 else "")
    for round_ in range(1, queue.rounds + 1):
        for number, variant in enumerate(queue.variants):
            noise.listen()
            scene.progress.doing(f"throughput, {where}, round {round_} of {queue.rounds}: {variant}")
            measured = await _observed(scene, f"queue-{round_}-{number}", queue, variant, programs)
            paces[variant].append(measured)
            scene.progress.say(
                f"  {measured.pods_per_s:.1f} pods/s, CPU a pod: scheduler {measured.scheduler_ms:.2f} ms, "
                f"extender {measured.extender_ms:.2f} ms, API server {measured.api_server_ms:.2f} ms; "
                f"others took {measured.others_cores:.2f} cores"
                + (f"; {measured.wasted:.0%} of the promises wasted" if variant == PROMISES else "")
            )
    noise.listen()
    return Throughput(
        queue.nodes, queue.pods, {variant: tuple(measured) for variant, measured in paces.items()}, shapes=queue.shapes
    )


async def _observed(scene: Scene, prefix: str, queue: Queue, variant: str, programs: Mapping[str, Path]) -> Pace:
    """A run whose watch saw every bind in time."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return await _run(scene, f"{prefix}-{attempt}", queue, variant, programs)
        except WatchEndedError as error:
            scene.progress.say(f"  {error}; once more")
        finally:
            await scene.clear_pods()
    raise RuntimeError(f"in none of {ATTEMPTS} runs the API server let the benchmark watch all binds: the machine is too busy")


async def _run(scene: Scene, prefix: str, queue: Queue, variant: str, programs: Mapping[str, Path]) -> Pace:
    names = (f"{prefix}-{number:05d}" for number in range(queue.pods))
    one = workload.pod if queue.shapes == 1 else workload.mixed_pods(queue.shapes)
    async with AsyncExitStack() as running:
        extender = None if variant == BARE else await running.enter_async_context(_extender(scene, variant, programs))
        scheduler = await running.enter_async_context(scene.scheduler(extender))
        version = await scene.version_of_pods()
        async with asyncio.timeout(LIMIT_S):
            with _paused(scheduler):
                await scene.create(PODS, map(one, names), queue.pods)
                watching = asyncio.Event()
                pacing = asyncio.create_task(_pace(scene, version, queue.pods, scheduler, extender, on_open=watching.set))
                running.push_async_callback(_end, pacing)
                pacing.add_done_callback(lambda _: watching.set())  # also if it fails
                await watching.wait()
            measured = await pacing
        if extender is None or not extender.has_metrics:
            return measured
        metrics = await asyncio.to_thread(extender.metrics)
        return replace(measured, wasted=wasted(metrics), connections=connections(metrics) / queue.pods)


def _extender(scene: Scene, variant: str, programs: Mapping[str, Path]) -> contextlib.AbstractAsyncContextManager[Extender]:
    if variant in OF_GPUSHARE:
        return scene.gpushare(programs[variant], variant)
    return scene.least_extender() if variant == LEAST else scene.extender(*(VARIANTS[variant] or ()), tls=True)


@contextlib.contextmanager
def _paused(process: Process) -> Iterator[None]:
    process.pause()
    try:
        yield
    finally:
        process.resume()


async def _end(task: asyncio.Task[Pace]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _pace(
    scene: Scene, version: str, pods: int, scheduler: Process, extender: Extender | None, *, on_open: Callable[[], None]
) -> Pace:
    """The pace of the middle pods, from a watch that sees them get their nodes. `on_open` is called when it is there."""
    start, end = middle_of(pods)
    moments: dict[int, Moment] = {}
    bound = 0
    record = extender.record if extender is not None else ""
    async with aclosing(binds(scene, version, record=record, resume=False, on_open=on_open)) as seen:
        async for _ in seen:
            bound += 1
            if bound in (start, end):
                moments[bound] = _now(bound, scene, scheduler, extender)
            if bound == pods:
                break
    return pace(moments[start], moments[end])


async def binds(
    scene: Scene, version: str, *, record: str, resume: bool = True, on_open: Callable[[], None] = lambda: None
) -> AsyncGenerator[str]:
    """The names of pods, each when the watch shows its node for the first time. Without an end. Each must have this annotation.

    On a busy machine the API server may end the watch of a slow client. The next watch has the missed events, but late: without
    `resume`, WatchEndedError is raised instead.
    """
    bound: set[str] = set()
    only_bound = {"fieldSelector": "spec.nodeName!="}
    while True:
        watch = scene.client.watch(
            PODS, resource_version=version, params=only_bound, timeout_s=LIMIT_S, on_open=lambda _: on_open()
        )
        async with aclosing(watch) as events:
            async for event in events:
                if event.type not in ("ADDED", "MODIFIED"):
                    continue
                pod = _decode(event.object)
                version = pod.metadata.resource_version
                if not pod.spec.node_name or pod.metadata.name in bound:
                    continue
                if record and record not in pod.metadata.annotations:
                    raise RuntimeError(f"pod {pod.metadata.name} was bound without the extender, so this run is invalid")
                bound.add(pod.metadata.name)
                yield pod.metadata.name
        if not resume:
            raise WatchEndedError(f"the watch ended when {len(bound)} pods were bound")
        scene.progress.say(f"  the watch ended when {len(bound)} pods were bound; watching again")


def wasted(metrics: str) -> float:
    """The part of all promises that was not kept, from a metrics page; 0 if there were none."""
    counts = {match["outcome"]: float(match["count"]) for match in _PROMISES.finditer(metrics)}
    total = sum(counts.values())
    return 1 - counts.get("kept", 0.0) / total if total else 0.0


def connections(metrics: str) -> float:
    """How many TLS connections were opened to the extender, from a metrics page."""
    found = _CONNECTIONS.search(metrics)
    return float(found["count"]) if found else 0.0


def _now(bound: int, scene: Scene, scheduler: Process, extender: Extender | None) -> Moment:
    serving = [process.pid for process in scene.plane.processes if process.name in ("etcd", "kube-apiserver")]
    return Moment(
        bound=bound,
        at_s=time.perf_counter(),
        scheduler_cpu_s=cpu_s(scheduler.pid),
        extender_cpu_s=cpu_s(extender.pid) if extender is not None else 0.0,
        api_server_cpu_s=sum(cpu_s(pid) for pid in serving),
        observer_cpu_s=time.process_time(),
        machine_cpu_s=machine_cpu_s(),
    )
