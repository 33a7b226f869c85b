"""The control plane of a run: real etcd, API server and kube-scheduler, two extenders, fake nodes; proxies in between.

Belongs here: starting the parts, starting them again when they ended, writing nodes, and requests that are repeated until they
are answered. Never: faults (faults.py), judging (history.py).
"""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final, TypeVar

import msgspec
import yaml

from accelshare.kube import config
from accelshare.kube.client import Client
from accelshare.kube.errors import Conflict, KubeError, NotFound
from cluster.components import extender_entry
from cluster.control_plane import ControlPlane
from cluster.errors import ClusterError
from cluster.process import Process, last_lines
from cluster.waiting import wait_until_async
from tests.e2e.extender_replicas import Replica, Replicas, open_service
from tests.e2e.holding_proxy import open_proxy_of
from tests.e2e.scheduling_cluster import MANAGED, ROOT, SchedulingCluster
from tests.proxy import Proxy
from tests.trust.clock_shift import ClockShift
from tests.trust.fault_proxy import FaultProxy
from tests.trust.history import INVENTORY, MEMORY, WHOLE, History, Object

T = TypeVar("T")
NODES: Final = 6
CARDS: Final = 4
EXTENDERS: Final = ("extender-a", "extender-b")
SIZE: Final = 16
REQUEST_S: Final = 5.0
INSIST_S: Final = 240.0
SUPERVISE_S: Final = 0.3
PODS: Final = "/api/v1/namespaces/default/pods"
NODE: Final = "/api/v1/nodes"
Cards = list[dict[str, object]]


class Stage:
    def __init__(
        self,
        plane: ControlPlane,
        client: Client,
        replicas: Replicas,
        history: History,
        links: "Links",
        clocks: Mapping[str, ClockShift],
    ) -> None:
        self.plane = plane
        self.client = client
        self.replicas = replicas
        self.history = history
        self.links = links
        self.clocks = clocks  # by extender
        self.nodes = {f"n{number}": 0 for number in range(NODES)}  # name → generation of its cards
        self.scheduler: Process | None = None
        self.scheduler_stays_down = 0  # faults that want it so
        self.restarts = 0  # of processes that had ended

    # Parts.

    def holder(self) -> Replica:
        """The extender to which the Service leads."""
        address = self.replicas.switch.changes[-1][1] if self.replicas.switch.changes else ""
        return next((replica for replica in self.replicas.all if replica.address == address), self.replicas.all[0])

    def standby(self) -> Replica:
        holder = self.holder()
        return next(replica for replica in self.replicas.all if replica is not holder)

    def proxy_of(self, replica: Replica) -> FaultProxy:
        return self.links.extenders[replica.name]

    def some_node(self, chance: Random) -> str:
        return chance.choice(list(self.nodes))

    async def start_scheduler(self) -> None:
        config = {
            "percentageOfNodesToScore": 100,
            "extenders": [extender_entry(f"http://127.0.0.1:{self.links.scheduler.port}/accelshare", MANAGED)],
            "clientConnection": {"kubeconfig": str(self._scheduler_kubeconfig())},
        }
        self.scheduler = await asyncio.to_thread(self.plane.start_scheduler, config)

    def _scheduler_kubeconfig(self) -> Path:
        """Through the proxy."""
        file = self.plane.kubeconfig_for("system:kube-scheduler")
        content = yaml.safe_load(file.read_text())
        content["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{self.links.scheduler_to_api.port}"
        through = self.plane.directory / "scheduler-through-proxy.kubeconfig"
        through.write_text(yaml.safe_dump(content))
        return through

    async def supervise_extenders(self) -> None:
        """What kubelet does: start again what has ended."""
        while True:
            for replica in self.replicas.all:
                if not replica.process.running:
                    self.restarts += 1
                    replica.restart()
            await asyncio.sleep(SUPERVISE_S)

    async def supervise_scheduler(self) -> None:
        while True:
            if self.scheduler is not None and not self.scheduler.running and not self.scheduler_stays_down:
                self.restarts += 1
                with contextlib.suppress(ClusterError):  # the API server is down; the next turn tries again
                    await self.start_scheduler()
            await asyncio.sleep(SUPERVISE_S)

    def evidence(self) -> str:
        return last_lines(*(replica.process for replica in self.replicas.all), self.scheduler)

    # Requests.

    async def insist(self, request: Callable[[], Awaitable[T]], what: str) -> T | None:
        """Repeat it until it is answered. None: the object is gone, or there already; an earlier try may have done it."""

        async def answered() -> list[T | None]:
            try:
                return [await request()]
            except (NotFound, Conflict):
                return [None]

        found: list[T | None] = await wait_until_async(
            answered, what, INSIST_S, 0.2, retry_on=(KubeError,), evidence=self.evidence
        )
        return found[0]

    async def create(self, path: str, content: Mapping[str, object]) -> None:
        body = msgspec.json.encode(content)
        await self.insist(lambda: self.client.request("POST", path, body=body), f"POST {path}")

    async def patch(self, path: str, content: Mapping[str, object]) -> None:
        body, kind = msgspec.json.encode(content), "application/merge-patch+json"
        await self.insist(lambda: self.client.request("PATCH", path, body=body, content_type=kind), f"PATCH {path}")

    async def delete(self, path: str) -> None:
        params = {"gracePeriodSeconds": "0"}
        await self.insist(lambda: self.client.request("DELETE", path, params=params), f"DELETE {path}")

    async def pods(self) -> set[str]:
        """The uids of all pods of the run, by the API server."""
        listed = msgspec.json.decode(await self.client.request("GET", PODS), type=Object)
        return {pod["metadata"]["uid"] for pod in listed["items"]}

    async def delete_pod(self, name: str) -> None:
        self.history.release(name)
        await self.delete(f"{PODS}/{name}")

    async def until(self, condition: Callable[[], object], what: str, limit_s: float) -> object:
        return await wait_until_async(condition, what, limit_s, 0.2, retry_on=(KubeError,), evidence=self.evidence)

    # Nodes.

    def cards_of(self, node: str) -> Cards:
        generation = self.nodes[node]
        return [{"index": index, "id": f"{node}-g{generation}-{index}", "size": SIZE} for index in range(CARDS)]

    async def create_node(self, node: str) -> None:
        cards = self.cards_of(node)
        resources = {"cpu": "1000", "memory": "4096Gi", "pods": "2000", **_amounts(cards)}
        meta = {"name": node, "labels": {"kubernetes.io/hostname": node}, "annotations": {INVENTORY: _inventory(cards)}}
        status = {"capacity": resources, "allocatable": resources}
        await self.create(NODE, {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status})

    async def write_cards(self, node: str, cards: Cards) -> None:
        """As an agent does: the annotation, then the amounts."""
        await self.write_inventory(node, _inventory(cards))
        amounts = _amounts([card for card in cards if card.get("healthy", True)])
        await self.patch(f"{NODE}/{node}/status", {"status": {"capacity": amounts, "allocatable": amounts}})

    async def write_inventory(self, node: str, text: str) -> None:
        await self.patch(f"{NODE}/{node}", {"metadata": {"annotations": {INVENTORY: text}}})

    async def recreate_node(self, node: str, *, pause_s: float) -> None:
        """With other cards. Pods on the old ones end, as pod garbage collection ends them."""
        await self.delete(f"{NODE}/{node}")
        await asyncio.sleep(pause_s)
        self.nodes[node] += 1
        await self.create_node(node)
        await self.evict_from_old_cards(node)

    async def evict_from_old_cards(self, *nodes: str) -> int:
        """Delete the pods on cards that left with an earlier Node of this name; returns how many there were."""
        current = {node: f'"{node}-g{self.nodes[node]}-' for node in nodes}
        bound = [pod for pod in self.history.bound() if pod.now.node in current]
        outdated = [pod for pod in bound if current[pod.now.node] not in pod.now.record]
        await asyncio.gather(*(self.delete_pod(pod.name) for pod in outdated))
        return len(outdated)


class Links:
    """The proxies between the parts."""

    def __init__(self, extenders: dict[str, FaultProxy], scheduler: Proxy, scheduler_to_api: Proxy) -> None:
        self.extenders = extenders  # from each extender to the API server
        self.scheduler = scheduler  # from kube-scheduler to the Service of the extenders
        self.scheduler_to_api = scheduler_to_api


@contextlib.asynccontextmanager
async def open_stage(
    plane: ControlPlane, directory: Path, history: History, extender_flags: Sequence[str]
) -> AsyncIterator[Stage]:
    """Everything runs and decides when the block begins."""
    await asyncio.to_thread(plane.kubectl, "apply", "-f", str(ROOT / "deploy/extender-rbac.yaml"))
    tls = ssl.create_default_context(cafile=str(plane.ca_file))
    tls.load_cert_chain(*plane.client_certificate("accelshare-extender"))
    async with contextlib.AsyncExitStack() as stack:
        load = config.load(plane.kubeconfig)
        client = await stack.enter_async_context(Client(load, user_agent="accelshare-trust", timeout_s=REQUEST_S))
        replicas = await stack.enter_async_context(open_service(SchedulingCluster(plane, client, directory, extender_flags)))
        proxies = {name: await stack.enter_async_context(open_proxy_of(FaultProxy, plane.url, tls)) for name in EXTENDERS}
        port = int(plane.url.rpartition(":")[2])
        to_service = await stack.enter_async_context(Proxy("127.0.0.1", replicas.switch.port))
        to_api = await stack.enter_async_context(Proxy("127.0.0.1", port))
        clocks = {name: await asyncio.to_thread(ClockShift, directory, name) for name in EXTENDERS}
        stage = Stage(plane, client, replicas, history, Links(proxies, to_service, to_api), clocks)
        for node in stage.nodes:
            await stage.create_node(node)
        for name, proxy in proxies.items():
            kubeconfig = proxy.write_kubeconfig(directory / f"{name}.kubeconfig")
            await replicas.start(name, kubeconfig=kubeconfig, variables=clocks[name].variables)
        await replicas.holder()
        await stage.start_scheduler()
        supervisors = [asyncio.create_task(work) for work in (stage.supervise_extenders(), stage.supervise_scheduler())]
        try:
            yield stage
            for supervisor in supervisors:
                if supervisor.done():
                    supervisor.result()
        finally:
            for supervisor in supervisors:
                supervisor.cancel()
            await asyncio.gather(*supervisors, return_exceptions=True)
            if stage.scheduler is not None:
                await asyncio.to_thread(stage.scheduler.stop)


def _inventory(cards: Cards) -> str:
    return json.dumps({"enflame": {"cards": cards}})


def _amounts(cards: Cards) -> dict[str, str]:
    memory = sum(int(str(card["size"])) for card in cards)
    return {MEMORY: str(memory), "enflame.com/gcu-count": str(len(cards)), WHOLE: str(len(cards))}


def books_of(shown: Object) -> dict[str, list[str]]:
    """Who is on each card in an answer of inspect, as `History.books` has it; pods without a card are under their node."""
    books: dict[str, list[str]] = {}
    for node in shown["nodes"]:
        for card in node["cards"]:
            pods = [f"{pod['name']} {'whole' if pod['whole'] else pod['units']}" for pod in card["pods"]]
            books[f"{node['name']}/{card['id']}"] = sorted(pods)
        books[node["name"]] = sorted(pod["name"] for pod in node["unplaced"])
    return {place: pods for place, pods in books.items() if pods}
