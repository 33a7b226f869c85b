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
from cluster.errors import ClusterError

UNITS = 2  # so that 64 pods fill the node
PART = 3  # the kill comes when one of so many pods is bound; kubelet admits them a moment later


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
    except ClusterError:
        pass  # the others are counted as pending
    corrected += node.drift()
    found = await node.pods()
    outcomes = Counter(await asyncio.gather(*(_outcome(node, name, found.get(name)) for name in names)))
    return Rush(
        way=node.way,
        victim=victim,
        pods=pods,
        assigned=outcomes["assigned"],
        misassigned=outcomes["misassigned"],
        without_card=outcomes["without card"],
        failed=outcomes["failed"],
        pending=outcomes["pending"],
        corrected=corrected,
    )


async def _some_bound(node: RealBenchNode, wanted: int) -> bool:
    bound = [name for name, pod in (await node.pods()).items() if pod["spec"].get("nodeName")]
    return len(bound) >= wanted


async def _settled(node: RealBenchNode) -> bool:
    """Every pod has failed, or runs, is marked as assigned, and has printed what it sees."""
    found = await node.pods()
    pending = [
        name
        for name, pod in found.items()
        if pod["status"]["phase"] == "Pending"
        or (pod["status"]["phase"] == "Running" and pod["metadata"]["annotations"].get(zpu.ASSIGNED) != "true")
    ]
    if pending:
        return False
    running = [name for name, pod in found.items() if pod["status"]["phase"] == "Running"]
    return all(await asyncio.gather(*(_line(node, name) for name in running)))


async def _outcome(node: RealBenchNode, name: str, pod: Object | None) -> str:
    if pod is None:
        return "without card"  # the agent found it without its card, and deleted it
    if pod["status"]["phase"] == "Failed":
        return "failed"
    line = await _line(node, name) if pod["status"]["phase"] == "Running" else ""
    if not line:
        return "pending"
    seen = line.split()[2:]  # after the time and the word
    record = json.loads(pod["metadata"]["annotations"].get("accelshare.io/assignment", "{}"))
    wanted = sorted(f"{zpu.NODE_NAME}{entry['index']}" for entry in record.get(zpu.KIND, []))
    if not seen:
        return "without card"
    return "assigned" if sorted(seen) == wanted else "misassigned"


async def _line(node: RealBenchNode, name: str) -> str:
    try:
        return await node.first_line(name)
    except KubeError:
        return ""  # kubelet does not run at the moment
