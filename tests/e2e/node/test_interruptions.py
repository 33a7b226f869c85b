"""With device plugins on a real kubelet: an agent cut off from the API server, and one killed in a rush."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.node.real_node import GCU, RealNode, agent_behind_proxy, all_agree, names
from tests.proxy import Proxy

pytestmark = pytest.mark.real

RUSH: Final = 60
MOST_DEAD: Final = 5


@pytest.fixture
async def proxy(real_node: RealNode, tmp_path: Path) -> AsyncIterator[Proxy]:
    async with agent_behind_proxy(real_node, tmp_path) as proxy:
        yield proxy


@pytest.mark.parametrize("how", ["cut", "stalled"])
async def test_no_pod_dies_while_the_agent_does_not_hear(real_node: RealNode, proxy: Proxy, how: str) -> None:
    """Pods are bound and kubelet asks for them; it waits until the agent is back, and each runs with its own card."""
    pods = names("p", range(4))
    if how == "cut":
        await proxy.cut()
    else:
        proxy.stall()
    await asyncio.gather(*(real_node.pod(name, {GCU: 2}) for name in pods))

    async def has_waited() -> bool:
        """kubelet has asked for a pod that the agent has not heard of, for longer than news takes."""
        assert real_node.agent is not None
        found = await real_node.pods()
        assert [found[name]["status"]["phase"] for name in pods] == ["Pending"] * len(pods), found
        return "pods outcome=behind" in real_node.agent.last_lines(200)

    await real_node.until(has_waited, "kubelet has waited for the agent")
    proxy.restore()
    await all_agree(real_node, pods)


async def test_a_killed_agent_costs_a_handful_of_a_rush(real_node: RealNode) -> None:
    """Sixty pods at once, the agent dies by SIGKILL when a third is bound. All others run, each with its own card."""
    await real_node.show_agent()
    pods = names("p", range(RUSH))
    coming = asyncio.gather(*(real_node.pod(name, {GCU: 2}) for name in pods))

    async def some_are_bound() -> bool:
        return sum("nodeName" in pod["spec"] for pod in (await real_node.pods()).values()) > RUSH // 3

    await real_node.until(some_are_bound, "a third is bound")
    assert real_node.agent is not None
    real_node.agent.kill()
    await real_node.start_agent()
    await coming

    async def all_have_ended_up() -> dict[str, str] | None:
        found = {name: pod["status"]["phase"] for name, pod in (await real_node.pods()).items() if name in pods}
        return found if set(found.values()) <= {"Running", "Failed"} else None

    phases = await real_node.until(all_have_ended_up, "every pod runs or has failed", limit_s=400)
    dead = [name for name, phase in phases.items() if phase == "Failed"]
    print(f"{len(dead)} of {RUSH} pods died")
    assert len(dead) <= MOST_DEAD, dead
    await all_agree(real_node, [name for name in pods if name not in dead])
