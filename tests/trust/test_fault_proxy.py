"""Each fault of the proxy reaches the client behind it, and none is left after restore()."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from accelshare.kube import config
from accelshare.kube.client import Client
from accelshare.kube.errors import ApiError, Conflict, Expired, KubeError, NotFound, TooManyRequests, Unreachable
from accelshare.testing.api_server import FakeApiServer
from tests.e2e.holding_proxy import open_proxy_of
from tests.trust.fault_proxy import FaultProxy

PODS = "/api/v1/namespaces/default/pods"
POD = b'{"metadata": {"name": "a"}, "spec": {"containers": [{"name": "main", "image": "none"}]}}'


@pytest.fixture
async def proxy() -> AsyncIterator[FaultProxy]:
    async with FakeApiServer() as api, open_proxy_of(FaultProxy, api.url, None) as opened:
        yield opened


@pytest.fixture
async def client(proxy: FaultProxy, tmp_path: Path) -> AsyncIterator[Client]:
    async with Client(config.load(proxy.write_kubeconfig(tmp_path / "kubeconfig")), user_agent="test", timeout_s=1.0) as opened:
        yield opened


@pytest.mark.parametrize(("status", "error"), [(409, Conflict), (410, Expired), (429, TooManyRequests), (500, ApiError)])
async def test_an_error_is_answered_and_nothing_carried_out(
    proxy: FaultProxy, client: Client, status: int, error: type[KubeError]
) -> None:
    proxy.respond(status, "POST ")
    with pytest.raises(error):
        await client.request("POST", PODS, body=POD)
    proxy.restore()
    with pytest.raises(NotFound):
        await client.request("GET", f"{PODS}/a")


@pytest.mark.parametrize("fault", ["lost", "torn"])
async def test_an_answer_is_lost_after_the_request_took_effect(proxy: FaultProxy, client: Client, fault: str) -> None:
    if fault == "lost":
        proxy.lose("POST ")
    else:
        proxy.tear()
    with pytest.raises(Unreachable):
        await client.request("POST", PODS, body=POD)
    proxy.restore()
    assert b'"a"' in await client.request("GET", f"{PODS}/a")
    assert proxy.hits == 1


async def test_a_request_that_is_cut_is_not_carried_out(proxy: FaultProxy, client: Client) -> None:
    proxy.cut()
    with pytest.raises(Unreachable):
        await client.request("POST", PODS, body=POD)
    proxy.restore()
    with pytest.raises(NotFound):
        await client.request("GET", f"{PODS}/a")


async def test_watches_are_stalled_expired_and_closed(proxy: FaultProxy, client: Client) -> None:
    names: list[str] = []

    async def watch() -> None:
        async for event in client.watch(PODS, resource_version="0"):
            names.append(event.type)

    async def until(condition: object) -> None:
        async with asyncio.timeout(30):
            while not condition():  # type: ignore[operator]
                await asyncio.sleep(0.01)

    watching = asyncio.create_task(watch())
    await client.request("POST", PODS, body=POD)
    await until(lambda: names == ["ADDED"])
    proxy.stall_watches()
    await client.request("DELETE", f"{PODS}/a")
    await asyncio.sleep(0.1)
    assert names == ["ADDED"]
    proxy.restore()
    await until(lambda: len(names) > 1)
    proxy.expire_watches()
    with pytest.raises(Expired):
        await watching
    watching = asyncio.create_task(watch())
    await until(lambda: proxy._watches)
    proxy.close_watches()
    await asyncio.wait([watching], timeout=30)
    assert watching.done()
