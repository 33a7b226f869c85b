"""The node that is measured: the local cluster's kubelet, containerd and kube-scheduler, our agent and our extender.

Belongs here: putting them there, moving the node from one way of delivery to the other, pods. Never: timing anything.
"""

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from accelshare.kube import config
from accelshare.kube.client import Client
from accelshare.kube.errors import NotFound
from accelshare.wire.pods import AGENT_LABEL
from bench.measurement import ROOT
from bench.node import pages, zpu
from bench.node.results import NRI
from bench.progress import Progress
from cluster.errors import ClusterError
from cluster.https import free_port
from cluster.local import LocalCluster
from cluster.local.layout import CONTAINERD_METRICS_PORT
from cluster.process import Process, last_lines
from cluster.waiting import wait_until_async

Object = dict[str, Any]
LIMIT_S: Final = 240.0
PODS: Final = "/api/v1/namespaces/default/pods"
SYSTEM_PODS: Final = "/api/v1/namespaces/kube-system/pods"
STAND_IN: Final = "pod/bench-agent"
LABEL: Final = "accelshare-bench"  # on our pods; others are left alone
CHECKPOINT: Final = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
# A container's first line lists the cards that it sees; it ends at once on SIGTERM.
LOOK: Final = f"echo sees $(ls /dev | grep -E '^{zpu.NODE_NAME}[0-9]+$'); trap 'exit 0' TERM; sleep 100000 & wait"


class RealBenchNode:
    def __init__(self, local: LocalCluster, client: Client, directory: Path, port: int) -> None:
        self.local = local
        self.client = client
        self.agent: Process | None = None
        self.way = ""
        self._directory = directory
        self._port = port
        self._agent_port = free_port()
        self._extender: Process | None = None
        self._starts = 0
        (directory / "profiles").mkdir()
        (directory / "profiles/acme.toml").write_text(zpu.profile(zpu.COARSE))

    # Processes.

    async def start_extender(self) -> None:
        command = [sys.executable, "-m", "accelshare", "extender", f"--kubeconfig={self.local.kubeconfig}"]
        command += [f"--listen=127.0.0.1:{self._port}", f"--profiles={self._directory / 'profiles'}"]
        command += ["--agent-namespace=kube-system", "--agent-service-account=default"]  # of the pod that stands in for the agent
        self._extender = Process("extender", command, self._directory / "extender.log")
        await asyncio.to_thread(self._extender.wait_ready, lambda: pages.status(self._port, "/readyz") == 200)

    async def start_agent(self) -> None:
        self._starts += 1
        command = [sys.executable, "-m", "accelshare", "agent", f"--kubeconfig={self.local.kubeconfig}", f"--vendor={zpu.KIND}"]
        command += [f"--node-name={self.local.node_name}", f"--profiles={self._directory / 'profiles'}"]
        command += [f"--port={self._agent_port}", f"--delivery={self.way}"]
        log = self._directory / f"agent-{self._starts}.log"
        self.agent = self.local.run_inside("agent", command, log, variables={"PYTHONPATH": str(ROOT / "src")})
        await asyncio.to_thread(self.agent.wait_ready, lambda: pages.status(self._agent_port, "/readyz") == 200)
        await self.until(self._stand_in_ready, "the cluster knows that the agent is ready")

    async def deliver_by(self, way: str) -> None:
        """Move the node to this way. kubelet remembers a device plugin for five minutes, unless its memory is taken."""
        if way == self.way:
            return
        if self.agent is not None:
            await asyncio.to_thread(self.agent.stop, 40)
        checkpoint = self.local.path(CHECKPOINT)
        if way == NRI and zpu.MEMORY in (checkpoint.read_text() if checkpoint.exists() else ""):
            self.local.kill_kubelet()
            checkpoint.unlink()
            await asyncio.to_thread(self.local.start_kubelet)
        self.way = way
        await self.start_agent()

    async def kill(self, victim: str) -> None:
        """SIGKILL, and its next start."""
        if victim == "agent" and self.agent is not None:
            self.agent.kill()
            await self.start_agent()
        else:
            await asyncio.to_thread(self.local.restart_kubelet)

    def stop(self) -> None:
        for process in (self.agent, self._extender):
            if process is not None:
                process.stop(40)

    def drift(self) -> int:
        """How many records this agent had to correct."""
        return int(pages.value(pages.text(self._agent_port), "accelshare_drift_total"))

    def runtime_metrics(self) -> str:
        return pages.text(CONTAINERD_METRICS_PORT, "/v1/metrics")

    async def stand_in(self) -> None:
        """The agent is no pod here, so one stands for it, ready when the agent answers: the extender looks at that."""
        probe = {"httpGet": {"host": "127.0.0.1", "port": self._agent_port, "path": "/livez"}}
        container = self._container("c0", 0) | {"readinessProbe": probe | {"periodSeconds": 1, "failureThreshold": 1}}
        meta = {"name": "bench-agent", "labels": {AGENT_LABEL: "bench"}}
        spec = {"hostNetwork": True, "nodeName": self.local.node_name, "containers": [container]}
        await self.remove_stand_in()
        await self.create(SYSTEM_PODS, {"metadata": meta, "spec": spec})

    async def remove_stand_in(self) -> None:
        async def gone() -> bool:
            try:
                await self.client.request("DELETE", f"{SYSTEM_PODS}/bench-agent", params={"gracePeriodSeconds": "0"})
            except NotFound:
                return True
            return False

        await self.until(gone, "the agent's stand-in is gone")

    async def _stand_in_ready(self) -> bool:
        conditions = (await self.read(f"{SYSTEM_PODS}/bench-agent"))["status"].get("conditions", [])
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    # Pods.

    async def read(self, path: str, **params: str) -> Object:
        return msgspec.json.decode(await self.client.request("GET", path, params=params), type=Object)

    async def create(self, path: str, content: Object) -> None:
        await self.client.request("POST", path, body=msgspec.json.encode(content), timeout_s=60)

    async def pod(self, name: str, units: int) -> None:
        """A pod that asks so much of a card, or nothing, and prints what it sees."""
        spec = {"terminationGracePeriodSeconds": 1, "containers": [self._container("c0", units)]}
        await self.create(PODS, {"metadata": {"name": name, "labels": {LABEL: "pod"}}, "spec": spec})

    def _container(self, name: str, units: int) -> Object:
        limits = {zpu.MEMORY: str(units)} if units else {}
        image = {"image": self.local.test_image, "imagePullPolicy": "Never"}
        return {"name": name, **image, "command": ["sh", "-c", LOOK], "resources": {"limits": limits}}

    async def pods(self) -> dict[str, Object]:
        """Ours, by name."""
        listed = await self.read(PODS, labelSelector=LABEL)
        return {pod["metadata"]["name"]: pod for pod in listed["items"]}

    async def first_line(self, pod: str) -> str:
        """With the time at which containerd read it; empty while nothing was printed."""
        answer = await self.client.request("GET", f"{PODS}/{pod}/log", params={"container": "c0", "timestamps": "true"})
        return answer.decode().partition("\n")[0]

    async def clear(self) -> None:
        async def gone() -> bool:
            left = await self.pods()
            await asyncio.gather(*(self._delete(name) for name in left))
            return not left

        await self.until(gone, "all pods are gone")

    async def _delete(self, name: str) -> None:
        with contextlib.suppress(NotFound):
            await self.client.request("DELETE", f"{PODS}/{name}")

    async def until(self, condition: Callable[[], Awaitable[bool]], what: str) -> None:
        await wait_until_async(condition, what, LIMIT_S, 0.1, evidence=lambda: last_lines(self.agent, self._extender))


@contextlib.asynccontextmanager
async def open_real_bench_node(progress: Progress) -> AsyncIterator[RealBenchNode]:
    """An empty node; a cluster that was up before stays up, with its own kube-scheduler configuration again."""
    port = free_port()
    with (
        LocalCluster.up(progress.say) as local,
        _alone(local),
        tempfile.TemporaryDirectory(prefix="b-") as directory,
        _cards(local),
        _scheduler(local, port, progress),
    ):
        # With this repository's configuration, whatever the one that is up was started with; its counts begin at zero.
        progress.doing("restarting containerd with metrics")
        await asyncio.to_thread(local.restart_containerd, nri="validated")
        async with Client(config.load(local.kubeconfig), user_agent="accelshare-bench") as client:
            node = RealBenchNode(local, client, Path(directory), port)
            try:
                await node.start_extender()
                await node.stand_in()
                yield node
            finally:
                await node.clear()
                await asyncio.to_thread(node.stop)
                await node.remove_stand_in()


@contextlib.contextmanager
def _alone(local: LocalCluster) -> Iterator[None]:
    """Refuse a cluster on which accelshare runs already: two agents would hinder each other."""
    there = [name for name in local.kubectl("get", "pods", "-A", f"-l{AGENT_LABEL}", "-oname").split() if name != STAND_IN]
    if there:
        raise RuntimeError(f"accelshare runs on the local cluster already ({there[0]}): end it first, with `make down`")
    yield


@contextlib.contextmanager
def _cards(local: LocalCluster) -> Iterator[None]:
    """Device files that behave like /dev/null."""
    paths = [f"/dev/{zpu.NODE_NAME}{index}" for index in range(zpu.CARDS)]
    for path in paths:
        with contextlib.suppress(ClusterError):
            local.remove_device_node(path)  # of a run that was killed
        local.make_device_node(path)
    try:
        yield
    finally:
        for path in paths:
            local.remove_device_node(path)


@contextlib.contextmanager
def _scheduler(local: LocalCluster, port: int, progress: Progress) -> Iterator[None]:
    """kube-scheduler asks the extender at this port."""
    progress.doing("telling kube-scheduler of the extender")
    local.scheduler_config(f"http://127.0.0.1:{port}/accelshare", (zpu.MEMORY, "acme.example/zpu"))
    try:
        yield
    finally:
        local.restore_scheduler()
