"""Measures whether a scrape delays kube-scheduler: filter calls with and without a concurrent scrape of /metrics.

Belongs here: concurrent calls and scrapes. Never: how the series are written.
"""

import asyncio
import subprocess
import sys
import time
from typing import Final

from bench import workload
from bench.noise import NoiseMeter
from bench.results import Scrape, Waits
from bench.scene import PODS, Extender, Scene

# Reads the page repeatedly and prints its seconds, bytes and series; terminated by us. A separate process, because a thread would
# share the client's interpreter and slow it down.
SCRAPER: Final = """
import http.client, sys, time
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
while True:
    begun = time.perf_counter()
    connection.request("GET", "/metrics")
    page = connection.getresponse().read()
    took = time.perf_counter() - begun
    print(took, len(page), page.count(b"\\n") - page.count(b"\\n#") - 1, flush=True)
"""


async def measure(scene: Scene, noise: NoiseMeter, *, nodes: int, calls: int, rounds: int) -> Scrape:
    """Rounds without and with a continuous scrape, in turn."""
    await scene.grow_to(nodes)
    nodes = scene.nodes
    created = (await scene.create(PODS, [workload.pod("candidate")], 1))[0]
    await scene.client.request("DELETE", f"{PODS}/candidate", params={"gracePeriodSeconds": "0"})
    body = workload.call_with_names(created, workload.names_json(nodes))
    quiet: list[Waits] = []
    scraped: list[Waits] = []
    pages: list[tuple[float, int, int]] = []
    async with scene.extender() as extender:
        await asyncio.to_thread(_waits, extender, body, 20)  # connections, caches and the first ranking
        for number in range(1, rounds + 1):
            noise.listen()
            scene.progress.doing(f"scrape, {nodes:,} nodes, round {number} of {rounds}")
            quiet.append(await asyncio.to_thread(_waits, extender, body, calls))
            waits, read = await asyncio.to_thread(_while_scraped, extender, body, calls)
            scraped.append(waits)
            pages += read
    return Scrape(
        nodes=nodes,
        series=pages[-1][2],
        page_mb=pages[-1][1] / 1e6,
        page_s=tuple(took for took, _, _ in pages),
        quiet=tuple(quiet),
        scraped=tuple(scraped),
    )


def _while_scraped(extender: Extender, body: bytes, calls: int) -> tuple[Waits, list[tuple[float, int, int]]]:
    scraper = subprocess.Popen([sys.executable, "-c", SCRAPER, str(extender.port)], stdout=subprocess.PIPE, text=True)
    assert scraper.stdout is not None
    try:
        lines = [scraper.stdout.readline()]  # from here on it reads continuously
        waits = _waits(extender, body, calls)
    finally:
        scraper.terminate()
        rest, _ = scraper.communicate(timeout=60)
    lines += rest.splitlines()
    pages = [(float(took), int(size), int(series)) for took, size, series in (line.split() for line in lines if line.strip())]
    return waits, pages


def _waits(extender: Extender, body: bytes, calls: int) -> Waits:
    walls: list[float] = []
    for _ in range(calls):
        begun = time.perf_counter()
        extender.call("filter", body)
        walls.append(1000 * (time.perf_counter() - begun))
    return Waits.of(walls)
