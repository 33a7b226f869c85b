"""Measures pods bound per second with a full queue, with the extender and without.

Belongs here: one run of one variant, and the order of the runs. Never: comparing them (document.py, goals.py).

The pods exist before the scheduler starts, so its queue is full. All variants run in turn in every round, and only variants of
one round are compared, because a slow minute of the machine affects all of them.
"""

import asyncio
import time
from contextlib import AsyncExitStack, aclosing
from typing import Final

import msgspec

from bench import workload
from bench.figures import Moment, Pace, middle_of, pace
from bench.noise import NoiseMeter
from bench.procfs import cpu_s, machine_cpu_s
from bench.results import VARIANTS, Throughput
from bench.scene import PODS, Extender, Scene
from cluster.process import Process

LIMIT_S: Final = 300.0


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


async def measure(scene: Scene, noise: NoiseMeter, *, nodes: int, pods: int, rounds: int) -> Throughput:
    await scene.grow_to(nodes)
    paces: dict[str, list[Pace]] = {variant: [] for variant in VARIANTS}
    for round_ in range(1, rounds + 1):
        for number, (variant, shortlist) in enumerate(VARIANTS.items()):
            noise.listen()
            scene.progress.doing(f"throughput, {nodes:,} nodes, round {round_} of {rounds}: {variant}")
            measured = await _run(scene, f"queue-{round_}-{number}", pods, shortlist)
            await scene.clear_pods()
            paces[variant].append(measured)
            scene.progress.say(
                f"  {measured.pods_per_s:.1f} pods/s, CPU a pod: scheduler {measured.scheduler_ms:.2f} ms, "
                f"extender {measured.extender_ms:.2f} ms, API server {measured.api_server_ms:.2f} ms; "
                f"others took {measured.others_cores:.2f} cores"
            )
    noise.listen()
    return Throughput(nodes, pods, {variant: tuple(measured) for variant, measured in paces.items()})


async def _run(scene: Scene, prefix: str, pods: int, shortlist: int | None) -> Pace:
    await scene.create(PODS, (workload.pod(f"{prefix}-{number:05d}") for number in range(pods)), pods)
    async with AsyncExitStack() as running:
        extender = None if shortlist is None else await running.enter_async_context(scene.extender(shortlist=shortlist))
        listed = msgspec.json.decode(await scene.client.request("GET", PODS, params={"limit": "1"}), type=dict[str, object])
        version = msgspec.convert(listed["metadata"], dict[str, object])["resourceVersion"]
        scheduler = await running.enter_async_context(scene.scheduler(extender.url if extender else ""))
        async with asyncio.timeout(LIMIT_S):
            return await _watch_binds(scene, str(version), pods, scheduler, extender)


async def _watch_binds(scene: Scene, version: str, pods: int, scheduler: Process, extender: Extender | None) -> Pace:
    """The pace of the middle pods, from a watch that sees them get their nodes."""
    start, end = middle_of(pods)
    moments: dict[int, Moment] = {}
    bound: set[str] = set()
    while True:
        async with aclosing(scene.client.watch(PODS, resource_version=version, timeout_s=LIMIT_S)) as events:
            async for event in events:
                if event.type != "MODIFIED":
                    continue
                pod = _decode(event.object)
                version = pod.metadata.resource_version
                if not pod.spec.node_name or pod.metadata.name in bound:
                    continue
                if extender is not None and workload.ASSIGNMENT not in pod.metadata.annotations:
                    raise RuntimeError(f"pod {pod.metadata.name} was bound without the extender, so this run is invalid")
                bound.add(pod.metadata.name)
                if len(bound) in (start, end):
                    moments[len(bound)] = _now(len(bound), scene, scheduler, extender)
                if len(bound) == pods:
                    return pace(moments[start], moments[end])
        # On a busy machine the API server ends the watch of a slow client; the next watch has the missed events.
        scene.progress.say(f"  the watch ended when {len(bound)} of {pods} pods were bound; watching again")


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
