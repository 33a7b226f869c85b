"""The in-memory server as a guest in a loop: faults on the wire, slow clients, a quick and clean end."""

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


async def test_an_answer_is_lost_but_the_work_is_done(api: FakeApiServer, client: aiohttp.ClientSession) -> None:
    """The case that a bind must survive: the pod is bound, and nobody said so."""
    api.store.create("pods", POD)
    fault = api.faults.drop_after(method="POST", path="/binding$")
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await client.post(BIND_PATH, json=BINDING)
    assert fault.hits == 1
    assert api.store.get("pods", "a").object["spec"]["nodeName"] == "n1"
    async with client.post(BIND_PATH, json=BINDING) as again:
        assert again.status == 409


async def test_a_connection_breaks_and_nothing_is_done(api: FakeApiServer, client: aiohttp.ClientSession) -> None:
    api.store.create("pods", POD)
    api.faults.drop_before(method="POST", path="/binding$")
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await client.post(BIND_PATH, json=BINDING)
    assert "nodeName" not in api.store.get("pods", "a").object["spec"]


async def test_a_fault_answers_as_the_real_server_would(api: FakeApiServer, client: aiohttp.ClientSession) -> None:
    api.faults.answer(429, retry_after_s=7)
    api.faults.answer(503)
    api.faults.answer(500)
    told = []
    for _ in range(4):
        async with client.get("/api/v1/nodes") as answer:
            body = await answer.json()
            told.append((answer.status, body.get("reason"), answer.headers.get("retry-after")))
    assert told == [
        (429, "TooManyRequests", "7"),
        (503, "ServiceUnavailable", None),
        (500, "InternalError", None),
        (200, None, None),
    ]


async def test_an_answer_is_late(api: FakeApiServer, client: aiohttp.ClientSession) -> None:
    api.faults.delay(60, path="/nodes")
    with pytest.raises(TimeoutError):
        await client.get("/api/v1/nodes", timeout=aiohttp.ClientTimeout(total=0.2))
    async with client.get("/api/v1/nodes") as answer:
        assert answer.status == 200


async def test_a_late_answer_may_find_nobody(api: FakeApiServer, client: aiohttp.ClientSession) -> None:
    """The client has given up, and the work is done all the same."""
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


async def test_open_watches_do_not_hold_up_the_end() -> None:
    """The server ends them, and is gone well before anybody's timeout."""
    async with aiohttp.ClientSession() as client:
        async with asyncio.timeout(5), FakeApiServer() as api:
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


async def test_a_client_that_does_not_read_holds_nobody_up() -> None:
    """Writes go on, others see them, and the slow one is told to begin again."""
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
        told: Object = json.loads(last)
        assert (told["type"], told["object"]["code"]) == ("ERROR", 410)
        quick.close()


async def test_an_unsupported_parameter_is_refused(client: aiohttp.ClientSession) -> None:
    async with client.post("/api/v1/namespaces/default/pods?dryRun=All", json=POD) as answer:
        assert answer.status == 400
        assert "dryRun=All" in (await answer.json())["message"]
    async with client.get("/api/v1/namespaces/default/pods/a") as answer:
        assert answer.status == 404


async def test_a_kubeconfig_leads_to_it(tmp_path: Path) -> None:
    async with FakeApiServer(token="secret") as api:
        path = api.write_kubeconfig(tmp_path / "kubeconfig")
        content = yaml.safe_load(path.read_text())
        assert content["clusters"][0]["cluster"] == {"server": api.url}
        assert content["users"][0]["user"] == {"token": "secret"}
        assert content["current-context"] == content["contexts"][0]["name"]
        assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
async def test_it_runs_in_the_foreground_until_it_is_told_to_end(how: signal.Signals, tmp_path: Path) -> None:
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


async def test_without_news_there_is_no_bookmark(api: FakeApiServer, client: aiohttp.ClientSession) -> None:
    """As on the real server, where the contract suite cannot hold the rest of the cluster still."""
    query = f"watch=true&resourceVersion={api.store.revision}&timeoutSeconds=1&allowWatchBookmarks=true"
    async with client.get(f"/api/v1/pods?{query}") as stream:
        assert await stream.read() == b""
