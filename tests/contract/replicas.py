"""Several extenders of one fake cluster: each a process with a port, an address and a pod object of its own.

Belongs here: starting them, finding the one that decides, kube-scheduler's calls to one of them. Never: assertions.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

import aiohttp

from cluster.https import free_port
from cluster.process import Process, last_lines
from cluster.waiting import wait_until_async
from tests.contract.fake_cluster import LIMIT_S, FakeCluster, Object

NAMESPACE = "kube-system"
NAME = "accelshare-extender"
LABELS = {
    "app.kubernetes.io/name": "accelshare",
    "app.kubernetes.io/instance": "accelshare",
    "app.kubernetes.io/component": "extender",
}
FLAGS = (f"--lease={NAME}", f"--service={NAME}")
NOT_HELD = "does not hold the lease"


class Replica:
    def __init__(self, name: str, address: str, port: int, process: Process, session: aiohttp.ClientSession) -> None:
        self.name = name
        self.address = address
        self.port = port
        self.process = process
        self._session = session

    async def get(self, path: str) -> tuple[int, str]:
        """Status 0: there is no answer."""
        try:
            async with self._session.get(f"http://127.0.0.1:{self.port}{path}") as answer:
                return answer.status, await answer.text()
        except aiohttp.ClientError:
            return 0, ""

    async def post(self, verb: str, body: object) -> tuple[Any, Mapping[str, str]]:
        """The response and its headers."""
        async with self._session.post(f"http://127.0.0.1:{self.port}/accelshare/{verb}", json=body) as answer:
            return json.loads(await answer.text()), answer.headers

    async def filter(self, pod: Object, *nodes: str) -> tuple[Any, Mapping[str, str]]:
        return await self.post("filter", {"Pod": pod, "Nodes": None, "NodeNames": list(nodes)})

    async def bind(self, pod: Object, node: str) -> str:
        meta = pod["metadata"]
        body = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}
        return str((await self.post("bind", body))[0]["Error"])

    async def bind_as_holder(self, pod: Object, node: str) -> str:
        """The same, asked again while a renewal of the Lease is late, as on a busy machine."""
        async with asyncio.timeout(LIMIT_S):
            while NOT_HELD in (error := await self.bind(pod, node)):
                assert self.process.running, self.process.last_lines()
                await asyncio.sleep(0.1)
        return error

    async def decides(self) -> bool:
        return (await self.get("/leaderz"))[0] == 200

    async def is_ready(self) -> bool:
        assert self.process.running, self.process.last_lines()
        return (await self.get("/readyz"))[0] == 200

    def pause(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)


class Replicas:
    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.all: list[Replica] = []

    def create_service(self) -> None:
        spec = {"clusterIP": "10.96.0.9", "ports": [{"name": "scheduler", "port": 12345}]}
        self.cluster.api.store.create("services", {"metadata": {"name": NAME}, "spec": spec}, namespace=NAMESPACE)

    async def create_pod(self, name: str, address: str, *arguments: str) -> None:
        container = {"name": "extender", "image": "none", "args": ["extender", *arguments]}
        pod = {"metadata": {"name": name, "labels": LABELS}, "spec": {"containers": [container]}}
        self.cluster.api.store.create("pods", pod, namespace=NAMESPACE)
        if address:
            await self.report_address(name, address)

    async def report_address(self, name: str, address: str) -> None:
        """As kubelet does, a moment after the pod's containers were started."""
        status = {"status": {"podIP": address, "podIPs": [{"ip": address}]}}
        async with self.cluster.session.patch(
            f"{self.cluster.api.url}/api/v1/namespaces/{NAMESPACE}/pods/{name}/status",
            data=json.dumps(status),
            headers={"Content-Type": "application/merge-patch+json"},
        ) as answer:
            assert answer.status == 200, await answer.text()

    async def start(self, name: str, *, reported: bool = True) -> Replica:
        """Start an extender and wait until it is ready, as the holder or as a standby. `reported`: its pod has its address."""
        address, port = f"10.0.0.{len(self.all) + 1}", free_port()
        await self.create_pod(name, address if reported else "", *FLAGS)
        kubeconfig = self.cluster.api.write_kubeconfig(self.cluster.directory / "kubeconfig")
        command = [sys.executable, "-m", "accelshare", "extender", f"--listen=127.0.0.1:{port}", f"--kubeconfig={kubeconfig}"]
        process = Process(name, [*command, *FLAGS, f"--pod={NAMESPACE}/{name}"], self.cluster.directory / f"{name}.log")
        replica = Replica(name, address, port, process, self.cluster.session)
        self.all.append(replica)
        await self.until(replica.is_ready, f"{name} is ready")
        return replica

    async def holder(self) -> Replica:
        """The one that decides, once there is one."""

        async def deciding() -> Replica | None:
            found = [replica for replica in self.all if await replica.decides()]
            if len(found) > 1:  # the first may have lost the Lease before the second answered
                found = [replica for replica in found if await replica.decides()]
            assert len(found) <= 1, "two extenders decide"
            return found[0] if found else None

        found: Replica = await self.until(deciding, "one extender decides")
        return found

    async def until(self, condition: Any, what: str) -> Any:
        evidence = [replica.process for replica in self.all]
        return await wait_until_async(condition, what, LIMIT_S, 0.02, evidence=lambda: last_lines(*evidence))

    def endpoints(self) -> list[str]:
        """The addresses of the Service."""
        stored = self.cluster.api.store.get("endpointslices", f"{NAME}-ipv4", namespace=NAMESPACE)
        return [address for endpoint in json.loads(stored.item).get("endpoints", ()) for address in endpoint["addresses"]]

    def stop(self) -> None:
        for replica in self.all:
            replica.process.kill()
