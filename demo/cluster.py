"""The demo's cluster: a fake API server in this process, the real extender as a process of its own, and the nodes.

Belongs here: starting it, waiting for conditions, and ending it in every case. Never: the scenario's steps.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp
import orjson

from accelshare.kube import config
from accelshare.kube.client import Client
from accelshare.kube.errors import KubeError
from accelshare.testing.api_server import FakeApiServer
from accelshare.vendors.catalog import Catalog
from cluster.https import free_port
from cluster.process import Process
from demo.nodes import DemoNode, start_node
from demo.scenario import DemoError, Object, Scenario, manifests

LIMIT_S: Final = 30.0
ANSWER_S: Final = 5.0  # kube-scheduler's default timeout of a call to an extender
POLL_S: Final = 0.02
EXTENDER: Final = (sys.executable, "-m", "accelshare", "extender")
# A socket's path has at most 107 characters, and below our directory they are up to 60 long.
LONGEST_TEMPORARY: Final = 40
SHORT_TEMPORARY: Final = "/tmp"  # noqa: S108 – the directory in it is created safely


@dataclass(frozen=True, slots=True)
class DemoCluster:
    api_url: str
    extender_url: str
    extender: Process
    client: Client  # to the API server
    session: aiohttp.ClientSession  # to the extender
    nodes: Mapping[str, DemoNode] = field(default_factory=dict)
    kubeconfig: Path = Path()

    @property
    def processes(self) -> Iterator[Process]:
        yield self.extender
        yield from (node.agent for node in self.nodes.values())

    async def create(self, manifest: Object) -> None:
        kind, metadata = manifest.get("kind"), manifest["metadata"]
        path = "/api/v1/nodes" if kind == "Node" else f"/api/v1/namespaces/{metadata.get('namespace', 'default')}/pods"
        try:
            await self.client.request("POST", path, body=orjson.dumps(manifest))
        except KubeError as error:
            raise DemoError(f"{kind} {metadata.get('name')} cannot be created: {error}") from error

    async def delete(self, pod: str) -> None:
        """Delete a pod (`namespace/name`) with its grace period: it stays until its kubelet has ended it."""
        namespace, _, name = pod.partition("/")
        try:
            await self.client.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}")
        except KubeError as error:
            raise DemoError(f"pod {pod} cannot be deleted: {error}") from error

    async def inspect(self) -> str:
        """The extender's inspect response as text; empty while it does not answer."""
        return await self._get("/accelshare/inspect")

    async def until(self, condition: Callable[[], Awaitable[bool]], what: str, limit_s: float = LIMIT_S) -> None:
        """Wait for a condition. DemoError with the end of the logs if a process ends or the time is up."""
        end_s = time.monotonic() + limit_s
        while not await condition():
            for process in self.processes:
                if not process.running:
                    raise DemoError(f"the {process.name} ended with exit code {process.exit_code}; {_end_of_log(process)}")
            if time.monotonic() > end_s:
                logs = "\n".join(f"the {process.name} runs; {_end_of_log(process)}" for process in self.processes)
                raise DemoError(f"not within {limit_s:g} s: {what}\n{logs}")
            await asyncio.sleep(POLL_S)

    async def ready(self) -> bool:
        return await self._get("/readyz") == "ok"

    async def _get(self, path: str) -> str:
        try:
            async with self.session.get(self.extender_url + path) as answer:
                return await answer.text() if answer.status == 200 else ""
        except (aiohttp.ClientError, TimeoutError):
            return ""


@asynccontextmanager
async def start_cluster(
    program: Sequence[str] = EXTENDER, *, scenario: Scenario | None = None, catalog: Catalog | None = None
) -> AsyncIterator[DemoCluster]:
    """Start a cluster with a ready extender, and start the scenario's nodes; end all of it afterwards."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="a-", dir=temporary(tempfile.gettempdir()))))
        api = await stack.enter_async_context(FakeApiServer())
        kubeconfig = api.write_kubeconfig(directory / "kubeconfig")
        client = await stack.enter_async_context(Client(config.load(kubeconfig), user_agent="accelshare-demo"))
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        session = await stack.enter_async_context(aiohttp.ClientSession(timeout=timeout))

        listen = f"127.0.0.1:{free_port()}"
        command = [*program, f"--kubeconfig={kubeconfig}", f"--listen={listen}"]
        extender = Process("extender", command, directory / "extender.log")
        stack.push_async_callback(_end, extender)

        nodes: dict[str, DemoNode] = {}
        if scenario is not None and catalog is not None:
            for number, entry in enumerate(scenario.nodes):
                node = await stack.enter_async_context(
                    start_node(
                        manifests(entry.file)[0],
                        catalog[entry.vendor],
                        client=client,
                        catalog=catalog,
                        profiles=scenario.profiles_directory,
                        kubeconfig=kubeconfig,
                        directory=directory / str(number),
                    )
                )
                nodes[node.name] = node
        cluster = DemoCluster(api.url, f"http://{listen}", extender, client, session, nodes, kubeconfig)
        await cluster.until(cluster.ready, "the extender is ready")
        yield cluster


def temporary(usual: str) -> str:
    """The usual directory for temporary files, or a shorter one if its path is too long for sockets."""
    return usual if len(usual) <= LONGEST_TEMPORARY else SHORT_TEMPORARY


async def _end(extender: Process) -> None:
    # In a thread, because the extender calls the API server, which runs in this loop, before it ends.
    try:
        await asyncio.to_thread(extender.stop)
    finally:
        extender.kill()


def _end_of_log(process: Process) -> str:
    return f"its log ends with:\n{process.last_lines()}"
