"""This node's story on its Node object, told again whenever it changed or was lost.

Belongs here: comparing what the Node says with what is true, and writing the difference. Never: what is true (shelf.py).
"""

import asyncio
import logging
from typing import Final

from accelshare.agent.discovery.device_inventory import DeviceInventory
from accelshare.agent.pinned_records import PinnedRecords
from accelshare.kube.client import Client
from accelshare.kube.errors import KubeError
from accelshare.kube.patches import annotate_node, set_capacity
from accelshare.kube.watch import Gone, Reflector, Seen, Synced
from accelshare.wire import assignment, inventory
from accelshare.wire.decoding import UnreadableError
from accelshare.wire.objects import Node, node_decoder
from accelshare.wire.quantity import whole_number

log = logging.getLogger(__name__)
RETRY_S: Final = 1.0


class InventoryPublisher:
    def __init__(self, client: Client, node: str, devices: DeviceInventory, pins: PinnedRecords) -> None:
        self._client = client
        self._name = node
        self._devices = devices
        self._pins = pins
        self._node: Node | None = None
        self._changed = asyncio.Event()
        self._told = asyncio.Event()
        self.listed = asyncio.Event()  # what the Node said when we came is known
        devices.on_change(self.soon)

    @property
    def labels(self) -> dict[str, str]:
        node = self._node  # read once: the thread that answers a container runtime asks, too
        return (node.metadata.labels or {}) if node is not None else {}

    @property
    def resources(self) -> frozenset[str]:
        """The resources that this node has any of."""
        node = self._node
        amounts = (node.status.capacity if node is not None and node.status else None) or {}
        return frozenset(name for name, amount in amounts.items() if whole_number(amount))

    @property
    def published(self) -> dict[str, inventory.KindEntry]:
        """The inventory as the Node tells it now, perhaps from an earlier agent."""
        text = (self._node.metadata.annotations or {}).get(inventory.KEY, "") if self._node is not None else ""
        try:
            return inventory.entries_of(text)
        except UnreadableError:
            return {}

    @property
    def published_units(self) -> dict[str, str]:
        """The unit of each kind as the Node tells it now."""
        return {kind: entry.unit for kind, entry in self.published.items()}

    @property
    def published_corrections(self) -> str:
        """Records of pods as the Node tells them now, perhaps from an earlier agent."""
        return (self._node.metadata.annotations or {}).get(assignment.CORRECTED, "") if self._node is not None else ""

    def soon(self) -> None:
        self._told.clear()
        self._changed.set()

    async def flushed(self) -> None:
        """Until what is true now has been written."""
        await self._told.wait()

    async def watch(self) -> None:
        """Hear of changes to our Node: a new one of the same name knows nothing of us."""
        reflector: Reflector[Node] = Reflector(
            self._client,
            "/api/v1/nodes",
            decode=lambda raw: node_decoder.decode(raw),
            identity=lambda node: node.metadata.name,
            identified_by="name",
            params={"fieldSelector": f"metadata.name={self._name}"},
        )
        async for change in reflector.changes():
            if isinstance(change, Seen):
                self._node = change.obj
                self._changed.set()
            elif isinstance(change, Gone):
                self._node = None
            elif isinstance(change, Synced):
                self.listed.set()

    async def run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._write()
            except KubeError as error:
                log.warning("publish outcome=failed error=%r", str(error))
                await asyncio.sleep(RETRY_S)
                self._changed.set()
            else:
                if not self._changed.is_set():
                    self._told.set()

    async def _write(self) -> None:
        node = self._node
        if node is None or not (self._devices.kinds or self._devices.problems):
            return
        text = inventory.write(self._devices.inventory())
        if (node.metadata.annotations or {}).get(inventory.KEY) != text:
            await annotate_node(self._client, self._name, {inventory.KEY: text})
            log.info("publish node=%s kinds=%s outcome=written", self._name, ",".join(self._devices.kinds))
        corrections = self._pins.corrections
        if (node.metadata.annotations or {}).get(assignment.CORRECTED) != corrections:
            await annotate_node(self._client, self._name, {assignment.CORRECTED: corrections})
        capacity = (node.status.capacity if node.status else None) or {}
        amounts = self._devices.amounts()
        wrong = {name: amount for name, amount in amounts.items() if whole_number(capacity.get(name)) != amount}
        if wrong:
            await set_capacity(self._client, self._name, wrong)
