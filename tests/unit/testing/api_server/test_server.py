"""The fake API server over HTTP: faults, slow clients, stopping."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import yaml

from accelshare.testing.api_server import FakeApiServer, Store
from accelshare.testing.api_server.errors import Object

POD = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
BINDING = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n1"}}
BIND_PATH = "/api/v1/namespaces/default/pods/a/binding"


@pytest.fixture
async def api() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        yield server


@pytest.fixture
async def client(api: FakeApiServer) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(api.url) as session:
        yield session


async def test_a_response_is_lost_but_the_request_is_carried_out(api: FakeApiServer, client: aiohttp.ClientSession) -> None:
    """The pod is bound and the client does not know it, which a bind must handle."""
    api.store.create("pods", POD)
    fault = api.faults.drop_after(method="POST", path="/binding$")
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await client.post(BIND_PATH, json=BINDING)
    assert fault.hits == 1
    assert api.store.get("pods", "a").object["spec"]["nodeName"] == "n1"
    async with client.post(BIND_PATH, json=BINDING) as again:
        assert again.status == 409


async def test_a_connection_breaks_before_the_request_is_carried_out(api: FakeApiServer, client: aiohttp.ClientSession) -> None:
    api.store.create("pods", POD)
    api.faults.drop_before(method="POST", path="/binding$")
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await client.post(BIND_PATH, json=BINDING)
    assert "nodeName" not in api.store.get("pods", "a").object["spec"]


async def test_a_fault_responds_as_the_real_server_would(api: FakeApiServer, client: aiohttp.ClientSession) -> None:
    api.faults.answer(429, retry_after_s=7)
    api.faults.answer(503)
    api.faults.answer(500)
    answers = []
    for _ in range(4):
        async with client.get("/api/v1/nodes") as answer:
            body = await answer.json()
            answers.append((answer.status, body.get("reason"), answer.headers.get("retry-after")))
    assert answers == [
        (429, "TooManyRequests", "7"),
        (503, "ServiceUnavailable", None),
        (500, "InternalError", None),
        (200, None, None),
    ]


async def test_a_response_is_late(api: FakeApiServer, client: aiohttp.ClientSession) -> None:
    api.faults.delay(60, path="/nodes")
    with pytest.raises(TimeoutError):
        await client.get("/api/v1/nodes", timeout=aiohttp.ClientTimeout(total=0.2))
    async with client.get("/api/v1/nodes") as answer:
        assert answer.status == 200


async def test_a_late_response_after_the_client_has_left(api: FakeApiServer, client: aiohttp.ClientSession) -> None:
    """The client has disconnected, and the request is still carried out."""
    api.store.create("pods", POD)
    bound = asyncio.Event()
    watch = api.store.watch("pods", revision=api.store.revision)
    watch.on_change(bound.set)
    api.faults.delay(0.3, path="/binding$")
    with pytest.raises(TimeoutError):
        await client.post(BIND_PATH, json=BINDING, timeout=aiohttp.ClientTimeout(total=0.05))
    assert "nodeName" not in api.store.get("pods", "a").object["spec"]
    async with asyncio.timeout(10):
        await bound.wait()
    assert api.store.get("pods", "a").object["spec"]["nodeName"] == "n1"


async def test_open_watches_do_not_delay_stopping() -> None:
    """The server ends them and stops long before any timeout."""
    async with aiohttp.ClientSession() as client:
        async with asyncio.timeout(60), FakeApiServer() as api:
            streams = [await client.get(f"{api.url}/api/v1/pods?watch=true") for _ in range(20)]
            assert api.open_watches == 20
        for stream in streams:
            assert await stream.read() == b""
        assert api.open_watches == 0


async def test_watches_can_be_ended(api: FakeApiServer, client: aiohttp.ClientSession) -> None:
    async with client.get("/api/v1/pods?watch=true") as stream:
        api.end_watches()
        assert await stream.read() == b""
    async with client.get("/api/v1/pods?watch=true") as stream:
        api.store.create("pods", POD)
        assert json.loads(await stream.content.readline())["type"] == "ADDED"


async def test_a_client_that_leaves_is_forgotten(api: FakeApiServer, client: aiohttp.ClientSession) -> None:
    stream = await client.get("/api/v1/pods?watch=true")
    assert api.open_watches == 1
    stream.close()
    async with asyncio.timeout(10):
        while api.open_watches:
            await asyncio.sleep(0.01)


async def test_a_client_that_does_not_read_delays_no_other() -> None:
    """Writes continue, others see them, and the slow client must list again."""
    store = Store(keep_changes=10)
    async with (
        FakeApiServer(store) as api,
        aiohttp.ClientSession(api.url, read_bufsize=1024) as client,
        aiohttp.ClientSession(api.url) as reader,
    ):
        slow = await client.get("/api/v1/configmaps?watch=true")
        quick = await reader.get("/api/v1/configmaps?watch=true&fieldSelector=metadata.name=c999")
        for number in range(1000):
            store.create("configmaps", {"metadata": {"name": f"c{number}"}, "data": {"x": "y" * 50_000}})
            await asyncio.sleep(0)
        assert json.loads(await quick.content.readline())["object"]["metadata"]["name"] == "c999"
        *_, last = (await slow.read()).splitlines()
        event: Object = json.loads(last)
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
        quick.close()


async def test_an_unsupported_parameter_is_refused(client: aiohttp.ClientSession) -> None:
    async with client.post("/api/v1/namespaces/default/pods?dryRun=All", json=POD) as answer:
        assert answer.status == 400
        assert "dryRun=All" in (await answer.json())["message"]
    async with client.get("/api/v1/namespaces/default/pods/a") as answer:
        assert answer.status == 404


async def test_its_kubeconfig_works(tmp_path: Path) -> None:
    async with FakeApiServer(token="secret") as api:
        path = api.write_kubeconfig(tmp_path / "kubeconfig")
        content = yaml.safe_load(path.read_text())
        assert content["clusters"][0]["cluster"] == {"server": api.url}
        assert content["users"][0]["user"] == {"token": "secret"}
        assert content["current-context"] == content["contexts"][0]["name"]
        assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
async def test_it_runs_in_the_foreground_until_a_signal(how: signal.Signals, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    command = [sys.executable, "-m", "accelshare.testing.api_server", "--kubeconfig", str(kubeconfig), "--token", "secret"]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONWARNINGS": "error"}
    )
    assert process.stdout is not None
    url = (await process.stdout.readline()).decode().strip()
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer secret"}) as client:
        stream = await client.get(f"{url}/api/v1/nodes?watch=true")
        assert yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"] == url
        process.send_signal(how)
        _, errors = await process.communicate()
        stream.close()
    assert (process.returncode, errors.decode()) == (0, "")


async def test_without_changes_there_is_no_bookmark(api: FakeApiServer, client: aiohttp.ClientSession) -> None:
    """As on the real server, where the contract suite cannot stop the other clients."""
    query = f"watch=true&resourceVersion={api.store.revision}&timeoutSeconds=1&allowWatchBookmarks=true"
    async with client.get(f"/api/v1/pods?{query}") as stream:
        assert await stream.read() == b""
