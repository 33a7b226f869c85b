"""A cluster for tests: a control plane, kube-scheduler, our extender, and one virtual node with fake cards and our agent.

Belongs here: creating pods, waiting, and what a pod does with its card. Never: assertions about the product.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from accelshare.kube import config
from accelshare.kube.client import Client
from accelshare.kube.errors import NotFound
from accelshare.wire import inventory
from cluster.control_plane import ControlPlane
from cluster.errors import ClusterError
from cluster.local.layout import TEST_IMAGE
from cluster.process import Process, last_lines
from cluster.vm.virtual_node import VirtualNode
from cluster.waiting import wait_until_async
from tests.e2e.scheduling_cluster import REQUEST_LIMIT_S, RETRY_ON, Object

PROFILE: Final = Path(__file__).with_name("zpu.toml")
MEMORY: Final = "acme.example/zpu-mem"
KIND: Final = "zpu"
GIB: Final = 1024**3
CARD_GIB: Final = 16
LIMIT_S: Final = 900.0  # the node is emulated
PODS: Final = "/api/v1/namespaces/default/pods"

# A container first prints the limits of its own cgroup, so that its log tells what held when it began; then the cards it sees.
_CARDS: Final = "cards:"
_BEGIN: Final = f"cat /sys/fs/cgroup/dmem.max 2>/dev/null; echo {_CARDS} $(ls /dev | grep '^zpu[0-9]'); exec sleep 1000000"
# In one process, because memory of a card is given back with the file: prints one line for each amount.
_ALLOCATE: Final = "exec 3>$(echo /dev/zpu*); for bytes in {amounts}; do echo $bytes >&3 2>/dev/null && echo yes || echo no; done"
_HOLD: Final = "setsid sh -c 'exec 3>$(echo /dev/zpu*); echo {amount} >&3; exec sleep 1000000' >/dev/null 2>&1 </dev/null &"


class VirtualCluster:
    """One test's view of it."""

    def __init__(self, plane: ControlPlane, node: VirtualNode, client: Client, processes: tuple[Process, ...]) -> None:
        self.plane = plane
        self.node = node
        self.client = client
        self._processes = processes

    # The agent.

    async def start_agent(self) -> None:
        """Return when it delivers cards."""
        await asyncio.to_thread(self.node.start_agent)
        await self.until(self.agent_is_ready, "the agent delivers")

    async def signal_agent(self, signal: str) -> None:
        await asyncio.to_thread(self.node.signal_agent, signal)

    async def agent_is_ready(self) -> bool:
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{self.node.agent_url}/readyz") as response:
                return response.status == 200
        except aiohttp.ClientError:
            return False

    async def inventory_entry(self) -> inventory.KindEntry | None:
        annotations = (await self._read(f"/api/v1/nodes/{self.node.name}"))["metadata"].get("annotations", {})
        return inventory.entries_of(annotations.get(inventory.KEY, "{}")).get(KIND)

    async def with_cards(self) -> inventory.KindEntry:
        """The node's inventory, once it has cards that are delivered and kube-scheduler can see them."""

        async def published() -> inventory.KindEntry | None:
            entry = await self.inventory_entry()
            status = (await self._read(f"/api/v1/nodes/{self.node.name}"))["status"]
            return entry if entry is not None and entry.delivers and MEMORY in status.get("allocatable", {}) else None

        found: inventory.KindEntry = await self.until(published, "the node publishes its cards")
        return found

    # The node.

    async def run(self, command: str) -> str:
        return await asyncio.to_thread(self.node.run, command)

    async def node_is_ready(self) -> bool:
        return await asyncio.to_thread(lambda: self.node.ready)

    # Pods.

    async def pod(self, name: str, gib: int, *, annotations: Mapping[str, str] | None = None, containers: int = 1) -> None:
        """A pod whose containers each have so much memory of a card."""
        limits = {MEMORY: str(gib)} if gib else {}
        made = [
            {
                "name": f"c{number}",
                "image": TEST_IMAGE,
                "imagePullPolicy": "Never",
                "command": ["sh", "-c", _BEGIN],
                "resources": {"limits": limits},
            }
            for number in range(containers)
        ]
        spec = {"containers": made, "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": False}
        metadata = {"name": name, "annotations": dict(annotations or {})}
        await self.client.request("POST", PODS, body=msgspec.json.encode({"metadata": metadata, "spec": spec}))

    async def resize(self, name: str, gib: int) -> None:
        """Let the owner of a pod want so much memory of its card."""
        changes = {"metadata": {"annotations": {"accelshare.io/resize": str(gib)}}}
        kind = "application/merge-patch+json"
        await self.client.request("PATCH", f"{PODS}/{name}", body=msgspec.json.encode(changes), content_type=kind)

    async def running(self, *names: str) -> list[Object]:
        """These pods, once all run."""

        async def all_run() -> list[Object] | None:
            pods = await self.pods()
            failed = [name for name in names if pods[name]["status"]["phase"] == "Failed"]
            assert not failed, f"{failed[0]} failed: {pods[failed[0]]['status']}"
            running = [pods[name] for name in names if pods[name]["status"]["phase"] == "Running"]
            return running if len(running) == len(names) else None

        found: list[Object] = await self.until(all_run, f"{', '.join(names)} run")
        return found

    async def pods(self) -> dict[str, Object]:
        return {pod["metadata"]["name"]: pod for pod in (await self._read(PODS))["items"]}

    async def condition(self, pod: str, kind: str) -> bool:
        """Whether this condition of the pod is true."""
        conditions = (await self.pods())[pod]["status"].get("conditions", [])
        return any(condition["type"] == kind and condition["status"] == "True" for condition in conditions)

    async def events(self, pod: str, reason: str) -> list[str]:
        params = {"fieldSelector": f"involvedObject.name={pod},reason={reason}"}
        answer = await self.client.request("GET", "/api/v1/namespaces/default/events", params=params)
        return [event["message"] for event in json.loads(answer)["items"]]

    async def cards(self, pod: str, container: str = "c0") -> list[str]:
        """The device nodes that the container saw when it began."""
        return (await self._printed(pod, container))[-1].removeprefix(_CARDS).split()

    async def limit_at_start(self, pod: str, container: str = "c0") -> dict[str, str]:
        """Region → limit, as the container read it from its own cgroup before it did anything else."""
        return limits("\n".join((await self._printed(pod, container))[:-1]))

    async def limit_now(self, pod: str, container: str = "c0") -> dict[str, str]:
        """The same, read at this moment."""
        return limits(await self.exec(pod, "cat /sys/fs/cgroup/dmem.max", container))

    async def allocate(self, pod: str, *amounts: int, container: str = "c0") -> list[bool]:
        """Whether a process of the container gets these amounts of its card's memory, one after the other; it then ends."""
        script = _ALLOCATE.format(amounts=" ".join(map(str, amounts)))
        return [line == "yes" for line in (await self.exec(pod, script, container)).split()]

    async def hold(self, pod: str, amount: int, container: str = "c0") -> None:
        """A process of the container takes this amount of its card's memory and keeps it."""
        await self.exec(pod, _HOLD.format(amount=amount), container)
        await self.until(lambda: self._holds(pod, amount, container), f"{pod} holds {amount} bytes")

    async def exec(self, pod: str, script: str, container: str = "c0") -> str:
        async def output() -> str:
            return await asyncio.to_thread(self.plane.kubectl, "exec", pod, f"--container={container}", "--", "sh", "-c", script)

        # A runtime or kubelet that was restarted answers again after some seconds.
        return str(await self.until(_or_space(output), f"exec in {pod}", 180, retry_on=(ClusterError,)))

    async def delete(self, name: str) -> None:
        with contextlib.suppress(NotFound):
            await self.client.request("DELETE", f"{PODS}/{name}")

    async def clear(self) -> None:
        """Remove every pod, with the agent there to see it."""
        for name in await self.pods():
            await self.delete(name)
        await self.until(self._no_pods, "all pods are gone")

    async def until(
        self,
        condition: Callable[[], Any],
        what: str,
        limit_s: float = LIMIT_S,
        retry_on: tuple[type[Exception], ...] = (),
    ) -> Any:
        return await wait_until_async(condition, what, limit_s, 0.5, evidence=self._evidence, retry_on=(*RETRY_ON, *retry_on))

    async def _printed(self, pod: str, container: str) -> list[str]:
        async def lines() -> list[str] | None:
            try:
                text = (await self.client.request("GET", f"{PODS}/{pod}/log", params={"container": container})).decode()
            except NotFound:
                return None  # a kubelet that has just started does not know its pods yet
            return text.splitlines() if _CARDS in text else None

        found: list[str] = await self.until(lines, f"{pod} has printed what it sees")
        return found

    async def _holds(self, pod: str, amount: int, container: str) -> bool:
        current = limits(await self.exec(pod, "cat /sys/fs/cgroup/dmem.current", container))
        return str(amount) in current.values()

    async def _no_pods(self) -> bool:
        return not await self.pods()

    async def _read(self, path: str) -> Object:
        return msgspec.json.decode(await self.client.request("GET", path), type=Object)

    def _evidence(self) -> str:
        try:
            agent = self.node.agent_log()
        except ClusterError as error:
            agent = str(error)
        return f"{last_lines(*self._processes)}\n--- agent\n{agent}{self.node.evidence()}"


@contextlib.asynccontextmanager
async def open_virtual_cluster(
    plane: ControlPlane, node: VirtualNode, processes: tuple[Process, ...]
) -> AsyncIterator[VirtualCluster]:
    """With the agent running and its cards published; all pods are removed at the end."""
    async with Client(config.load(plane.kubeconfig), user_agent="accelshare-tests", timeout_s=REQUEST_LIMIT_S) as client:
        opened = VirtualCluster(plane, node, client, processes)
        await opened.start_agent()
        await opened.with_cards()
        try:
            yield opened
        finally:
            await opened.start_agent()  # a test may have killed it; without it nobody's container is created or refused
            await opened.clear()


def limits(text: str) -> dict[str, str]:
    """Region → value in a file of the device memory controller."""
    return {region: value for region, _, value in (line.partition(" ") for line in text.splitlines()) if value}


def _or_space(output: Callable[[], Any]) -> Callable[[], Any]:
    """Nothing printed is an answer too."""

    async def never_empty() -> str:
        return await output() or " "

    return never_empty
