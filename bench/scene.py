"""The cluster that is measured: a real control plane, fake nodes, pods, our extender as its own process.

Belongs here: creating and deleting objects, starting and stopping processes. Never: timing anything.
"""

import asyncio
import contextlib
import http.client
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from accelshare import __version__
from accelshare.install.scheduler.desired_config import HTTP2_VARIABLES
from accelshare.kube import config
from accelshare.kube.client import Client
from bench import gpushare, least_extender, workload
from bench.measurement import ROOT, python_version
from bench.progress import Progress
from bench.workload import Object
from cluster.certificates import Authority
from cluster.control_plane import ControlPlane
from cluster.https import free_port
from cluster.kubeconfig import Token, write_kubeconfig
from cluster.process import Process
from cluster.versions import ETCD_VERSION, KUBERNETES_VERSION

AT_ONCE: Final = 32
LIMIT_S: Final = 180.0
PODS: Final = "/api/v1/namespaces/default/pods"


class Extender:
    """A running extender and one keep-alive connection to it; with TLS, to the port for its metrics and health."""

    ready_path = "/readyz"
    has_metrics = True
    record = workload.ASSIGNMENT  # an annotation of each pod that it has bound

    def __init__(self, process: Process, port: int, *, metrics_port: int, tls: Mapping[str, str] | None = None) -> None:
        self.process = process
        self.port = port
        self.tls = tls  # of kube-scheduler's configuration
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{port}"
        self.entry = workload.entry(self.url, tls)  # of kube-scheduler's configuration
        self._connection = http.client.HTTPConnection("127.0.0.1", metrics_port, timeout=60)

    @property
    def pid(self) -> int:
        return self.process.pid

    def ready(self) -> bool:
        """Whether it responds with 200 there. Blocks for a moment."""
        try:
            self._connection.request("GET", self.ready_path)
            response = self._connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return False
        return response.status == http.client.OK

    def metrics(self) -> str:
        """The metrics page. Blocks."""
        self._connection.request("GET", "/metrics")
        return self._connection.getresponse().read().decode()

    def connect_tls(self) -> http.client.HTTPSConnection:
        """A connection with kube-scheduler's certificate; for a new handshake, close it before the next call."""
        assert self.tls is not None
        context = ssl.create_default_context(cafile=self.tls["caFile"])
        context.load_cert_chain(self.tls["certFile"], self.tls["keyFile"])
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=context)

    def call(self, verb: str, body: bytes, connection: http.client.HTTPConnection | None = None) -> bytes:
        """One call, as kube-scheduler makes it, on this connection or on the one without TLS. Blocks."""
        connection = connection or self._connection
        connection.request("POST", f"/accelshare/{verb}", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        content = response.read()
        if response.status != http.client.OK:
            raise RuntimeError(f"{verb} responded with {response.status}: {content[:200]!r}")
        return content


class GpushareExtender(Extender):
    """gpushare's own: without TLS, health and metrics."""

    ready_path = gpushare.READY
    has_metrics = False
    record = workload.GPUSHARE_RECORD

    def __init__(self, process: Process, port: int) -> None:
        super().__init__(process, port, metrics_port=port)
        self.entry = workload.gpushare_entry(self.url)


@dataclass(frozen=True, slots=True)
class Account:
    """The files with which an extender has its role."""

    kubeconfig: Path
    token: Path


class Scene:
    def __init__(self, plane: ControlPlane, client: Client, progress: Progress, *, account: Account) -> None:
        self.plane = plane
        self.client = client
        self._account = account
        directory = plane.directory / "extender-tls"
        directory.mkdir()
        self._authority = Authority(directory)
        self.progress = progress
        self.nodes = 0
        self._starts = 0

    # Objects.

    async def grow_to(self, nodes: int) -> None:
        """Create nodes until there are this many."""
        if nodes <= self.nodes:
            return
        self.progress.doing(f"creating nodes {self.nodes + 1:,} to {nodes:,}")
        await self.create("/api/v1/nodes", (workload.node(number) for number in range(self.nodes, nodes)), nodes - self.nodes)
        self.nodes = nodes

    async def create(self, path: str, objects: Iterable[Object], count: int) -> list[bytes]:
        """Create the objects concurrently; returns the response bodies in the order of the objects."""
        bodies: list[bytes] = [b""] * count

        async def one(place: int, body: bytes) -> None:
            bodies[place] = await self.client.request("POST", path, body=body, timeout_s=60)

        await self._all_of(one(place, msgspec.json.encode(content)) for place, content in enumerate(objects))
        return bodies

    async def clear_pods(self) -> None:
        """Delete all pods and their Events."""
        await self.client.request("DELETE", PODS, params={"gracePeriodSeconds": "0"}, timeout_s=LIMIT_S)
        await self.until(self._no_pods, "all pods are gone")
        await self.client.request("DELETE", "/api/v1/namespaces/default/events", timeout_s=LIMIT_S)

    async def version_of_pods(self) -> str:
        """From which a watch sees all that happens to pods from now on."""
        listed = msgspec.json.decode(await self.client.request("GET", PODS, params={"limit": "1"}), type=Object)
        return str(listed["metadata"]["resourceVersion"])

    async def _no_pods(self) -> bool:
        body = await self.client.request("GET", PODS, params={"limit": "1"})
        return not msgspec.json.decode(body, type=Object)["items"]

    async def _all_of(self, works: Iterable[Awaitable[None]]) -> None:
        """Await all of them, a bounded number at a time; the first failure ends it."""
        waiting, done = iter(works), 0

        async def worker() -> None:
            nonlocal done
            for work in waiting:
                await work
                done += 1
                self.progress.detail(f"{done:,} done")

        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(AT_ONCE):
                    workers.create_task(worker())
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    # Processes.

    @contextlib.asynccontextmanager
    async def extender(self, *flags: str, wait_ready: bool = True, tls: bool = False) -> AsyncIterator[Extender]:
        """An extender, ready; stopped when the block ends.

        With TLS it asks for client certificates and offers HTTP/2, as the chart installs it.
        """
        command = [sys.executable, "-m", "accelshare", "extender", *flags, f"--kubeconfig={self._account.kubeconfig}"]
        command += ["--http2"] if tls else []
        async with self._running(command, wait_ready=wait_ready, tls=tls) as extender:
            yield extender

    @contextlib.asynccontextmanager
    async def least_extender(self) -> AsyncIterator[Extender]:
        """One that names a node and sends the Binding, and does nothing else, with TLS."""
        program = await asyncio.to_thread(least_extender.program, self.progress.say)
        command = [
            str(program),
            f"--server={self.plane.url}",
            f"--server-ca={self.plane.ca_file}",
            f"--token-file={self._account.token}",
            f"--annotation={workload.ASSIGNMENT}",
        ]
        async with self._running(command, wait_ready=True, tls=True) as extender:
            yield extender

    @contextlib.asynccontextmanager
    async def gpushare(self, program: Path, variant: str) -> AsyncIterator[Extender]:
        """gpushare's own extender. It has all rights."""
        self._starts += 1
        port = free_port()
        environment = gpushare.environment(variant, self.plane.kubeconfig, port)
        log = self.plane.directory / f"extender-{self._starts}.log"
        extender = GpushareExtender(Process("gpushare's extender", [program], log, environment=environment), port)
        try:
            await asyncio.to_thread(extender.process.wait_ready, extender.ready)
            yield extender
        finally:
            await asyncio.to_thread(extender.process.kill)  # SIGTERM alone does not end it

    @contextlib.asynccontextmanager
    async def _running(self, command: list[str], *, wait_ready: bool, tls: bool) -> AsyncIterator[Extender]:
        self._starts += 1
        port = free_port()
        command = [*command, f"--listen=127.0.0.1:{port}"]
        log = self.plane.directory / f"extender-{self._starts}.log"
        if tls:
            metrics_port = free_port()
            certificate, key = self._authority.serving_certificate("extender")
            command += [f"--tls-cert={certificate}", f"--tls-key={key}", f"--client-ca={self._authority.file}"]
            command.append(f"--probe-port={metrics_port}")
            certificate, key = self._authority.client_certificate("kube-scheduler")
            files = {"caFile": str(self._authority.file), "certFile": str(certificate), "keyFile": str(key)}
            extender = Extender(Process("extender", command, log), port, metrics_port=metrics_port, tls=files)
        else:
            extender = Extender(Process("extender", command, log), port, metrics_port=port)
        try:
            if wait_ready:
                await asyncio.to_thread(extender.process.wait_ready, extender.ready)
            yield extender
        finally:
            await asyncio.to_thread(extender.process.stop)

    @contextlib.asynccontextmanager
    async def scheduler(self, extender: Extender | None) -> AsyncIterator[Process]:
        """A kube-scheduler, ready; stopped when the block ends."""
        before = len(self.plane.processes)
        configuration = workload.scheduler_configuration(extender.entry if extender is not None else None)
        try:
            yield await asyncio.to_thread(self.plane.start_scheduler, configuration, variables=HTTP2_VARIABLES)
        finally:
            for process in self.plane.processes[before:]:
                await asyncio.to_thread(process.stop)

    async def until(self, condition: Callable[[], Awaitable[bool]], what: str, limit_s: float = LIMIT_S) -> None:
        try:
            async with asyncio.timeout(limit_s):
                while not await condition():
                    await asyncio.sleep(0.05)
        except TimeoutError as error:
            raise RuntimeError(f"not within {limit_s:g} s: {what}") from error


def versions() -> dict[str, str]:
    """Of everything that is measured."""
    return {
        "accelshare": __version__,
        "Python": python_version(),
        "Kubernetes": KUBERNETES_VERSION,
        "etcd": f"{ETCD_VERSION}, without fsync",
    }


@contextlib.asynccontextmanager
async def open_scene(plane: ControlPlane, progress: Progress) -> AsyncIterator[Scene]:
    """An empty cluster in which the extender has its role."""
    await asyncio.to_thread(plane.kubectl, "apply", "-f", str(ROOT / "deploy/extender-rbac.yaml"))
    account = await asyncio.to_thread(_service_account, plane)
    async with Client(config.load(plane.kubeconfig), user_agent="accelshare-bench") as client:
        scene = Scene(plane, client, progress, account=account)
        await scene.create(workload.PRIORITY_CLASSES, workload.priority_classes(), len(workload.PRIORITIES))
        yield scene


def _service_account(plane: ControlPlane) -> Account:
    """A kubeconfig and a token of the extender's service account, as in a real cluster."""
    account = ("accelshare-extender", "--namespace=kube-system")
    plane.kubectl("create", "serviceaccount", *account)
    token = plane.directory / "extender.token"
    token.touch(mode=0o600)
    token.write_text(plane.kubectl("create", "token", *account, "--duration=8h").strip())
    kubeconfig = plane.directory / "extender.kubeconfig"
    write_kubeconfig(kubeconfig, url=plane.url, ca_file=plane.ca_file, user=Token(token.read_text()))
    return Account(kubeconfig, token)
