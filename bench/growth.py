"""Measures the extender's CPU for one pod as nodes and pods grow: its creation event, filter, bind and the bind's event.

Belongs here: kube-scheduler's calls for one pod after the other, so that only the extender's own CPU counts.
Never: rates (throughput.py).
"""

import asyncio

import msgspec

from bench import workload
from bench.answers import BindAnswer, FilterAnswer, Pod
from bench.noise import NoiseMeter
from bench.procfs import cpu_s
from bench.results import Step
from bench.scene import PODS, Extender, Scene


async def measure(scene: Scene, noise: NoiseMeter, *, nodes: int, steps: int, step_pods: int) -> list[Step]:
    await scene.grow_to(nodes)
    measured: list[Step] = []
    async with scene.extender() as extender:
        for step in range(steps):
            noise.listen()
            before = step * step_pods
            scene.progress.doing(f"growth, {nodes:,} nodes: pods {before + 1:,} to {before + step_pods:,}")
            measured.append(await one_step(scene, extender, nodes=nodes, pods_before=before, pods=step_pods))
    await scene.clear_pods()
    return measured


async def one_step(scene: Scene, extender: Extender, *, nodes: int, pods_before: int, pods: int) -> Step:
    """Create pods, filter and bind each, and divide the CPU by their number."""
    names = workload.names_json(nodes)
    await asyncio.sleep(0.5)  # until the last step's binds are on the watch
    cpu_before = cpu_s(extender.pid)
    made = (workload.pod(f"step-{pods_before}-{number:05d}") for number in range(pods))
    created = await scene.create(PODS, made, pods)
    await asyncio.to_thread(_place_all, extender, created, names)
    await asyncio.sleep(0.5)
    return Step(nodes, pods_before, pods, 1000 * (cpu_s(extender.pid) - cpu_before) / pods)


def _place_all(extender: Extender, pods: list[bytes], names: bytes) -> None:
    for raw in pods:
        pod = msgspec.json.decode(raw, type=Pod).metadata
        filtered = msgspec.json.decode(extender.call("filter", workload.call_with_names(raw, names)), type=FilterAnswer)
        if filtered.error or not filtered.node_names:
            raise RuntimeError(f"filter found no node for {pod.name}: {filtered.error or 'every node refused'}")
        body = workload.bind_call(pod.name, pod.uid, filtered.node_names[0])
        bound = msgspec.json.decode(extender.call("bind", body), type=BindAnswer)
        if bound.error:
            raise RuntimeError(f"bind of {pod.name} failed: {bound.error}")
