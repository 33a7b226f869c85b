"""A node without hardware: declared cards, a kubelet in memory, and the real agent as a process of its own.

Belongs here: starting them, knowing when the node is on duty, and ending them in every case. Never: handing out cards.
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
from accelshare.kube.inventory import MERGE
from accelshare.testing.fake_kubelet import FakeKubelet
from accelshare.vendors.catalog import Catalog
from accelshare.vendors.container_edits import device_nodes
from accelshare.vendors.drivers import registry
from accelshare.vendors.drivers.driver import Roots
from accelshare.vendors.profile import Profile
from accelshare.wire import inventory
from accelshare.wire.objects import Node, node_decoder
from cluster.process import Process
from demo.agreement import shown, told
from demo.playlist import Object

AGENT: Final = (sys.executable, "-m", "accelshare", "agent")


class Kubelet(FakeKubelet):
    """One whose containers may take their time: while `ending` is not set, a deleted pod runs on and holds its devices."""

    def __init__(self, client: Client, node: str, directory: Path) -> None:
        super().__init__(client, node, directory)
        self.ending = asyncio.Event()
        self.ending.set()

    async def _sync(self, pod: Object) -> None:
        if pod["metadata"].get("deletionTimestamp"):
            await self.ending.wait()
        await super()._sync(pod)


@dataclass(frozen=True, slots=True)
class DemoNode:
    manifest: Object
    profile: Profile
    kubelet: Kubelet
    agent: Process
    client: Client

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])

    async def on_duty(self) -> bool:
        """Its agent has told the cluster of cards that it delivers, and kubelet shows all of them."""
        node = await self._read()
        entry = told(node).get(self.profile.name)
        if entry is None or not entry.delivers:
            return False
        resources = self.profile.resources
        amounts = {resources.memory: sum(card.size for card in entry.cards), resources.whole: len(entry.cards)}
        return all(shown(node, name) == amount for name, amount in amounts.items() if name is not None)

    async def tell_address(self) -> None:
        """What a kubelet tells of itself. Here it comes last, so whoever has heard the address has heard of the cards too."""
        body = orjson.dumps({"status": {"addresses": self.manifest["status"]["addresses"]}})
        await self.client.request("PATCH", f"{paths.node(self.name)}/status", body=body, content_type=MERGE)

    async def _read(self) -> Node:
        return node_decoder.decode(await self.client.request("GET", paths.node(self.name)))


@asynccontextmanager
async def set_up_node(
    manifest: Object, profile: Profile, *, client: Client, catalog: Catalog, profiles: Path, kubeconfig: Path, directory: Path
) -> AsyncIterator[DemoNode]:
    """The node with kubelet and agent begun; gone afterwards. A socket's path is short, so `directory` must be."""
    await client.request("POST", "/api/v1/nodes", body=orjson.dumps(bare(manifest, catalog)))
    dev = directory / "dev"
    await make_device_files(profile, dev)
    name = manifest["metadata"]["name"]
    kubelet = Kubelet(client, name, directory)
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
            # Not asked to end: it would first wait for pods that are on their way, and here the whole cluster goes.
            agent.kill()


def bare(manifest: Object, catalog: Catalog) -> Object:
    """The node before anybody has looked at it: the example files also tell what an agent and a kubelet find out."""
    ours = {name for profile in catalog for name in (profile.resources.memory, profile.resources.count, profile.resources.whole)}
    metadata = manifest["metadata"]
    annotations = {key: value for key, value in metadata.get("annotations", {}).items() if key != inventory.KEY}
    status = {
        part: {name: amount for name, amount in manifest["status"][part].items() if name not in ours}
        for part in ("capacity", "allocatable")
    }
    return {**manifest, "metadata": {**metadata, "annotations": annotations}, "status": status}


async def make_device_files(profile: Profile, dev: Path) -> None:
    """A file for each device file of the declared cards: without it a card counts as ill."""
    cards = await registry.make(profile, roots=Roots(dev=dev)).discover()
    for node in device_nodes(profile, cards, exists=lambda _: True):
        file = dev / node.host_path.removeprefix("/dev/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
