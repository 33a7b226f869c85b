"""Whichever process is killed in a rush with device plugins, record, kubelet and container agree on the card.

The fixture checks that no record had to be corrected (conftest.py).

One limit is the device plugin interface's own, and counted here: whom kubelet admits in the moments in which nobody hands out
cards fails for good. By the runtime it does not happen (test_by_runtime.py).
"""

import asyncio
import random
from typing import Final

import pytest

from tests.e2e.node.real_node import GCU, RealNode, all_agree, annotations, names

pytestmark = pytest.mark.real

WAVE: Final = 6  # pods that are on their way when somebody dies


class Rush:
    """Waves of equal pods, and what became of them."""

    def __init__(self, real_node: RealNode, prefix: str, seed: int) -> None:
        self._node = real_node
        self._prefix = prefix
        self._chance = random.Random(seed)
        self._alive: list[str] = []
        self.made = 0
        self._bound: set[str] = set()
        self.ran: set[str] = set()
        self.dead: set[str] = set()
        self.on_their_way = 0  # at all moments in which somebody died

    async def wave(self) -> None:
        """Pods come; returns when some of them are bound, so that whoever dies next dies in the middle."""
        coming = names(self._prefix, range(self.made, self.made + WAVE))
        self.made += WAVE
        self._alive += coming
        await asyncio.gather(*(self._node.pod(name, {GCU: 2}) for name in coming))
        some = self._chance.randrange(1, WAVE + 1)

        async def in_the_middle() -> bool:
            await self._look()
            return len(self._bound.intersection(coming)) >= some

        await self._node.until(in_the_middle, f"{some} of {WAVE} pods are bound")
        self.on_their_way += sum(name not in self.ran and name not in self.dead for name in coming)

    async def settled(self) -> None:
        """Every pod runs or has failed, all books agree on those that run; then half of them go."""
        await self._node.until(self._look, "all pods run or have failed")
        self._alive = [name for name in self._alive if name not in self.dead]
        await all_agree(self._node, self._alive)
        for name in self._chance.sample(self._alive, len(self._alive) // 2):
            await self._node.delete(name)
            self._alive.remove(name)

    async def _look(self) -> bool:
        pods = await self._node.pods()
        phases = {name: pods[name]["status"]["phase"] for name in self._alive}
        self._bound |= {name for name in self._alive if pods[name]["spec"].get("nodeName")}
        self.dead |= {name for name, phase in phases.items() if phase == "Failed"}
        self.ran |= {name for name, phase in phases.items() if phase == "Running"}
        return all(name in self.dead or (name in self.ran and _assigned(pods[name])) for name in self._alive)


def _assigned(pod: dict[str, object]) -> bool:
    return "false" not in [value for key, value in annotations(pod).items() if key.endswith("assigned")]


async def test_kills_of_the_agent_the_extender_and_containerd(real_node: RealNode, rounds: int) -> None:
    """No pod fails that ran."""
    await real_node.show_agent()
    rush = Rush(real_node, "a", seed=5)
    for turn in range(rounds):
        for victim in ("agent", "extender", "containerd") if turn == rounds // 2 else ("agent", "extender"):
            await rush.wave()
            await kill(real_node, victim)
        await rush.settled()
    text = f"{len(rush.dead)} of {rush.made} pods failed admission"
    print(f"{2 * rounds + 1} kills: {text}, of {rush.on_their_way} pods on their way: {sorted(rush.dead)}")
    assert rush.dead.isdisjoint(rush.ran)
    assert len(rush.dead) <= rush.on_their_way


async def test_kills_of_kubelet(real_node: RealNode, rounds: int) -> None:
    """No pod fails that ran, and each of the equal pods that wait while kubelet starts gets its own card."""
    await real_node.show_agent()
    rush = Rush(real_node, "k", seed=7)
    for _ in range(rounds):
        for _ in range(2):
            await rush.wave()
            await kill(real_node, "kubelet")
        await rush.settled()
    text = f"{len(rush.dead)} of {rush.made} pods failed admission"
    print(f"{2 * rounds} kills: {text}, of {rush.on_their_way} pods on their way: {sorted(rush.dead)}")
    assert rush.dead.isdisjoint(rush.ran)
    assert len(rush.dead) <= rush.on_their_way


async def kill(real_node: RealNode, what: str) -> None:
    """SIGKILL, and a new one that is at work."""
    assert real_node.agent is not None
    assert real_node.extender is not None
    match what:
        case "agent":
            real_node.agent.kill()
            await real_node.start_agent()
        case "extender":
            real_node.extender.kill()
            await real_node.start_extender()
        case "kubelet":
            await asyncio.to_thread(real_node.local.restart_kubelet)
            await real_node.until(lambda: real_node.is_up(real_node.agent, real_node.agent_port), "the agent delivers again")
        case _:
            await asyncio.to_thread(real_node.local.restart_containerd)
