"""Pods, cards and processes for tests of usage."""

from accelshare.agent.discovery.device_inventory import DeviceInventory, InventoryCard, VendorCards
from accelshare.ledger.facts import PodSeen
from accelshare.ledger.nouns import Ask, Slice
from accelshare.vendors.catalog import load
from accelshare.vendors.drivers.driver import HostCard
from accelshare.wire.node_pods import NodePod
from accelshare.wire.usage import PodUse

PROFILE = load()["enflame"]
KIND = PROFILE.name
GIB = 2**30


def cards(count: int = 2, *, memory_mib: int = 16384) -> VendorCards:
    """Cards of 16 units of 1 GiB."""
    found = (HostCard(index, f"id{index}", memory_mib) for index in range(count))
    return VendorCards(PROFILE, "1", 1024, {card.index: InventoryCard(card, 16) for card in found})


def inventory(vendor: VendorCards) -> DeviceInventory:
    devices = DeviceInventory()
    devices.put(vendor)
    return devices


def uid(name: str) -> str:
    return f"{name.encode().hex():0>32.32}"


def pod(
    name: str, units: int, *indexes: int, whole: bool = False, ended: bool = False, annotations: dict[str, str] | None = None
) -> NodePod:
    slices = tuple(Slice(KIND, index, 0 if whole else units, whole, f"id{index}") for index in indexes)
    ask = Ask(KIND, len(indexes), units, whole)
    seen = PodSeen(uid(name), "ml", name, request=(ask,) if indexes else (), slices=slices, ended=ended)
    return NodePod(seen=seen, parts=(), annotations=annotations or {}, phase="Running", terminating=ended)


def use(name: str, *, held: int = 4 * GIB, used: int | None = 0, utilisation: float | None = 0.5, card: int = 0) -> PodUse:
    return PodUse("ml", name, uid(name), KIND, card, held, used, utilisation)
