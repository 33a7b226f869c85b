"""The dashboard as its own process beside a fake cluster, and a client of its HTTP side.

Belongs here: starting it, agents that it asks, reading snapshots and events. Never: assertions about the product.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp

from accelshare.http.messages import Response
from accelshare.http.server import Server, listen
from cluster.https import free_port
from cluster.process import Process, last_lines
from cluster.waiting import wait_until_async
from tests.contract.fake_cluster import LIMIT_S, FakeCluster

Object = dict[str, Any]


class DashboardClient:
    """The dashboard's side of HTTP."""

    def __init__(self, session: aiohttp.ClientSession, port: int, process: Process | None = None) -> None:
        self.session = session
        self.port = port
        self.process = process

    async def get(self, path: str, *, method: str = "GET", **headers: str) -> tuple[int, str, dict[str, str]]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.request(method, f"http://127.0.0.1:{self.port}{path}", headers=named) as answer:
            return answer.status, await answer.text(), {key.lower(): value for key, value in answer.headers.items()}

    async def serves(self) -> bool:
        """Whether the page itself is there; nodes and pods may not be listed yet."""
        assert self.process is None or self.process.running, self.process.last_lines()
        try:
            return (await self.get("/"))[0] == 200
        except aiohttp.ClientError:
            return False

    async def snapshot(self, **headers: str) -> Object | None:
        status, text, _ = await self.get("/api/snapshot", **headers)
        return json.loads(text) if status == 200 else None

    async def until(self, condition: Callable[[Object], object], what: str) -> Object:
        """The first snapshot for which this is true."""

        async def fulfilled() -> Object | None:
            snapshot = await self.snapshot()
            return snapshot if snapshot is not None and condition(snapshot) else None

        found: Object = await wait_until_async(fulfilled, what, LIMIT_S, 0.05, evidence=lambda: last_lines(self.process))
        return found


@contextlib.asynccontextmanager
async def run_dashboard(fake_cluster: FakeCluster, *flags: str, port: int = 0) -> AsyncIterator[DashboardClient]:
    """`accelshare dashboard` as its own process."""
    port = port or free_port()
    kubeconfig = fake_cluster.api.write_kubeconfig(fake_cluster.directory / "kubeconfig")
    words = [sys.executable, "-m", "accelshare", "dashboard", f"--kubeconfig={kubeconfig}", f"--listen=127.0.0.1:{port}", *flags]
    process = Process("dashboard", words, fake_cluster.directory / "dashboard.log")
    try:
        client = DashboardClient(fake_cluster.session, port, process)
        await wait_until_async(client.serves, "the dashboard serves", LIMIT_S, 0.05, evidence=process.last_lines)
        yield client
    finally:
        process.kill()


@contextlib.asynccontextmanager
async def answering_agent(fake_cluster: FakeCluster, node: str, answer: Callable[[], Response]) -> AsyncIterator[None]:
    """A pod that is labelled as the agent of this node, and its port."""
    listening = listen("127.0.0.1", 0)
    ports = [{"name": "probes", "containerPort": listening.getsockname()[1]}]
    metadata = {"name": f"agent-{node}", "labels": {"accelshare.io/agent": "true"}}
    spec = {"nodeName": node, "containers": [{"name": "agent", "image": "none", "ports": ports}]}
    fake_cluster.api.store.create("pods", {"metadata": metadata, "spec": spec}, namespace="default")
    addresses = {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
    status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], **addresses}}
    fake_cluster.api.store.patch("pods", f"agent-{node}", status, namespace="default", subresource="status")
    server = Server(lambda _request: answer(), listening, max_body_bytes=4096)
    server.start()
    try:
        yield
    finally:
        await server.stop()


async def next_event(stream: aiohttp.ClientResponse) -> Object:
    fields: Object = {}
    async with asyncio.timeout(LIMIT_S):
        async for line in stream.content:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name in ("event", "id", "data"):
                fields[name] = json.loads(value) if name == "data" else value
            elif "data" in fields:
                return fields
    raise AssertionError("the stream ended")
