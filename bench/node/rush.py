"""Creates many equal pods at once, kills a process meanwhile, and counts the outcomes of the pods.

Belongs here: the rush and the count. Never: judging it (goals.py).
"""

import asyncio
import json
from collections import Counter
from functools import partial

from accelshare.kube.errors import KubeError
from bench.node import zpu
from bench.node.real_node import Object, RealBenchNode
from bench.node.results import VICTIMS, WAYS, Rush
from bench.noise import NoiseMeter
from bench.progress import Progress

UNITS = 2  # so that 64 pods fill the node
PART = 3  # the kill comes when one of so many pods is bound: kubelet takes them in within moments of that


async def measure(node: RealBenchNode, noise: NoiseMeter, progress: Progress, *, rushes: int, pods: int) -> tuple[Rush, ...]:
    found = []
    for way in WAYS:
        await node.deliver_by(way)
        for victim in VICTIMS:
            for number in range(rushes):
                progress.doing(f"{pods} pods at once, {way}, SIGKILL of {victim}: {number + 1} of {rushes}")
                noise.listen()
                found.append(await _rush(node, victim, pods))
                await node.clear()
    return tuple(found)


async def _rush(node: RealBenchNode, victim: str, pods: int) -> Rush:
    names = [f"p{number}" for number in range(pods)]
    corrected = -node.drift()
    coming = asyncio.gather(*(node.pod(name, UNITS) for name in names))
    await node.until(partial(_some_bound, node, pods // PART), f"{pods // PART} pods are bound")
    if victim == "agent":
        corrected += node.drift()
    await node.kill(victim)
    await coming
    try:
        await node.until(partial(_settled, node), "every pod runs or has failed")
    except RuntimeError:
        pass  # those that do not are counted
    corrected += node.drift()
    found = await node.pods()
    fates = Counter(await asyncio.gather(*(_fate(node, name, found.get(name)) for name in names)))
    return Rush(
        way=node.way,
        victim=victim,
        pods=pods,
        right=fates["right"],
        wrong=fates["wrong"],
        bare=fates["bare"],
        dead=fates["dead"],
        waiting=fates["waiting"],
        corrected=corrected,
    )


async def _some_bound(node: RealBenchNode, wanted: int) -> bool:
    bound = [name for name, pod in (await node.pods()).items() if pod["spec"].get("nodeName")]
    return len(bound) >= wanted


async def _settled(node: RealBenchNode) -> bool:
    """All have failed, or run, are marked as served, and have said what they see."""
    found = await node.pods()
    waiting = [
        name
        for name, pod in found.items()
        if pod["status"]["phase"] == "Pending"
        or (pod["status"]["phase"] == "Running" and pod["metadata"]["annotations"].get(zpu.ASSIGNED) != "true")
    ]
    if waiting:
        return False
    running = [name for name, pod in found.items() if pod["status"]["phase"] == "Running"]
    return all(await asyncio.gather(*(_line(node, name) for name in running)))


async def _fate(node: RealBenchNode, name: str, pod: Object | None) -> str:
    if pod is None:
        return "bare"  # the agent found it without its card, and deleted it
    if pod["status"]["phase"] == "Failed":
        return "dead"
    line = await _line(node, name) if pod["status"]["phase"] == "Running" else ""
    if not line:
        return "waiting"
    seen = line.split()[2:]  # after the time and the word
    record = json.loads(pod["metadata"]["annotations"].get("accelshare.io/assignment", "{}"))
    wanted = sorted(f"{zpu.NODE_NAME}{entry['index']}" for entry in record.get(zpu.KIND, []))
    if not seen:
        return "bare"
    return "right" if sorted(seen) == wanted else "wrong"


async def _line(node: RealBenchNode, name: str) -> str:
    try:
        return await node.first_line(name)
    except KubeError:
        return ""  # kubelet is just not there to tell
