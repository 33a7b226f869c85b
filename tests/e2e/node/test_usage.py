"""Who uses a card, with real containers: their processes are found by the cgroups that kubelet and the runtime made.

The library is a fake that is told the containers' real process ids; all the rest is real.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from accelshare.agent.usage.cgroups import uids_of
from tests.e2e.node.real_node import RealNode

pytestmark = pytest.mark.real
GPU = "aliyun.com/gpu-mem"
UUID = "GPU-0"
GIB = 2**30


def process_of(uid: str) -> int:
    """A process in a container of this pod; the pause container of its sandbox does as well."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208
    return max(pid for pid, found in uids_of(pids, Path("/proc")).items() if found == uid)


async def usage(real_node: RealNode) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{real_node.agent_port}/usage") as answer:
        return json.loads(await answer.text()) if answer.status == 200 else {}


async def with_usage(real_node: RealNode, *flags: str) -> tuple[int, int]:
    """Restart the agent with usage; two pods on one card, and a process of each."""
    assert real_node.agent is not None
    await asyncio.to_thread(real_node.agent.stop, 120)
    await real_node.start_agent("--usage", "--usage-every=1", "--proc-root=/proc", *flags)
    await real_node.pod("a", {GPU: 4})
    await real_node.pod("b", {GPU: 8})
    pods = await real_node.running("a", "b")
    return process_of(pods["a"]["metadata"]["uid"]), process_of(pods["b"]["metadata"]["uid"])


async def test_two_pods_on_one_card_are_told_apart(real_node: RealNode) -> None:
    a, b = await with_usage(real_node)
    real_node.hardware["nvidia"].runs((UUID, a, 1024, 25), (UUID, b, 2048, 50), (UUID, os.getpid(), 512, 1))

    async def told_apart() -> bool:
        found = await usage(real_node)
        used = {pod["name"]: (pod.get("used_bytes"), pod.get("utilisation")) for pod in found.get("pods", ())}
        others = [
            card["used_by_others_bytes"] for card in found.get("cards", ()) if (card["kind"], card["card"]) == ("nvidia", 0)
        ]
        return used == {"a": (GIB, 0.25), "b": (2 * GIB, 0.5)} and others == [GIB // 2]

    await real_node.until(told_apart, "both pods have their own numbers, and this test is another")


async def test_inspect_asks_the_agent_through_the_api_server(real_node: RealNode) -> None:
    a, _ = await with_usage(real_node)
    ports = [{"name": "probes", "containerPort": real_node.agent_port}]
    labels = {"accelshare.io/agent": "true"}
    # In the host's network, so that the API server finds the agent's port at the pod's address.
    await real_node.pod("agent", containers=[real_node.container("c0", {}, ports=ports)], hostNetwork=True, labels=labels)
    await real_node.running("agent")
    real_node.hardware["nvidia"].runs((UUID, a, 1024, 25))

    async def shown() -> bool:
        command = [sys.executable, "-m", "accelshare", "inspect", "-o", "json", f"--kubeconfig={real_node.local.kubeconfig}"]
        done = await asyncio.create_subprocess_exec(
            *command, f"--profiles={real_node.profiles}", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, _ = await done.communicate()
        if done.returncode != 0:
            return False
        cards = [card for node in json.loads(out)["nodes"] for card in node["cards"] if card["kind"] == "nvidia"]
        pods = {pod["name"]: pod.get("use", {}).get("used_bytes") for card in cards for pod in card["pods"]}
        return pods.get("a") == GIB

    await real_node.until(shown, "inspect shows what the pod uses")


async def test_a_pod_that_uses_too_much_is_evicted_and_its_neighbour_is_not(real_node: RealNode) -> None:
    a, b = await with_usage(real_node, "--evict-over-use-after=3")
    real_node.hardware["nvidia"].runs((UUID, a, 6144, 25), (UUID, b, 8192, 50))

    async def evicted() -> bool:
        return "a" not in await real_node.pods()

    await real_node.until(evicted, "the pod above its share is gone")

    async def reported() -> bool:
        """The event is written after the eviction."""
        return await real_node.events("AcceleratorOveruseEvicted") == ["a"]

    await real_node.until(reported, "an event says that this pod was evicted")
    assert "b" not in await real_node.events("AcceleratorOverused")
    assert "b" in await real_node.running("b")
