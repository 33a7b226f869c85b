"""A cluster without Kubernetes: the fake API server, which can fail on demand, and our extender as its own process.

Belongs here: starting both, and kube-scheduler's calls as one line each. Never: assertions about the product.
"""

import contextlib
import json
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from accelshare.testing.api_server import FakeApiServer
from cluster.https import free_port
from cluster.process import Process, last_lines
from cluster.waiting import wait_until_async

Object = dict[str, Any]
MEMORY = "aliyun.com/gpu-mem"
LIMIT_S = 180.0


class FakeCluster:
    def __init__(self, api: FakeApiServer, directory: Path, session: aiohttp.ClientSession) -> None:
        self.api = api
        self.directory = directory
        self.session = session
        self.port = free_port()
        self.scheme = "http"
        self.tls: ssl.SSLContext | bool = True
        self.extender: Process | None = None

    def begin_extender(self, *flags: str) -> Process:
        kubeconfig = self.api.write_kubeconfig(self.directory / "kubeconfig")
        command = [sys.executable, "-m", "accelshare", "extender", f"--listen=127.0.0.1:{self.port}"]
        self.extender = Process("extender", [*command, f"--kubeconfig={kubeconfig}", *flags], self.directory / "extender.log")
        return self.extender

    async def start_extender(self, *flags: str) -> Process:
        process = self.begin_extender(*flags)
        await self.until(self.is_ready, "the extender is ready")
        return process

    async def is_ready(self) -> bool:
        assert self.extender is not None
        assert self.extender.running, self.extender.last_lines()
        try:
            return (await self.call("GET", "/readyz"))[0] == 200
        except aiohttp.ClientError:
            return False

    async def until(self, condition: Callable[[], Any], what: str) -> Any:
        """The condition's first true value."""
        return await wait_until_async(condition, what, LIMIT_S, 0.02, evidence=lambda: last_lines(self.extender))

    # Calls.

    async def call(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        data = body if isinstance(body, bytes | type(None)) else json.dumps(body).encode()
        url = f"{self.scheme}://127.0.0.1:{self.port}{path}"
        async with self.session.request(method, url, data=data, ssl=self.tls) as answer:
            return answer.status, await answer.text()

    async def post(self, verb: str, body: object, *, prefix: str = "/accelshare") -> Any:
        status, text = await self.call("POST", f"{prefix}/{verb}", body)
        assert status == 200, text
        return json.loads(text)

    async def filter(self, pod: Object, *names: str, prefix: str = "/accelshare") -> Any:
        return await self.post("filter", {"Pod": pod, "Nodes": None, "NodeNames": list(names)}, prefix=prefix)

    async def bind(self, pod: Object, node: str) -> str:
        meta = pod["metadata"]
        body = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}
        return str((await self.post("bind", body))["Error"])

    async def used(self) -> dict[str, list[int]]:
        status, text = await self.call("GET", "/gpushare-scheduler/inspect")
        assert status == 200
        return {node["name"]: [card["usedGPU"] for card in node["devs"]] for node in json.loads(text)["nodes"]}

    # The cluster.

    def node(self, name: str, *sizes: int, **of_cards: object) -> None:
        """A node with cards of these sizes; `of_cards` are more fields of each card in the inventory."""
        self.api.store.create("nodes", {"metadata": {"name": name, "annotations": _inventory(name, sizes, of_cards)}})

    def change_node(self, name: str, *sizes: int, **of_cards: object) -> None:
        """The agent of this node publishes another inventory."""
        self.api.store.patch("nodes", name, {"metadata": {"annotations": _inventory(name, sizes, of_cards)}})

    def pod(self, name: str, units: object, **metadata: object) -> Object:
        container = {"name": "main", "image": "none", "resources": {"limits": {MEMORY: units}}}
        content = {"metadata": {"name": name, **metadata}, "spec": {"containers": [container]}}
        self.api.store.create("pods", content, namespace="default")
        return self.read(name)

    def read(self, name: str) -> Object:
        return json.loads(self.api.store.get("pods", name).item)  # type: ignore[no-any-return]

    def cards(self, name: str) -> list[int]:
        record = (self.read(name)["metadata"].get("annotations") or {}).get("accelshare.io/assignment", "{}")
        return [entry["index"] for entry in json.loads(record).get("nvidia", [])]


def _inventory(node: str, sizes: Sequence[int], of_cards: Mapping[str, object]) -> dict[str, str]:
    cards = [{"index": index, "id": f"{node}-{index}", "size": size, **of_cards} for index, size in enumerate(sizes)]
    return {"accelshare.io/inventory": json.dumps({"nvidia": {"unit": "GiB", "cards": cards}})}


@contextlib.asynccontextmanager
async def open_fake_cluster(directory: Path) -> AsyncIterator[FakeCluster]:
    async with FakeApiServer() as api, aiohttp.ClientSession() as session:
        fake_cluster = FakeCluster(api, directory, session)
        try:
            yield fake_cluster
        finally:
            if fake_cluster.extender is not None:
                fake_cluster.extender.kill()  # a drain can take 15 s; tests of the shutdown stop it themselves
