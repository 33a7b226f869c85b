"""The time from the bind of a pod to the first line of its container, with a card and without.

Belongs here: the clocks. Never: how pods are made (real_node.py).
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from datetime import datetime

import msgspec

from accelshare.kube.watch import Reflector, Seen
from bench.node.latency import between, latencies
from bench.node.real_node import LABEL, PODS, Object, RealBenchNode
from bench.node.results import NRI, WAYS, Latency, PodPair, Starting
from bench.noise import NoiseMeter
from bench.progress import Progress

PLUGIN = "accelshare"  # as containerd knows the agent
UNITS = 2


async def measure(node: RealBenchNode, noise: NoiseMeter, progress: Progress, *, rounds: int, pairs: int) -> Starting:
    """Both ways in each round; in each, pods with and without a card take turns."""
    found: dict[str, list[PodPair]] = {way: [] for way in WAYS}
    counted: dict[str, Latency] = {}
    for number in range(rounds):
        for way in WAYS:
            progress.doing(f"pods one after the other, {way}: round {number + 1} of {rounds}, {pairs} pairs")
            await node.deliver_by(way)
            noise.listen()
            async with _binds(node) as bound:
                await _started(node, bound, "warm", UNITS)
                before = latencies(node.runtime_metrics(), PLUGIN)
                for place in range(pairs):
                    nothing = await _started(node, bound, f"n{place}", 0)
                    found[way].append(PodPair(nothing, await _started(node, bound, f"c{place}", UNITS)))
                    progress.detail(f"{place + 1} pairs")
            if way == NRI:
                for latency in between(before, latencies(node.runtime_metrics(), PLUGIN)):
                    old = counted.get(latency.operation, Latency(latency.operation, 0, 0.0))
                    calls, total_s = old.calls + latency.calls, old.total_s + latency.total_s
                    counted[latency.operation] = Latency(latency.operation, calls, total_s)
    return Starting(
        pairs={way: tuple(times) for way, times in found.items()},
        latencies=tuple(counted[name] for name in sorted(counted)),
        containers=2 * rounds * pairs,
    )


async def _started(node: RealBenchNode, bound: dict[str, float], name: str, units: int) -> float:
    """From the moment at which a watcher saw its bind to its container's first line, in ms. The pod is gone afterwards."""
    await node.pod(name, units)
    line = ""

    async def printed() -> bool:
        nonlocal line
        if name in bound and (await node.read(f"{PODS}/{name}"))["status"]["phase"] == "Running":
            line = await node.first_line(name)
        return bool(line)

    await node.until(printed, f"{name} has printed what it sees")
    when, _, text = line.partition(" ")
    if len(text.split()) != (2 if units else 1):
        raise RuntimeError(f"pod {name}, which asks {units} units, printed {text!r}")
    took_ms = 1000 * (datetime.fromisoformat(when).timestamp() - bound.pop(name))
    await node.clear()
    return took_ms


@contextlib.asynccontextmanager
async def _binds(node: RealBenchNode) -> AsyncIterator[dict[str, float]]:
    """When each pod was first seen on a node, by name: the same news that kubelet has, at the same time."""
    bound: dict[str, float] = {}
    there: set[str] = set()

    async def follow() -> None:
        reflector: Reflector[Object] = Reflector(
            node.client,
            PODS,
            decode=lambda raw: msgspec.json.decode(raw, type=Object),
            identity=lambda pod: str(pod["metadata"]["uid"]),
            params={"labelSelector": LABEL},
        )
        async for change in reflector.changes():
            if isinstance(change, Seen) and change.obj["spec"].get("nodeName"):
                uid = change.obj["metadata"]["uid"]
                if uid not in there:
                    there.add(uid)
                    bound[change.obj["metadata"]["name"]] = time.time()

    following = asyncio.create_task(follow())
    try:
        yield bound
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
