"""A node without hardware: the fake API server, a fake kubelet, and our agent as its own process with static cards.

Belongs here: starting these parts, binding pods as the extender does, and reading what containers got.
"""

import asyncio
import contextlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from accelshare.kube.client import Client
from accelshare.kube.config import Cluster
from accelshare.ledger.nouns import Slice
from accelshare.testing.api_server import FakeApiServer
from accelshare.testing.fake_kubelet import FakeKubelet, RegisteredPlugin
from accelshare.vendors.catalog import load
from accelshare.wire import assignment, inventory
from cluster.https import free_port
from cluster.process import Process, last_lines
from cluster.waiting import wait_until_async
from tests.proxy import Proxy

Object = dict[str, Any]
LIMIT_S = 180.0
NODE = "n1"
NO_ENTRY = inventory.KindEntry(cards=[], delivers=False)
MEMORY, WHOLE, COUNT = "acme.example/zpu-mem", "acme.example/zpu", "acme.example/zpu-count"
PROFILE = """
name = "acme"
title = "Acme ZPU"
noun = "ZPU"
[resources]
memory = "acme.example/zpu-mem"
count = "acme.example/zpu-count"
whole = "acme.example/zpu"
[unit]
default = "GiB"
[unit.mib]
GiB = 1024
MiB = 1
[annotations]
index = "acme.example/index"
card_size = "acme.example/size"
pod_units = "acme.example/units"
assigned = "acme.example/assigned"
assign_time = "acme.example/time"
[hardware]
device_nodes = ["/dev/zpu{minor}"]
[container]
strategy = ["device-nodes"]
[container.env]
ZPU_VISIBLE = "{index}"
ZPU_UNITS = "{units}"
[driver]
name = "static"
every_s = 0.1
[driver.static]
glob = "/dev/zpu[0-9]*"
memory_mib = 16384
"""


class FakeNode:
    def __init__(self, api: FakeApiServer, client: Client, directory: Path) -> None:
        self.api = api
        self.client = client
        self.directory = directory
        self.kubelet_root = Path(tempfile.mkdtemp(prefix="k-"))  # a socket's path has at most 107 characters
        self.dev = directory / "dev"
        self.dev.mkdir()
        self.cdi = directory / "cdi"
        self.profiles = directory / "profiles"
        self.profiles.mkdir()
        (self.profiles / "acme.toml").write_text(PROFILE)
        self.catalog = load([self.profiles])
        self.port = free_port()
        self.agent: Process | None = None
        self.proxy: Proxy | None = None  # between the agent and the API server
        self._kubelet: FakeKubelet | None = None
        self._starts = 0
        api.store.create("nodes", {"metadata": {"name": NODE}, "status": {"capacity": {"pods": "110"}}})

    def cards(self, count: int) -> None:
        for index in range(count):
            (self.dev / f"zpu{index}").symlink_to("/dev/null")

    def kubelet(self, **options: Any) -> FakeKubelet:
        self._kubelet = FakeKubelet(self.client, NODE, self.kubelet_root, **options)
        return self._kubelet

    def begin_agent(self, *flags: str) -> Process:
        self._starts += 1
        kubeconfig = self.api.write_kubeconfig(self.directory / "kubeconfig")
        if self.proxy is not None:
            kubeconfig.write_text(kubeconfig.read_text().replace(self.api.url, f"http://127.0.0.1:{self.proxy.port}"))
        command = [sys.executable, "-m", "accelshare", "agent", f"--kubeconfig={kubeconfig}", "--vendor=acme"]
        command += [f"--port={self.port}", f"--profiles={self.profiles}", f"--cdi-directory={self.cdi}"]
        command += [f"--kubelet-root={self.kubelet_root}", f"--dev-root={self.dev}"]
        command += ["--delivery=device-plugin", f"--node-name={NODE}"]  # of a flag that is given twice the last one counts
        self.agent = Process("agent", [*command, *flags], self.directory / f"agent-{self._starts}.log")
        return self.agent

    async def start_agent(self, *flags: str) -> Process:
        """Start an agent, and wait until it delivers. Through device plugins it delivers when kubelet has its device lists."""
        former = list(self._kubelet.resources.values()) if self._kubelet is not None else []
        process = self.begin_agent(*flags)
        await self.until(self.ready, "the agent is ready")
        await self.until(self.delivers, "the Node's inventory shows that the agent delivers")
        by_device_plugin = "--delivery=auto" not in flags or self.entry().delivery.startswith("device-plugin")
        if self._kubelet is not None and "--delivery=nri" not in flags and by_device_plugin:
            await self.kubelet_has_lists(self._kubelet, former)
        return process

    async def kubelet_has_lists(self, kubelet: FakeKubelet, former: Sequence[RegisteredPlugin] = ()) -> None:
        """Wait until the agent delivers and this kubelet has its device lists: the agent sends them, then reports that it
        delivers, and kubelet rejects pods until it has read them. `former` are registrations of an earlier agent.
        """
        await self.until(self.delivers, "the Node's inventory shows that the agent delivers")

        def has_lists() -> bool:
            fresh = [plugin for plugin in kubelet.resources.values() if not any(plugin is one for one in former)]
            return bool(fresh) and all(plugin.health for plugin in fresh)

        await self.until(has_lists, "kubelet has the device lists of this agent")

    async def ready(self) -> bool:
        assert self.agent is not None
        assert self.agent.running, self.agent.last_lines()
        try:
            return "200" in (await self.page("/readyz")).partition("\r\n")[0]
        except OSError:
            return False

    def entry(self, kind: str = "acme") -> inventory.KindEntry:
        """What the Node's inventory shows of a kind."""
        annotations = self.api.store.get("nodes", NODE).object["metadata"].get("annotations") or {}
        return inventory.entries_of(annotations.get(inventory.KEY, "{}")).get(kind, NO_ENTRY)

    def delivers(self) -> bool:
        assert self.agent is not None
        assert self.agent.running, self.agent.last_lines()
        return self.entry().delivers

    def capacity(self) -> Mapping[str, str]:
        return dict(self.api.store.get("nodes", NODE).object["status"].get("capacity") or {})

    def allocatable(self) -> Mapping[str, str]:
        return dict(self.api.store.get("nodes", NODE).object["status"].get("allocatable") or {})

    # Pods.

    def pod(
        self, name: str, *containers: Mapping[str, int], inits: list[Object] | None = None, labels: Object | None = None
    ) -> str:
        spec: Object = {"containers": [self.container(f"c{number}", limits) for number, limits in enumerate(containers)]}
        if inits:
            spec["initContainers"] = inits
        metadata = {"name": name, "annotations": labels or {}}
        created = self.api.store.create("pods", {"metadata": metadata, "spec": spec}, namespace="default")
        return str(created.object["metadata"]["uid"])

    @staticmethod
    def container(name: str, limits: Mapping[str, int], **more: object) -> Object:
        return {"name": name, "image": "none", "resources": {"limits": dict(limits)}, **more}

    def bind(
        self, name: str, *cards: int, units: int = 0, whole: bool = False, id: bool = True, more: Mapping[str, str] | None = None
    ) -> None:
        """Bind as the extender does, node and cards in one write; without cards the pod is placed by hand."""
        slices = tuple(Slice("acme", card, units, whole, f"zpu{card}" if id else "") for card in cards)
        sizes = {("acme", card): 16 for card in range(64)}
        profiles = {profile.name: profile for profile in self.catalog}
        written = assignment.write(slices, profiles=profiles, sizes=sizes, now_ns=time.time_ns()) | dict(more or {})
        self.api.store.bind(name, {"metadata": {"name": name, "annotations": written}, "target": {"name": NODE}})

    async def place(self, name: str, card: int, *, units: int) -> str:
        """Create a pod, bind it to units of one card, and wait until it is admitted or rejected. Returns its uid."""
        uid = self.pod(name, {MEMORY: units})
        self.bind(name, card, units=units)
        await self.settled(name)
        return uid

    def read(self, name: str) -> Object:
        return json.loads(self.api.store.get("pods", name).item)  # type: ignore[no-any-return]

    def recorded(self, name: str) -> list[int]:
        record = (self.read(name)["metadata"].get("annotations") or {}).get("acme.example/index", "")
        return [int(index) for index in record.split(",")] if record else []

    def phase(self, name: str) -> str:
        return str(self.read(name)["status"]["phase"])

    async def until(self, condition: Callable[[], Any], what: str) -> Any:
        """The condition's first true value."""
        return await wait_until_async(condition, what, LIMIT_S, 0.02, evidence=lambda: last_lines(self.agent))

    async def settled(self, *names: str) -> None:
        """Wait until these pods are admitted or rejected, and the records of the admitted ones have the assigned flag."""

        def done() -> bool:
            for name in names:
                pod = self.read(name)
                flag = (pod["metadata"].get("annotations") or {}).get("acme.example/assigned", "true")
                if pod["status"]["phase"] == "Pending" or (pod["status"]["phase"] == "Running" and flag != "true"):
                    return False
            return True

        await self.until(done, f"{', '.join(names)} are settled")

    async def metric(self, name: str) -> float:
        text = await self.page("/metrics")
        return float(next(line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(name)))

    async def page(self, path: str) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        text = (await reader.read()).decode()
        writer.close()
        return text


@contextlib.asynccontextmanager
async def open_fake_node(directory: Path) -> AsyncIterator[FakeNode]:
    async with FakeApiServer() as api, Client(Cluster(api.url), user_agent="tests") as client:
        fake_node = FakeNode(api, client, directory)
        try:
            yield fake_node
        finally:
            if fake_node.agent is not None:
                fake_node.agent.kill()
            shutil.rmtree(fake_node.kubelet_root)
