"""The scene: the API server in memory inside this process, the real extender as a process of its own.

Belongs here: starting, waiting until it is so, and ending it in every case. Never: what is played.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
import orjson

from accelshare.kube import config
from accelshare.kube.client import Client
from accelshare.kube.errors import KubeError
from accelshare.kube.memory import MemoryApiServer
from cluster.https import free_port
from cluster.process import Process
from demo.errors import DemoError
from demo.playlist import Object

LIMIT_S: Final = 30.0
ANSWER_S: Final = 5.0  # kube-scheduler's default for every call to an extender
EVERY_S: Final = 0.02
EXTENDER: Final = (sys.executable, "-m", "accelshare", "extender")


@dataclass(frozen=True, slots=True)
class Stage:
    api_url: str
    extender_url: str
    extender: Process
    client: Client  # to the API server
    session: aiohttp.ClientSession  # to the extender

    async def create(self, manifest: Object) -> None:
        kind, metadata = manifest.get("kind"), manifest["metadata"]
        path = "/api/v1/nodes" if kind == "Node" else f"/api/v1/namespaces/{metadata.get('namespace', 'default')}/pods"
        try:
            await self.client.request("POST", path, body=orjson.dumps(manifest))
        except KubeError as error:
            raise DemoError(f"{kind} {metadata.get('name')} cannot be created: {error}") from error

    async def delete(self, pod: str, *, grace_s: int | None = None) -> None:
        """Delete a pod (`namespace/name`); with no grace given, its own: then it goes on until its kubelet has ended it."""
        namespace, _, name = pod.partition("/")
        params = {} if grace_s is None else {"gracePeriodSeconds": str(grace_s)}
        try:
            await self.client.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}", params=params)
        except KubeError as error:
            raise DemoError(f"pod {pod} cannot be deleted: {error}") from error

    async def inspected(self) -> str:
        """The extender's own book, as text; empty while it does not answer."""
        return await self._get("/accelshare/inspect")

    async def until(self, condition: Callable[[], Awaitable[bool]], what: str, limit_s: float = LIMIT_S) -> None:
        """Return once it is so. The extender's death, or too much patience, ends the demo with the end of its log."""
        end_s = time.monotonic() + limit_s
        while not await condition():
            if not self.extender.running:
                raise DemoError(f"the extender ended with exit code {self.extender.exit_code}; {self._log()}")
            if time.monotonic() > end_s:
                raise DemoError(f"not within {limit_s:g} s: {what}; {self._log()}")
            await asyncio.sleep(EVERY_S)

    async def ready(self) -> bool:
        return await self._get("/readyz") == "ok"

    async def _get(self, path: str) -> str:
        try:
            async with self.session.get(self.extender_url + path) as answer:
                return await answer.text() if answer.status == 200 else ""
        except (aiohttp.ClientError, TimeoutError):
            return ""

    def _log(self) -> str:
        return f"the extender's log ends with:\n{self.extender.last_lines()}"


@asynccontextmanager
async def set_up(program: Sequence[str] = EXTENDER) -> AsyncIterator[Stage]:
    """An empty cluster with our extender, ready; all of it gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="accelshare-demo-") as name:
        directory = Path(name)
        async with MemoryApiServer() as api:
            kubeconfig = api.write_kubeconfig(directory / "kubeconfig")
            listen = f"127.0.0.1:{free_port()}"
            command = [*program, f"--kubeconfig={kubeconfig}", f"--listen={listen}"]
            extender = Process("extender", command, directory / "extender.log")
            try:
                async with (
                    Client(config.load(kubeconfig), user_agent="accelshare-demo") as client,
                    aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_S)) as session,
                ):
                    stage = Stage(api.url, f"http://{listen}", extender, client, session)
                    await stage.until(stage.ready, "the extender is ready")
                    yield stage
            finally:
                # In a thread, because the extender says goodbye to the API server, which is ours.
                try:
                    await asyncio.to_thread(extender.stop)
                finally:
                    extender.kill()
