"""The agent as its own process with eight static cards, beside a fake API server.

Belongs here: starting and ending it, pods bound as the extender binds them. Never: timing anything.
"""

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

from accelshare.ledger.nouns import Slice
from accelshare.testing.api_server import FakeApiServer
from accelshare.testing.fake_runtime import FakeRuntime, RuntimeFeatures
from accelshare.vendors.catalog import load
from accelshare.wire import assignment
from bench.node import pages, zpu
from bench.node.caller import Caller
from bench.node.results import NRI
from bench.node.zpu import Size
from cluster.https import free_port
from cluster.process import Process, last_lines
from cluster.waiting import wait_until_async

NODE: Final = "n1"
LIMIT_S: Final = 180.0
# As in the image: 1 to 2 MB less on every node.
MALLOC: Final = {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "131072"}
RUNTIME: Final = RuntimeFeatures(name="containerd", version="v2.4.2", validator=True)


class FakeBenchNode:
    def __init__(self, api: FakeApiServer, caller: Caller, directory: Path, size: Size) -> None:
        self.api = api
        self.caller = caller
        self.size = size
        self._directory = directory
        self._port = free_port()
        self.agent: Process | None = None
        (directory / "profiles").mkdir()
        (directory / "profiles/acme.toml").write_text(zpu.profile(size))
        (directory / "dev").mkdir()
        for index in range(zpu.CARDS):
            (directory / f"dev/{zpu.NODE_NAME}{index}").symlink_to("/dev/null")
        self._profiles = {profile.name: profile for profile in load([directory / "profiles"])}
        api.store.create("nodes", {"metadata": {"name": NODE}, "status": {"capacity": {"pods": "110"}}})

    @property
    def pid(self) -> int:
        assert self.agent is not None
        return self.agent.pid

    async def start_agent(self, way: str) -> None:
        """Start our agent, and wait until it has published that it delivers."""
        at = self._directory
        kubeconfig = self.api.write_kubeconfig(at / "kubeconfig")
        command = [sys.executable, "-m", "accelshare", "agent", f"--kubeconfig={kubeconfig}", f"--vendor={zpu.KIND}"]
        command += [f"--node-name={NODE}", f"--profiles={at / 'profiles'}", f"--kubelet-root={at}", f"--dev-root={at / 'dev'}"]
        command += [f"--cdi-directory={at / 'cdi'}", f"--port={self._port}", f"--delivery={way}"]
        command += [f"--nri-socket={at / 'nri.sock'}", f"--containerd-config={at / 'containerd.toml'}"]
        self.agent = Process("agent", command, at / "agent.log", environment={**os.environ, **MALLOC})
        await asyncio.to_thread(self.agent.wait_ready, lambda: pages.status(self._port, "/readyz") == 200)

    def stop_agent(self) -> None:
        if self.agent is not None:
            self.agent.kill()

    def bind(self, name: str, card: int, units: int) -> None:
        """One more pod of this node."""
        limits = {zpu.MEMORY: units}
        spec = {"containers": [{"name": "c0", "image": "none", "resources": {"limits": limits}}]}
        self.api.store.create("pods", {"metadata": {"name": name}, "spec": spec}, namespace="default")
        slices = (Slice(zpu.KIND, card, units, False, f"{zpu.NODE_NAME}{card}"),)
        sizes = {(zpu.KIND, card): self.size.card_units}
        written = assignment.write(slices, profiles=self._profiles, sizes=sizes, now_ns=time.time_ns())
        self.api.store.bind(name, {"metadata": {"name": name, "annotations": written}, "target": {"name": NODE}})

    def delete(self, name: str) -> None:
        self.api.store.delete("pods", name, options={"gracePeriodSeconds": 0})

    async def pending(self, pods: int) -> None:
        """Until the agent knows of so many pods that wait for their card."""

        def seen() -> bool:
            return pages.value(pages.text(self._port), "accelshare_waiting_pods") == pods

        await self.until(seen, f"{pods} pods wait")

    async def recorded(self, pods: Iterable[str]) -> None:
        """Until each of these pods' records says that it has its card."""

        def all_are() -> bool:
            found = [self.api.store.get("pods", pod).object["metadata"]["annotations"] for pod in pods]
            return all(annotations[zpu.ASSIGNED] == "true" for annotations in found)

        await self.until(all_are, "all records say assigned")

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for the condition, called in a thread because it may block."""
        evidence = partial(last_lines, self.agent)
        await wait_until_async(partial(asyncio.to_thread, condition), what, LIMIT_S, 0.02, evidence=evidence)


@contextlib.asynccontextmanager
async def open_fake_bench_node(size: Size, way: str) -> AsyncIterator[FakeBenchNode]:
    """An agent that delivers in this way, ended when the block ends."""
    with tempfile.TemporaryDirectory(prefix="b-") as made:  # a short name: a socket's path has at most 107 characters
        directory = Path(made)
        (directory / "containerd.toml").write_text('[plugins."io.containerd.nri.v1.nri".default_validator]\nenable = true\n')
        async with contextlib.AsyncExitStack() as stack:
            api = await stack.enter_async_context(FakeApiServer())
            caller = await stack.enter_async_context(Caller(directory))
            if way == NRI:
                await stack.enter_async_context(FakeRuntime(directory / "nri.sock", RUNTIME))
            fake_node = FakeBenchNode(api, caller, directory, size)
            stack.callback(fake_node.stop_agent)
            await fake_node.start_agent(way)
            yield fake_node
