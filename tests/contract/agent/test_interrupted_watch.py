"""An agent whose watch of pods is interrupted: the Node shows it, and no pod that kubelet admits meanwhile fails."""

from collections.abc import AsyncIterator

import pytest
import yarl

from tests.contract.agent.fake_node import MEMORY, FakeNode
from tests.proxy import Proxy

NAMES = [f"p{number}" for number in range(3)]


@pytest.fixture
async def proxy(fake_node: FakeNode) -> AsyncIterator[Proxy]:
    """Between the agent and the API server."""
    url = yarl.URL(fake_node.api.url)
    async with Proxy(url.host or "", url.port or 0) as proxy:
        fake_node.proxy = proxy
        yield proxy


async def not_ready(fake_node: FakeNode) -> bool:
    return "503" in (await fake_node.page("/readyz")).partition("\r\n")[0]


def bind_all(fake_node: FakeNode) -> None:
    for card, name in enumerate(NAMES):
        fake_node.pod(name, {MEMORY: 2})
        fake_node.bind(name, card, units=2)


def has_waited(fake_node: FakeNode) -> bool:
    """kubelet has requested devices for a pod that the agent does not know, for longer than pods take to arrive."""
    assert fake_node.agent is not None
    assert [fake_node.phase(name) for name in NAMES] == ["Pending"] * 3
    return "pods outcome=behind" in fake_node.agent.last_lines(200)


async def all_run(fake_node: FakeNode) -> None:
    await fake_node.settled(*NAMES)
    assert [fake_node.phase(name) for name in NAMES] == ["Running"] * 3
    assert [fake_node.recorded(name) for name in NAMES] == [[0], [1], [2]]


async def test_kubelet_waits_while_the_agent_is_cut_off(fake_node: FakeNode, proxy: Proxy) -> None:
    """Its connections to the API server end, pods are bound, kubelet admits them, and in the end each has its card."""
    fake_node.cards(4)
    async with fake_node.kubelet():
        await fake_node.start_agent()
        await proxy.cut()
        await fake_node.until(lambda: not_ready(fake_node), "the agent says that it is not ready")
        bind_all(fake_node)
        await fake_node.until(lambda: has_waited(fake_node), "kubelet has waited for the agent")
        proxy.restore()
        await all_run(fake_node)
        await fake_node.until(fake_node.ready, "the agent is ready again")


async def test_kubelet_waits_while_the_watch_stalls(fake_node: FakeNode, proxy: Proxy) -> None:
    """The connection stays and sends nothing. The agent notices it by kubelet's request for an unknown pod."""
    fake_node.cards(4)
    async with fake_node.kubelet():
        await fake_node.start_agent()
        proxy.stall()
        bind_all(fake_node)
        await fake_node.until(lambda: has_waited(fake_node), "kubelet has waited for the agent")
        proxy.restore()
        await all_run(fake_node)


async def test_the_node_does_not_deliver_while_its_agent_sees_no_pods(fake_node: FakeNode) -> None:
    """The API server can be written to, only its pods cannot be watched."""
    fake_node.cards(4)
    async with fake_node.kubelet():
        await fake_node.start_agent()
        refuses = fake_node.api.faults.answer(503, method="GET", path="/api/v1/pods", times=10**6)
        fake_node.api.end_watches()
        await fake_node.until(lambda: not fake_node.delivers(), "the node says that it does not deliver")
        assert await not_ready(fake_node)
        assert await fake_node.metric("accelshare_agent_watch_current ") == 0
        assert refuses is not None
        fake_node.api.faults.clear()
        await fake_node.until(fake_node.delivers, "the node delivers again")
        assert await fake_node.metric("accelshare_agent_watch_current ") == 1
