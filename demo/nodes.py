"""A demo node without hardware: declared cards, a fake kubelet, and the real agent as a process of its own.

Belongs here: starting them, knowing when the node is ready, and ending them in every case. Never: handing out cards.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from accelshare.kube import paths
from accelshare.kube.client import Client
from accelshare.kube.patches import MERGE_PATCH
from accelshare.testing.fake_kubelet import FakeKubelet
from accelshare.vendors.catalog import Catalog
from accelshare.vendors.container_edits import device_nodes
from accelshare.vendors.drivers import registry
from accelshare.vendors.drivers.driver import Roots
from accelshare.vendors.profile import Profile
from accelshare.wire import inventory
from accelshare.wire.objects import Node, node_decoder
from cluster.process import Process
from demo.checks import allocatable, published_cards
from demo.scenario import Object

AGENT: Final = (sys.executable, "-m", "accelshare", "agent")


class DemoKubelet(FakeKubelet):
    """A fake kubelet whose containers can be slow to stop: while `pods_can_end` is not set, a deleted pod keeps its devices."""

    def __init__(self, client: Client, node: str, directory: Path) -> None:
        super().__init__(client, node, directory)
        self.pods_can_end = asyncio.Event()
        self.pods_can_end.set()

    async def _sync(self, pod: Object) -> None:
        if pod["metadata"].get("deletionTimestamp"):
            await self.pods_can_end.wait()
        await super()._sync(pod)


@dataclass(frozen=True, slots=True)
class DemoNode:
    manifest: Object
    profile: Profile
    kubelet: DemoKubelet
    agent: Process
    client: Client

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])

    async def is_ready(self) -> bool:
        """Whether its agent has published cards that it delivers, and kubelet shows all of them."""
        node = await self._read()
        entry = published_cards(node).get(self.profile.name)
        if entry is None or not entry.delivers:
            return False
        resources = self.profile.resources
        amounts = {resources.memory: sum(card.size for card in entry.cards), resources.whole: len(entry.cards)}
        return all(allocatable(node, name) == amount for name, amount in amounts.items() if name is not None)

    async def publish_address(self) -> None:
        """Write the node's address as kubelet does. Here it comes last: who has seen the address has seen the cards too."""
        body = orjson.dumps({"status": {"addresses": self.manifest["status"]["addresses"]}})
        await self.client.request("PATCH", f"{paths.node(self.name)}/status", body=body, content_type=MERGE_PATCH)

    async def _read(self) -> Node:
        return node_decoder.decode(await self.client.request("GET", paths.node(self.name)))


@asynccontextmanager
async def start_node(
    manifest: Object, profile: Profile, *, client: Client, catalog: Catalog, profiles: Path, kubeconfig: Path, directory: Path
) -> AsyncIterator[DemoNode]:
    """Start the node's kubelet and agent, and end them afterwards. The path of `directory` must be short, as socket paths are."""
    await client.request("POST", "/api/v1/nodes", body=orjson.dumps(without_agent_data(manifest, catalog)))
    dev = directory / "dev"
    await make_device_files(profile, dev)
    name = manifest["metadata"]["name"]
    kubelet = DemoKubelet(client, name, directory)
    async with kubelet:
        flags = {
            "kubeconfig": kubeconfig,
            "node-name": name,
            "vendor": profile.name,
            "profiles": profiles,
            "kubelet-root": directory,
            "dev-root": dev,
        }
        command = [*AGENT, *(f"--{flag}={value}" for flag, value in flags.items())]
        agent = Process(f"agent of {name}", command, directory.with_suffix(".log"))
        try:
            yield DemoNode(manifest, profile, kubelet, agent, client)
        finally:
            # Killed, because a graceful shutdown first waits for pods that are bound, and here the whole cluster ends.
            agent.kill()


def without_agent_data(manifest: Object, catalog: Catalog) -> Object:
    """The Node without what agent and kubelet write: the example files contain that too."""
    ours = {name for profile in catalog for name in (profile.resources.memory, profile.resources.count, profile.resources.whole)}
    metadata = manifest["metadata"]
    annotations = {key: value for key, value in metadata.get("annotations", {}).items() if key != inventory.KEY}
    status = {
        part: {name: amount for name, amount in manifest["status"][part].items() if name not in ours}
        for part in ("capacity", "allocatable")
    }
    return {**manifest, "metadata": {**metadata, "annotations": annotations}, "status": status}


async def make_device_files(profile: Profile, dev: Path) -> None:
    """Create a file for each device file of the declared cards: a card without one is unhealthy."""
    cards = await registry.make(profile, roots=Roots(dev=dev)).discover()
    for node in device_nodes(profile, cards, exists=lambda _: True):
        file = dev / node.host_path.removeprefix("/dev/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
