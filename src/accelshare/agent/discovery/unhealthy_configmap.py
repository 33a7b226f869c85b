"""Reads the ConfigMap in which people mark cards of this node unhealthy.

Belongs here: watching that ConfigMap and reading its list of indexes. An empty value marks no card; an invalid one is logged.
"""

import logging
from collections.abc import Mapping

import msgspec

from accelshare.agent.discovery.device_inventory import DeviceInventory
from accelshare.kube.client import Client
from accelshare.kube.watch import Gone, Reflector, Seen
from accelshare.vendors.profile import UnhealthyConfigMap
from accelshare.wire.decoding import Decoder

log = logging.getLogger(__name__)


class _ConfigMap(msgspec.Struct):
    metadata: dict[str, object]
    data: dict[str, str] | None = None


_config_maps = Decoder(_ConfigMap)


def decode(raw: msgspec.Raw) -> dict[str, str]:
    return _config_maps.decode(raw).data or {}


def indexes(data: Mapping[str, str], key: str) -> tuple[list[int], str]:
    """The marked cards, and a text about what could not be read."""
    text = data.get(key, "")
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        return [], ""
    if not all(part.isascii() and part.isdigit() and len(part) <= 4 for part in parts):
        return [], f"{key} is {text[:64]!r}; it must be card indexes joined by commas, no card is marked"
    return [int(part) for part in parts], ""


async def follow(client: Client, node: str, devices: DeviceInventory, kind: str, where: UnhealthyConfigMap) -> None:
    """Mark cards in the inventory as the ConfigMap of this node lists them, until cancelled; without a ConfigMap, none."""
    name = where.name_on(node)
    reflector: Reflector[dict[str, str]] = Reflector(
        client,
        f"/api/v1/namespaces/{where.namespace}/configmaps",
        decode=decode,
        identity=lambda _: name,
        identified_by="name",
        params={"fieldSelector": f"metadata.name={name}"},
    )
    async for change in reflector.changes():
        if isinstance(change, Seen | Gone):
            marked, problem = indexes(change.obj if isinstance(change, Seen) else {}, where.key)
            if problem:
                log.warning("unhealthy-configmap kind=%s configmap=%s problem=%r", kind, name, problem)
            devices.set_marked(kind, marked, f"marked in ConfigMap {name}")
