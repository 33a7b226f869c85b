"""An agent that does not hear of pods: it says so, and nobody whom kubelet admits meanwhile dies of it."""

from collections.abc import AsyncIterator

import pytest
import yarl

from tests.contract.agent.village import MEMORY, Village
from tests.proxy import Proxy

NAMES = [f"p{number}" for number in range(3)]


@pytest.fixture
async def proxy(village: Village) -> AsyncIterator[Proxy]:
    """Between the agent and the API server."""
    url = yarl.URL(village.api.url)
    async with Proxy(url.host or "", url.port or 0) as proxy:
        village.proxy = proxy
        yield proxy


async def not_ready(village: Village) -> bool:
    return "503" in (await village.page("/readyz")).partition("\r\n")[0]


def bind_all(village: Village) -> None:
    for card, name in enumerate(NAMES):
        village.pod(name, {MEMORY: 2})
        village.bind(name, card, units=2)


def has_waited(village: Village) -> bool:
    """kubelet has asked for a pod that the agent does not know, for longer than pods take to arrive."""
    assert village.agent is not None
    assert [village.phase(name) for name in NAMES] == ["Pending"] * 3
    return "pods outcome=behind" in village.agent.last_lines(200)


async def all_run(village: Village) -> None:
    await village.settled(*NAMES)
    assert [village.phase(name) for name in NAMES] == ["Running"] * 3
    assert [village.recorded(name) for name in NAMES] == [[0], [1], [2]]


async def test_kubelet_waits_while_the_agent_is_cut_off(village: Village, proxy: Proxy) -> None:
    """Its connections to the API server end, pods are bound, kubelet asks for them, and in the end each has its card."""
    village.cards(4)
    async with village.kubelet():
        await village.start_agent()
        await proxy.cut()
        await village.until(lambda: not_ready(village), "the agent says that it is not ready")
        bind_all(village)
        await village.until(lambda: has_waited(village), "kubelet has waited for the agent")
        proxy.restore()
        await all_run(village)
        await village.until(village.ready, "the agent is ready again")


async def test_kubelet_waits_while_the_watch_stalls(village: Village, proxy: Proxy) -> None:
    """Nothing ends, nothing comes. That kubelet asks for somebody whom nobody knows is how the agent notices."""
    village.cards(4)
    async with village.kubelet():
        await village.start_agent()
        proxy.stall()
        bind_all(village)
        await village.until(lambda: has_waited(village), "kubelet has waited for the agent")
        proxy.restore()
        await all_run(village)


async def test_the_node_does_not_deliver_while_its_agent_does_not_hear(village: Village) -> None:
    """The API server can be written to, only its pods cannot be watched."""
    village.cards(4)
    async with village.kubelet():
        await village.start_agent()
        refuses = village.api.faults.answer(503, method="GET", path="/api/v1/pods", times=10**6)
        village.api.end_watches()
        await village.until(lambda: not village.delivers(), "the node says that it does not deliver")
        assert await not_ready(village)
        assert await village.metric("accelshare_agent_watch_current ") == 0
        assert refuses is not None
        village.api.faults.clear()
        await village.until(village.delivers, "the node delivers again")
        assert await village.metric("accelshare_agent_watch_current ") == 1
