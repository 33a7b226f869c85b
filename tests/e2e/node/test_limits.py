"""Limits that the driver sets on containers' cgroups, with a real kubelet and containerd.

The library is a fake that accounts for each cgroup path as driver 615 does. The machine's cgroups may be version 1, on which the
agent sets no limits; so a directory stands for the root of a version 2 tree. The paths below it are those of the real containers.
"""

import asyncio
from pathlib import Path

import pytest

from tests.e2e.node.real_node import RealNode
from tests.e2e.scheduling_cluster import Object

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
