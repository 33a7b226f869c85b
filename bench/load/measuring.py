"""Measures the extender under load: memory, CPU and latencies in windows, and at the end whether its sums are right.

Belongs here: filling the cluster, the windows, counting the pods again. Never: the load itself (churn.py).
"""

import asyncio
import time

import msgspec

from accelshare.kube.client import Client
from accelshare.kube.config import Cluster
from bench import workload
from bench.load.churn import Churn
from bench.load.results import LoadRun, Window
from bench.load.settings import LoadSettings
from bench.noise import NoiseMeter
from bench.procfs import cpu_s, load, memory
from bench.scene import PODS, Extender, Scene
from bench.workload import MEMORY

SETTLED_WITHIN_S = 60.0


async def measure(scene: Scene, noise: NoiseMeter, settings: LoadSettings) -> LoadRun:
    pods = await fill(scene, settings)
    scene.progress.doing(f"starting the extender with {settings.nodes:,} nodes and {len(pods):,} pods")
    async with (
        scene.extender("--shortlist=1") as extender,
        Client(Cluster(extender.url), user_agent="accelshare-bench") as calls,
    ):
        churn = Churn(scene.client, calls, workload.names_json(settings.nodes), pods, seed=settings.seed)
        noise.listen()
        scene.progress.doing(f"{settings.changes_per_s:g} changes of pods a second for {settings.duration_s:g} s")
        windows = await _under_load(scene, extender, churn, settings)
        noise.listen()
        peak_mb = memory(extender.pid).peak_mb
        counted, bound = await _sums(scene, calls)
        return LoadRun(
            settings=settings,
            windows=tuple(windows),
            pods_bound=churn.bound,
            retries=churn.retries,
            failures=tuple(churn.failures),
            peak_mb=peak_mb,
            counted_units=counted,
            bound_units=bound,
        )


async def fill(scene: Scene, settings: LoadSettings) -> list[str]:
    """Create nodes and bound pods; returns the names of the pods."""
    await scene.grow_to(settings.nodes)
    scene.progress.doing(f"creating {settings.pods:,} bound pods")
    made = [workload.crowd_pod(number, settings.nodes) for number in range(settings.pods)]
    await scene.create(PODS, made, settings.pods)
    return [pod["metadata"]["name"] for pod in made]


async def _under_load(scene: Scene, extender: Extender, churn: Churn, settings: LoadSettings) -> list[Window]:
    running = asyncio.create_task(churn.run(settings.changes_per_s, settings.duration_s))
    windows: list[Window] = []
    begun, changes, used_s = time.monotonic(), churn.changes, cpu_s(extender.pid)
    try:
        while not running.done():
            await asyncio.wait([running], timeout=settings.every_s)
            now, cpu_now_s = time.monotonic(), cpu_s(extender.pid)
            windows.append(
                Window(
                    seconds=now - begun,
                    changes=churn.changes - changes,
                    filter_ms=_taken(churn.filter_ms),
                    bind_ms=_taken(churn.bind_ms),
                    rss_mb=memory(extender.pid).rss_mb,
                    cpu_cores=(cpu_now_s - used_s) / (now - begun),
                    load=load(),
                )
            )
            begun, changes, used_s = now, churn.changes, cpu_now_s
            last = windows[-1]
            text = f"{last.changes / last.seconds:.0f} changes/s, {last.rss_mb:.1f} MB, {last.cpu_cores:.2f} cores"
            scene.progress.say(f"  {text}, {churn.under_way} pods under way, {len(churn.failures)} failures")
        await running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return windows


def _taken(values: list[float]) -> tuple[float, ...]:
    taken = tuple(values)
    values.clear()
    return taken


class _Resources(msgspec.Struct):
    limits: dict[str, str] | None = None


class _Container(msgspec.Struct):
    resources: _Resources


class _Spec(msgspec.Struct, rename="camel"):
    containers: list[_Container]
    node_name: str = ""


class _Bound(msgspec.Struct):
    spec: _Spec


class _Card(msgspec.Struct):
    used: int


class _Node(msgspec.Struct):
    cards: list[_Card]


class _Inspected(msgspec.Struct):
    nodes: list[_Node]


async def _sums(scene: Scene, calls: Client) -> tuple[int, int]:
    """The units that the extender counts, once its watch has shown everything, and those of the pods in the API server."""
    scene.progress.doing("counting all pods again")
    bound = 0
    async for page in scene.client.pages("/api/v1/pods"):
        specs = [msgspec.json.decode(raw, type=_Bound).spec for raw in page.items]
        bound += sum(int((spec.containers[0].resources.limits or {}).get(MEMORY, 0)) for spec in specs if spec.node_name)
    counted = -1
    ends = time.monotonic() + SETTLED_WITHIN_S
    while counted != bound and time.monotonic() < ends:
        body = await calls.request("GET", "/accelshare/inspect", timeout_s=60)
        inspected = msgspec.json.decode(body, type=_Inspected)
        counted = sum(card.used for node in inspected.nodes for card in node.cards)
        await asyncio.sleep(0.5)
    return counted, bound
