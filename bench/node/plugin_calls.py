"""Times GetPreferredAllocation and Allocate of the device plugin, with few device ids and with very many.

Belongs here: the calls and their times. Never: how they are made (caller.py).
"""

from collections.abc import Sequence

from accelshare.agent.device_plugin.api import kubelet_device_plugin_pb2 as api
from bench.node import zpu
from bench.node.fake_node import FakeBenchNode, open_fake_bench_node
from bench.node.results import DEVICE_PLUGIN, PluginCalls, Verb
from bench.node.zpu import Size
from bench.noise import NoiseMeter
from bench.procfs import cpu_s
from bench.progress import Progress


async def measure(noise: NoiseMeter, progress: Progress, *, size: Size, asks: Sequence[int], groups: int) -> list[PluginCalls]:
    """For each size of request, groups of eight pods, one on each card; the node is empty before each group."""
    found = []
    async with open_fake_bench_node(size, DEVICE_PLUGIN) as fake_node:
        await fake_node.until(
            lambda: len(fake_node.caller.devices.get(zpu.MEMORY, ())) == size.units, "kubelet was shown all ids"
        )
        for units in asks:
            progress.doing(f"Allocate of {units:,} of {size.units:,} ids, {groups} groups of {zpu.CARDS} pods")
            noise.listen()
            await _group(fake_node, units, "warm")
            cpu = cpu_s(fake_node.pid)
            times = [await _group(fake_node, units, f"g{number}") for number in range(groups)]
            pod_cpu_ms = 1000 * (cpu_s(fake_node.pid) - cpu) / (groups * zpu.CARDS)
            prefer = _joined([advised for advised, _ in times])
            found.append(PluginCalls(size.units, units, prefer, _joined([given for _, given in times]), pod_cpu_ms))
    return found


async def _group(fake_node: FakeBenchNode, units: int, name: str) -> tuple[Verb, Verb]:
    caller, pods = fake_node.caller, [f"{name}-{card}" for card in range(zpu.CARDS)]
    for card, pod in enumerate(pods):
        fake_node.bind(pod, card, units)
    await fake_node.pending(len(pods))
    advised: list[tuple[float, float]] = []
    given: list[tuple[float, float]] = []
    for card, pod in enumerate(pods):
        caller.held[pod] = {}  # kubelet takes a pod up before it asks for it
        question = api.ContainerPreferredAllocationRequest(
            available_device_ids=caller.free(zpu.MEMORY), must_include_device_ids=[], allocation_size=units
        )
        asked = api.PreferredAllocationRequest(container_requests=[question]).SerializeToString()
        answer, *times = await caller.call(zpu.MEMORY, "GetPreferredAllocation", asked, pid=fake_node.pid)
        advised.append((times[0], times[1]))
        ids = list(api.PreferredAllocationResponse.FromString(answer).container_responses[0].device_ids)
        if len(ids) != units or any(not one.startswith(f"{card}-") for one in ids):
            raise RuntimeError(f"{pod} asks {units} units of card {card} and was advised {len(ids)}: {ids[:3]} …")
        request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(device_ids=ids)]).SerializeToString()
        _, *times = await caller.call(zpu.MEMORY, "Allocate", request, pid=fake_node.pid)
        given.append((times[0], times[1]))
        caller.held[pod] = {zpu.MEMORY: ids}
    await fake_node.recorded(pods)
    caller.held.clear()
    for pod in pods:
        fake_node.delete(pod)
    await fake_node.pending(0)
    return _verb(advised), _verb(given)


def _verb(times: list[tuple[float, float]]) -> Verb:
    return Verb(tuple(wall for wall, _ in times), tuple(cpu for _, cpu in times))


def _joined(verbs: list[Verb]) -> Verb:
    return Verb(tuple(ms for verb in verbs for ms in verb.wall_ms), tuple(ms for verb in verbs for ms in verb.cpu_ms))
