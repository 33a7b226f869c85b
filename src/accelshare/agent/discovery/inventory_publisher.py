"""Keeps the Node's inventory annotation and capacity current.

Belongs here: comparing the Node object with the inventory, and writing the difference. Never: the inventory's content.
"""

import asyncio
import logging
import threading
from collections.abc import Mapping
from typing import Final

from accelshare.agent.amounts import AmountsInForce
from accelshare.agent.discovery.device_inventory import DeviceInventory
from accelshare.agent.pinned_records import PinnedRecords
from accelshare.kube.client import Client
from accelshare.kube.errors import KubeError
from accelshare.kube.patches import annotate_node, set_capacity
from accelshare.kube.watch import Gone, Reflector, Seen, Synced
from accelshare.wire import assignment, inventory, resizing
from accelshare.wire.decoding import UnreadableError
from accelshare.wire.objects import Node, node_decoder
from accelshare.wire.quantity import whole_number

log = logging.getLogger(__name__)
RETRY_S: Final = 1.0


class InventoryPublisher:
    def __init__(
        self,
        client: Client,
        node: str,
        devices: DeviceInventory,
        pins: PinnedRecords,
        amounts: AmountsInForce | None = None,
    ) -> None:
        self._amounts = amounts or AmountsInForce()
        self._client = client
        self._name = node
        self._devices = devices
        self._pins = pins
        self._node_lock = threading.Lock()  # the thread that answers the runtime reads labels and resources
        self._node: Node | None = None
        self._changed = asyncio.Event()
        self._written = asyncio.Event()
        self.listed = asyncio.Event()  # the Node has been read for the first time
        devices.on_change(self._request)

    @property
    def labels(self) -> Mapping[str, str]:
        node = self._read_node()
        return (node.metadata.labels or {}) if node is not None else {}

    @property
    def resources(self) -> frozenset[str]:
        """The resources of which the node's capacity is not zero."""
        node = self._read_node()
        amounts = (node.status.capacity if node is not None and node.status else None) or {}
        return frozenset(name for name, amount in amounts.items() if whole_number(amount))

    @property
    def published(self) -> dict[str, inventory.KindEntry]:
        """The inventory that is on the Node now, perhaps written by an earlier agent."""
        try:
            return inventory.entries_of(self._annotations.get(inventory.KEY, ""))
        except UnreadableError:
            return {}

    @property
    def published_units(self) -> dict[str, str]:
        """The unit of each kind in the Node's inventory."""
        return {kind: entry.unit for kind, entry in self.published.items()}

    @property
    def published_corrections(self) -> str:
        """The corrected records that are on the Node now, perhaps written by an earlier agent."""
        return self._annotations.get(assignment.CORRECTED, "")

    @property
    def published_resizes(self) -> str:
        """The resizes that are on the Node now, perhaps written by an earlier agent."""
        return self._annotations.get(resizing.APPLIED, "")

    @property
    def _annotations(self) -> Mapping[str, str]:
        return (self._node.metadata.annotations or {}) if self._node is not None else {}

    def _request(self) -> None:
        self._written.clear()
        self._changed.set()

    async def wait_until_published(self) -> None:
        """Wait until the Node has the current inventory."""
        await self._written.wait()

    async def watch(self) -> None:
        """Watch our Node, until cancelled: a new Node of the same name lacks everything."""
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
                self._set_node(change.obj)
                self._changed.set()
            elif isinstance(change, Gone):
                self._set_node(None)
            elif isinstance(change, Synced):
                self.listed.set()

    def _set_node(self, node: Node | None) -> None:
        with self._node_lock:
            self._node = node

    def _read_node(self) -> Node | None:
        with self._node_lock:
            return self._node

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
                    self._written.set()

    async def _write(self) -> None:
        node = self._node
        entries = self._devices.inventory()
        if node is None or not entries:
            return
        text = inventory.write(entries)
        annotations = node.metadata.annotations or {}
        if annotations.get(inventory.KEY) != text:
            await annotate_node(self._client, self._name, {inventory.KEY: text})
            log.info("publish node=%s kinds=%s outcome=written", self._name, ",".join(self._devices.kinds))
        corrections = self._pins.corrections
        if annotations.get(assignment.CORRECTED) != corrections:
            await annotate_node(self._client, self._name, {assignment.CORRECTED: corrections})
        resizes = self._amounts.annotation
        if annotations.get(resizing.APPLIED) != resizes:
            await annotate_node(self._client, self._name, {resizing.APPLIED: resizes})
        # kubelet shows a device plugin that has gone by allocatable alone; a kubelet that restarts then rejects running pods.
        status = node.status
        capacity, allocatable = (status.capacity or {}, status.allocatable or {}) if status else ({}, {})
        wrong = {
            name: amount
            for name, amount in self._devices.amounts().items()
            if not whole_number(capacity.get(name)) == whole_number(allocatable.get(name)) == amount
        }
        if wrong:
            await set_capacity(self._client, self._name, wrong)
