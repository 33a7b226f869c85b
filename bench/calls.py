"""Measures the cost of one filter or prioritize call, over HTTP on one keep-alive connection to an extender process, and of TLS.

Belongs here: making the same call many times. Never: a scheduler (throughput.py), calls that write (growth.py).

The wall time includes the client; the CPU time is the extender's alone.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from http.client import HTTPSConnection
from statistics import median
from typing import Final

import msgspec

from bench import workload
from bench.noise import NoiseMeter
from bench.procfs import cpu_s
from bench.results import Call
from bench.scene import PODS, Extender, Scene
from bench.workload import Object

KEPT_TLS: Final = "filter, over mutual TLS"
NEW_TLS: Final = "filter, over a new connection with mutual TLS"
FULL_OF_TEN = 8  # of every ten nodes, this many are full in the second half


async def measure(scene: Scene, noise: NoiseMeter, *, nodes: int, calls: int) -> list[Call]:
    """Every kind of call with the cluster empty, then with four of five nodes full."""
    await scene.grow_to(nodes)
    measured: list[Call] = []
    for full in (False, True):
        if full:
            numbers = [number for number in range(nodes) if number % 10 < FULL_OF_TEN]
            scene.progress.doing(f"filling {len(numbers):,} of {nodes:,} nodes")
            await scene.create(PODS, (workload.filler(number) for number in numbers), len(numbers))
        bodies = await _bodies(scene, nodes)
        noise.listen()
        async with scene.extender() as extender:
            for verb, body in bodies.items():
                scene.progress.doing(f"calls, {nodes:,} nodes, {'80 % full' if full else 'empty'}: {verb}")
                measured.append(await asyncio.to_thread(_many, extender, extender.call, verb, body, nodes, full, calls))
        async with scene.extender(tls=True) as extender:
            scene.progress.doing(f"calls, {nodes:,} nodes, {'80 % full' if full else 'empty'}: over mutual TLS")
            connection = extender.connect_tls()
            kept = partial(extender.call, connection=connection)
            new = partial(_call_anew, extender, connection)
            for verb, call in ((KEPT_TLS, kept), (NEW_TLS, new)):
                measured.append(await asyncio.to_thread(_many, extender, call, verb, bodies["filter"], nodes, full, calls))
            connection.close()
    await scene.clear_pods()
    return measured


async def _bodies(scene: Scene, nodes: int) -> dict[str, bytes]:
    """The request body of each kind of call, with a pod as the API server returns it."""
    created = (await scene.create(PODS, [workload.pod("candidate")], 1))[0]
    await scene.client.request("DELETE", f"{PODS}/candidate", params={"gracePeriodSeconds": "0"})
    preferring = msgspec.json.encode(workload.preferring(msgspec.json.decode(created, type=Object)))
    names = workload.names_json(nodes)
    items: list[Object] = []
    async for page in scene.client.pages("/api/v1/nodes"):
        items += [msgspec.json.decode(raw, type=Object) for raw in page.items]
    return {
        "filter": workload.call_with_names(created, names),
        "filter, answer names all that fit": workload.call_with_names(preferring, names),
        "filter, nodes sent whole": workload.call_with_nodes(created, items[:nodes]),
        "prioritize": workload.call_with_names(created, names),
    }


def _call_anew(extender: Extender, connection: HTTPSConnection, verb: str, body: bytes) -> bytes:
    connection.close()
    return extender.call(verb, body, connection)


def _many(
    extender: Extender, call: Callable[[str, bytes], bytes], verb: str, body: bytes, nodes: int, full: bool, calls: int
) -> Call:
    path = verb.partition(",")[0]
    calls = max(10, min(calls, 300_000_000 // len(body)))  # whole nodes are megabytes a call
    for _ in range(5):  # connections, caches and the first ranking
        call(path, body)
    walls: list[float] = []
    cpu_before = cpu_s(extender.pid)
    for _ in range(calls):
        begun = time.perf_counter()
        call(path, body)
        walls.append(time.perf_counter() - begun)
    cpu = cpu_s(extender.pid) - cpu_before
    return Call(verb, nodes, full, len(body) / 1000, 1000 * cpu / calls, 1000 * median(walls))
