"""Several extenders on a real control plane, and the Service before them.

Belongs here: starting the extenders, a TCP switch in place of kube-proxy, a stream of pods and the times of their binds.
Never: assertions.
"""

import asyncio
import contextlib
import itertools
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp

from accelshare.kube.client import Client
from accelshare.kube.errors import KubeError, NotFound
from cluster.certificates import Authority
from cluster.https import free_port
from cluster.process import Process, last_lines
from tests.e2e.scheduling_cluster import SchedulingCluster
from tests.proxy import close_server

NAMESPACE = "kube-system"
NAME = "accelshare-extender"
FLAGS = (f"--lease={NAME}", f"--service={NAME}")
SERVICE = f"/api/v1/namespaces/{NAMESPACE}/services/{NAME}"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{NAME}"
SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
SLICE = f"{SLICES}/{NAME}-ipv4"


class Replica:
    def __init__(
        self, name: str, address: str, port: int, launch: Callable[["Replica"], Process], *, probe_port: int | None = None
    ) -> None:
        self.name = name
        self.address = address
        self.port = port
        self._probe_port = probe_port or port
        self._launch = launch
        self.process = launch(self)

    def restart(self) -> None:
        """A new process in the same pod, as kubelet starts one; the old one, if it runs, ends as in a crash."""
        self.process.kill()
        self.process = self._launch(self)

    async def get(self, path: str) -> tuple[int, str]:
        """Status 0: there is no answer."""
        try:
            url, timeout = f"http://127.0.0.1:{self._probe_port}{path}", aiohttp.ClientTimeout(total=2)
            async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as got:
                return got.status, await got.text()
        except (aiohttp.ClientError, TimeoutError):
            return 0, ""

    async def decides(self) -> bool:
        return (await self.get("/leaderz"))[0] == 200

    async def is_ready(self) -> bool:
        assert self.process.running, self.process.last_lines()
        return (await self.get("/readyz"))[0] == 200

    def pause(self) -> None:
        self.process.pause()

    def resume(self) -> None:
        self.process.resume()


class ServiceSwitch:
    """What kube-proxy does for the Service: new connections go to the address in its EndpointSlice, old ones stay."""

    def __init__(self, replicas: "Replicas") -> None:
        self._replicas = replicas
        self._address = ""
        self._callers: set[asyncio.Task[None]] = set()
        self.changes: list[tuple[float, str]] = []  # when the Service got this address
        self.port = 0

    async def follow(self, client: Client) -> None:
        version = "0"
        while True:
            try:
                async for event in client.watch(SLICES, resource_version=version):
                    found = json.loads(bytes(event.object))
                    if event.type != "BOOKMARK" and found["metadata"]["name"] == f"{NAME}-ipv4":
                        self._see(found if event.type != "DELETED" else {})
            except KubeError:
                await asyncio.sleep(0.1)

    def _see(self, found: dict[str, object]) -> None:
        endpoints: list[dict[str, list[str]]] = found.get("endpoints") or []  # type: ignore[assignment]
        address = endpoints[0]["addresses"][0] if endpoints else ""
        if address != self._address:
            self._address = address
            self.changes.append((time.monotonic(), address))

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._callers.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._callers.discard(task)
            writer.close()  # here, because a task that is cancelled before it runs closes nothing

        task.add_done_callback(ended)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        replica = next((each for each in self._replicas.all if each.address == self._address), None)
        try:
            if replica is None:
                return
            onward_reader, onward_writer = await asyncio.open_connection("127.0.0.1", replica.port)
            try:
                ways = [_copy(reader, onward_writer), _copy(onward_reader, writer)]
                tasks = [asyncio.ensure_future(way) for way in ways]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    task.cancel()
            finally:
                onward_writer.close()
        except OSError:
            pass

    async def end(self) -> None:
        for caller in list(self._callers):
            caller.cancel()
        await asyncio.gather(*self._callers, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


class Replicas:
    def __init__(self, cluster: SchedulingCluster, *, http2: bool = False) -> None:
        """With `http2` over mutual TLS, as the chart installs it; else over plain HTTP/1.1."""
        self.cluster = cluster
        self.all: list[Replica] = []
        self.switch = ServiceSwitch(self)
        self._authority = Authority(cluster.directory / "extender-tls") if http2 else None

    @property
    def entry(self) -> dict[str, Any]:
        """How kube-scheduler's configuration names the Service."""
        if self._authority is None:
            return {"url": self.url}
        certificate, key = self._authority.client_certificate("kube-scheduler")
        files = {"caFile": str(self._authority.file), "certFile": str(certificate), "keyFile": str(key)}
        return {"url": self.url, "enableHTTPS": True, "tlsConfig": files}

    @property
    def url(self) -> str:
        """Of the Service."""
        return f"{'http' if self._authority is None else 'https'}://127.0.0.1:{self.switch.port}/accelshare"

    async def start(self, name: str, *, kubeconfig: Path | None = None, variables: Mapping[str, str] | None = None) -> Replica:
        """Start an extender, with these further environment variables, and wait until it is ready, as the holder or a standby."""
        address, port = f"10.0.0.{len(self.all) + 1}", free_port()
        container = {"name": "extender", "image": "example.com/none", "args": ["extender", *FLAGS]}
        spec = {"containers": [container], "schedulerName": "none"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        await self.cluster.create(path, pod)
        await self.cluster.patch(f"{path}/{name}/status", {"status": {"podIP": address, "podIPs": [{"ip": address}]}})
        kubeconfig = kubeconfig or self.cluster.plane.kubeconfig_for("accelshare-extender")
        command = [sys.executable, "-m", "accelshare", "extender", f"--listen=127.0.0.1:{port}", f"--kubeconfig={kubeconfig}"]
        command += [*self.cluster.extender_flags, *FLAGS]
        probe_port = None
        if self._authority is not None:
            probe_port = free_port()
            certificate, key = self._authority.serving_certificate(name)
            command += ["--http2", f"--tls-cert={certificate}", f"--tls-key={key}", f"--client-ca={self._authority.file}"]
            command.append(f"--probe-port={probe_port}")
        starts = itertools.count(1)

        def launch(replica: Replica) -> Process:
            log = self.cluster.directory / f"{replica.name}-{next(starts)}.log"
            words = [*command, f"--pod={NAMESPACE}/{replica.name}"]
            return Process(replica.name, words, log, environment={**os.environ, **(variables or {})})

        replica = Replica(name, address, port, launch, probe_port=probe_port)
        self.all.append(replica)
        await self.until(replica.is_ready, f"{name} is ready")
        return replica

    async def holder(self) -> Replica:
        """The one that decides, once the Service leads to it."""

        async def deciding() -> Replica | None:
            found = [replica for replica in self.all if await replica.decides()]
            if len(found) > 1:  # the first may have lost the Lease before the second answered
                found = [replica for replica in found if await replica.decides()]
            assert len(found) <= 1, "two extenders decide"
            leads = found and self.switch.changes and self.switch.changes[-1][1] == found[0].address
            return found[0] if leads else None

        found: Replica = await self.until(deciding, "one extender decides")
        return found

    async def until(self, condition: Callable[[], Any], what: str, limit_s: float = 240.0) -> Any:
        try:
            return await self.cluster.until(condition, what, limit_s)
        except BaseException:
            print(last_lines(*(replica.process for replica in self.all)))
            raise


@contextlib.asynccontextmanager
async def open_replicas(cluster: SchedulingCluster, *, http2: bool = False) -> AsyncIterator[Replicas]:
    """The Service, and the switch in its place, and nothing left of them. The test starts the extenders."""
    pods: list[str] = []
    try:
        async with open_service(cluster, http2=http2) as replicas:
            try:
                yield replicas
            finally:
                pods = [f"/api/v1/namespaces/{NAMESPACE}/pods/{replica.name}" for replica in replicas.all]
    finally:
        for path in (SERVICE, *pods):
            await cluster.delete(path)
        await cluster.until(lambda: _gone(cluster), "the Lease is deleted with the Service, the EndpointSlice with the pod")


@contextlib.asynccontextmanager
async def open_service(cluster: SchedulingCluster, *, http2: bool = False) -> AsyncIterator[Replicas]:
    """The same in a cluster that is thrown away: its objects stay."""
    ports = [{"name": "scheduler", "port": 12345}]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME}, "spec": {"ports": ports}}
    await cluster.create(f"/api/v1/namespaces/{NAMESPACE}/services", service)
    replicas = Replicas(cluster, http2=http2)
    following = asyncio.create_task(replicas.switch.follow(cluster.client))
    server = await asyncio.start_server(replicas.switch.accept, "127.0.0.1", 0)
    replicas.switch.port = server.sockets[0].getsockname()[1]
    try:
        yield replicas
    finally:
        if cluster.scheduler is not None:  # it would go on calling while the switch ends
            await asyncio.to_thread(cluster.scheduler.stop)
        for replica in replicas.all:
            replica.process.kill()
        await close_server(server)
        await replicas.switch.end()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def _gone(cluster: SchedulingCluster) -> bool:
    for path in (LEASE, SLICE):
        with contextlib.suppress(NotFound):
            await cluster.read(path)
            return False
    return True


class PodStream:
    """Creates a pod every so often, and records when each was first seen with a node."""

    def __init__(self, cluster: SchedulingCluster, limits: dict[str, object], *, every_s: float) -> None:
        self._cluster = cluster
        self._limits = limits
        self._every_s = every_s
        self.created: list[str] = []
        self.bound: dict[str, float] = {}

    async def create(self) -> None:
        while True:
            name = f"s{len(self.created)}"
            await self._cluster.pod(name, self._limits)
            self.created.append(name)
            await asyncio.sleep(self._every_s)

    async def watch(self) -> None:
        """A busy API server may end a watch; the next one shows all pods again."""
        path = "/api/v1/namespaces/default/pods"
        while True:
            with contextlib.suppress(KubeError):
                async for event in self._cluster.client.watch(path, resource_version="0", timeout_s=3000):
                    pod = json.loads(bytes(event.object))
                    if event.type != "BOOKMARK" and pod["spec"].get("nodeName"):
                        self.bound.setdefault(pod["metadata"]["name"], time.monotonic())
            await asyncio.sleep(0.1)

    def next_bind_after(self, moment: float) -> float | None:
        """Seconds from this moment to the first bind after it."""
        return min((at - moment for at in self.bound.values() if at > moment), default=None)

    def longest_gap(self, since: float) -> float:
        """The longest time without a bind."""
        times = sorted([since, *(at for at in self.bound.values() if at > since)])
        return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0)


@contextlib.asynccontextmanager
async def stream_of_pods(cluster: SchedulingCluster, limits: dict[str, object], *, every_s: float) -> AsyncIterator[PodStream]:
    stream = PodStream(cluster, limits, every_s=every_s)
    tasks = [asyncio.create_task(stream.create()), asyncio.create_task(stream.watch())]
    try:
        yield stream
        for task in tasks:
            assert not task.done(), task.exception()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
