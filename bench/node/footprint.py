"""CPU and memory of the agent while no pod comes or goes.

Belongs here: its memory and its CPU. Never: anything that it does.
"""

import asyncio
import time

from bench.node.fake_node import open_fake_bench_node
from bench.node.results import Footprint, Footprints
from bench.node.zpu import Size
from bench.noise import NoiseMeter
from bench.procfs import cpu_s, memory, private_mb
from bench.progress import Progress


async def measure(
    noise: NoiseMeter, progress: Progress, *, way: str, size: Size, starts: int, settle_s: float, idle_s: float
) -> Footprints:
    found = []
    for number in range(starts):
        progress.doing(f"the agent at rest, {way}, {size.units:,} units: start {number + 1} of {starts}, {idle_s:g} s")
        noise.listen()
        async with open_fake_bench_node(size, way) as fake_node:
            await asyncio.sleep(settle_s)
            cpu, wall = cpu_s(fake_node.pid), time.monotonic()
            await asyncio.sleep(idle_s)
            percent = 100 * (cpu_s(fake_node.pid) - cpu) / (time.monotonic() - wall)
            now = memory(fake_node.pid)
            found.append(Footprint(now.rss_mb, private_mb(fake_node.pid), now.peak_mb, percent))
    return Footprints(way, size.units, tuple(found))
