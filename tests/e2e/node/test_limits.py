"""Limits that the driver sets on containers' cgroups, with a real kubelet and containerd.

The library is a fake that accounts for each cgroup path as driver 615 does. The machine's cgroups may be version 1, on which the
agent sets no limits; so a directory stands for the root of a version 2 tree. The paths below it are those of the real containers.
"""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from accelshare.wire import inventory
from tests.e2e.node.real_node import RealNode
from tests.e2e.scheduling_cluster import Object, cards

pytestmark = pytest.mark.real

GPU = "aliyun.com/gpu-mem"
GIB = 2**30


class LimitedNode:
    """A real node whose agent sees a version 2 tree."""

    def __init__(self, real_node: RealNode, tree: Path) -> None:
        self.real = real_node
        self.tree = tree
        self.hardware = real_node.hardware["nvidia"]

    async def start_agent(self) -> None:
        await self.real.start_agent(f"--cgroup-root={self.tree}")
        await self.real.until(self._is_proven, "all cards are limited by nvml")

    async def _is_proven(self) -> bool:
        annotations = (await self.real.node())["metadata"].get("annotations", {})
        if inventory.KEY not in annotations:  # the first agent of a new node was killed before it could write it
            return False
        cards = (await self.real.inventory_entry("nvidia")).cards
        return bool(cards) and all(card.enforced_by == "nvml" for card in cards)

    async def kill_agent(self) -> None:
        assert self.real.agent is not None
        await asyncio.to_thread(self.real.agent.kill)

    def limits(self) -> dict[tuple[str, str], int]:
        """By card and cgroup below the tree: the hard limit."""
        lines = [line.split() for line in self.hardware.limits().splitlines()]
        return {(card, group.removeprefix(str(self.tree))): int(hard) for card, group, _, hard in lines}

    def limit_of(self, pod: Object) -> int | None:
        """The limit of the pod's only container."""
        id = pod["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
        found = [hard for (_, group), hard in self.limits().items() if id in group]
        return found[0] if found else None

    def limit_of_group(self, pod: Object) -> int | None:
        """The limit of the pod's own cgroup."""
        uid = pod["metadata"]["uid"]
        found = [hard for (_, group), hard in self.limits().items() if group.rpartition("/")[2].endswith(uid)]
        return found[0] if found else None


@pytest.fixture
async def limited(by_runtime: RealNode) -> LimitedNode:
    tree = by_runtime.directory / "cgroup"
    tree.mkdir()
    (tree / "cgroup.controllers").write_text("cpu memory\n")
    node = LimitedNode(by_runtime, tree)
    await node.kill_agent()
    await node.start_agent()
    return node


async def test_every_container_with_a_slice_starts_with_its_limit(limited: LimitedNode) -> None:
    names = [f"p{number}" for number in range(8)]
    for name in names:
        await limited.real.pod(name, {GPU: 3})
    found = await limited.real.running(*names)
    assert {name: limited.limit_of(pod) for name, pod in found.items()} == dict.fromkeys(names, 3 * GIB)


async def test_no_container_runs_without_a_limit_while_the_agent_is_killed_again_and_again(limited: LimitedNode) -> None:
    """Whatever moment the agent dies at: a container that runs has its own limit, or that of its pod until the agent is back."""
    names = [f"p{number}" for number in range(12)]
    for name in names:
        await limited.real.pod(name, {GPU: 2})
    for pause_s in (0.3, 0.1, 0.6):
        await asyncio.sleep(pause_s)
        await limited.kill_agent()
        await limited.start_agent()
    found = await limited.real.running(*names)
    assert {name: limited.limit_of_group(pod) for name, pod in found.items()} == dict.fromkeys(names, 2 * GIB)


async def test_a_container_whose_limit_does_not_read_back_waits(limited: LimitedNode) -> None:
    real_node = limited.real
    cards = [
        {"index": i, "uuid": f"GPU-{i}", "memory_mib": 16127, "minor": i, "pci": f"0000:3{i}:00.0", "name": "Tesla T4"}
        for i in range(4)
    ]
    real_node.hardware["nvidia"].has(*({**card, "limit_mib": 16127} for card in cards))
    await real_node.pod("a", {GPU: 3})

    async def refused() -> bool:
        events = await real_node.client.request("GET", "/api/v1/namespaces/default/events")
        return f"{3 * GIB} bytes of card".encode() in events and f"{16127 << 20} bytes".encode() in events

    await real_node.until(refused, "an event names the wanted and the found value")
    real_node.hardware["nvidia"].has(*cards)
    found = await real_node.running("a")
    assert limited.limit_of(found["a"]) == 3 * GIB


class ResizedNode(LimitedNode):
    """The same with an agent and an extender that resize slices. No policy is in force here: nobody else writes grants."""

    async def start(self) -> None:
        await self.kill_agent()
        await self.real.start_agent(f"--cgroup-root={self.tree}", "--resize")
        await self.real.until(self._is_proven, "all cards are limited by nvml")
        assert self.real.extender is not None
        await asyncio.to_thread(self.real.extender.stop, limit_s=60)
        await self.real.start_extender("--resize")

    def make_cgroups(self) -> None:
        """Directories for the containers' cgroups, as a version 2 tree has them."""
        for _, group in self.limits():
            (self.tree / group.removeprefix("/")).mkdir(parents=True, exist_ok=True)

    def uses(self, mib: int) -> None:
        """What the driver says that each container uses of its card."""
        cards = [
            {"index": i, "uuid": f"GPU-{i}", "memory_mib": 16127, "minor": i, "pci": f"0000:3{i}:00.0", "name": "Tesla T4"}
            for i in range(4)
        ]
        self.hardware.has(*({**card, "used_in_group_mib": mib} for card in cards))

    async def until_limited(self, name: str, gib: int) -> None:
        pod = (await self.real.pods())[name]
        limits = {gib * GIB}
        await self.real.until(
            lambda: {self.limit_of(pod), self.limit_of_group(pod)} == limits, f"pod {name} and its container have {gib} GiB"
        )

    async def until_counted(self, card: int, units: int) -> None:
        """Wait until the extender has heard of it: the driver's limit is there before the watch says so."""
        line = f'card="{card}"}} {units}'

        async def counted() -> bool:
            async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{self.real.port}/metrics") as answer:
                lines = (await answer.text()).splitlines()
            held = [found for found in lines if found.startswith("accelshare_card_held_units{") and 'vendor="nvidia"' in found]
            return any(found.endswith(line) for found in held)

        await self.real.until(counted, f"the extender counts {units} units on card {card}")

    async def until_event(self, name: str, reason: str) -> None:
        async def written() -> bool:
            return name in await self.real.events(reason)

        await self.real.until(written, f"an event {reason} on pod {name}")


@pytest.fixture
async def resized(limited: LimitedNode) -> ResizedNode:
    node = ResizedNode(limited.real, limited.tree)
    await node.start()
    return node


async def test_a_living_container_is_resized_up_and_down_and_not_below_its_use(resized: ResizedNode) -> None:
    real_node = resized.real
    for name, units in (("a", 4), ("b", 8)):
        await real_node.pod(name, {GPU: units})
    first = await real_node.running("a", "b")
    assert cards(first["a"], "nvidia") == cards(first["b"], "nvidia"), "they share a card of 15 GiB"
    await resized.until_limited("a", 4)
    resized.make_cgroups()
    await real_node.annotate("a", resize="7")
    await resized.until_limited("a", 7)
    await resized.until_event("a", "ResizeGranted")
    await resized.until_event("a", "ResizeApplied")
    await real_node.annotate("a", resize="8")
    await resized.until_event("a", "ResizeRefused")
    resized.uses(5000)
    await real_node.annotate("a", resize="4")
    await resized.until_event("a", "ResizeFailed")
    await resized.until_limited("a", 7)
    resized.uses(1000)
    await real_node.annotate("a", resize="3")
    await resized.until_limited("a", 3)
    (card,) = cards(first["a"], "nvidia")
    await resized.until_counted(card, 3 + 8)
    await real_node.pod("c", {GPU: 4})
    last = await real_node.running("a", "b", "c")
    assert cards(last["c"], "nvidia") == cards(last["a"], "nvidia"), "what the shrink freed is sold again"
    await resized.kill_agent()
    await real_node.start_agent(f"--cgroup-root={resized.tree}", "--resize")
    await resized.until_limited("a", 3)
    (before,), (after,) = (pod["status"]["containerStatuses"] for pod in (first["a"], (await real_node.pods())["a"]))
    assert (before["containerID"], after["restartCount"]) == (after["containerID"], 0), "the container has lived all the time"
