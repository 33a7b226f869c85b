"""Watches pods and nodes in etcd itself, so that no version is missed while the API server is down, paused or restarted.

Belongs here: reading etcd's watch and handing each version to a History. Never: judging.

The API server must store JSON (`--storage-media-type=application/json`) and must not compact etcd's history.
"""

import asyncio
import base64
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Final

import aiohttp

from cluster.control_plane import ControlPlane
from tests.trust.history import Finding, History, Object

API_SERVER_ARGS: Final = ("--storage-media-type=application/json", "--etcd-compaction-interval=0")
NODES: Final = "/registry/minions/"
PODS: Final = "/registry/pods/"
# One range has the order of all changes. What is between nodes and pods in it hardly ever changes.
RANGE: Final = (NODES, PODS.removesuffix("/") + "0")
RETRY_S: Final = 0.1
SILENT_S: Final = 5.0  # then the watch is begun again


class EtcdWatch:
    def __init__(self, history: History, url: str, tls: ssl.SSLContext, clock: Callable[[], float]) -> None:
        """`clock` gives the seconds of the run."""
        self._history = history
        self._url = url
        self._tls = tls
        self._clock = clock
        self.revision = 0  # of the last version that was handed over

    async def run(self) -> None:
        async with aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=SILENT_S)
        ) as session:
            while True:
                # etcd is down, or nothing happens; the next watch goes on where this one ended.
                with contextlib.suppress(aiohttp.ClientError, OSError):
                    await self._watch(session)
                await asyncio.sleep(RETRY_S)

    async def _watch(self, session: aiohttp.ClientSession) -> None:
        start, end = (base64.b64encode(key.encode()).decode() for key in RANGE)
        wanted = {"key": start, "range_end": end, "start_revision": str(self.revision + 1), "prev_kv": True}
        async with session.post(f"{self._url}/v3/watch", json={"create_request": wanted}, ssl=self._tls) as answer:
            answer.raise_for_status()
            rest = b""
            async for piece in answer.content.iter_any():
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    message = json.loads(line)
                    if "result" not in message:
                        return  # an error: etcd ends, or has just begun
                    self._take(message["result"])

    def _take(self, result: Object) -> None:
        if compacted := int(result.get("compact_revision", 0)):
            self.revision = compacted
            self._history.findings.append(Finding("ended early", f"etcd has dropped versions that were not seen: {result}"))
        for event in result.get("events", ()):
            deleted = event.get("type") == "DELETE"
            key = base64.b64decode(event["kv"]["key"]).decode()
            revision = int(event["kv"]["mod_revision"])
            if key.startswith((NODES, PODS)):
                content = json.loads(base64.b64decode(event["prev_kv" if deleted else "kv"]["value"]))
                if key.startswith(NODES):
                    self._history.see_node(content, at_s=self._clock(), deleted=deleted)
                else:
                    self._history.see_pod(content, revision=revision, at_s=self._clock(), deleted=deleted)
            self.revision = max(self.revision, revision)


@contextlib.asynccontextmanager
async def watch_etcd(plane: ControlPlane, history: History, clock: Callable[[], float]) -> AsyncIterator[EtcdWatch]:
    """Watch from the first version on. An error that ends it early is a finding."""
    tls = ssl.create_default_context(cafile=str(plane.ca_file))
    tls.load_cert_chain(*plane.client_certificate("history"))
    watch = EtcdWatch(history, plane.etcd.url, tls, clock)
    task = asyncio.create_task(watch.run())

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            history.findings.append(Finding("ended early", f"the watch of etcd ended: {task.exception()!r}"))

    task.add_done_callback(ended)
    try:
        yield watch
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
