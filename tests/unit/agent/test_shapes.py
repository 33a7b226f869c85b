"""A container gets the shape that the ledger counts for it, by the runtime and by device plugins."""

import json
from pathlib import Path

import msgspec
import pytest

from accelshare.agent.device_plugin.allocator import AllocationError, Allocator
from accelshare.agent.device_plugin.device_ids import cards_of, unit_ids
from accelshare.agent.device_plugin.pod_queue import PodQueue
from accelshare.agent.discovery.device_inventory import DeviceInventory, InventoryCard, VendorCards
from accelshare.agent.nri.container_handler import ContainerHandler
from accelshare.agent.nri.protocol.messages import environment
from accelshare.agent.nri.protocol.nri_pb2 import Container, LinuxContainer, LinuxDevice, PodSandbox
from accelshare.agent.nri.protocol.plugin import Refuse
from accelshare.agent.pod_store import PodStore
from accelshare.ledger.nouns import Ask, Slice
from accelshare.vendors.catalog import Catalog, load
from accelshare.vendors.drivers.driver import HostCard
from accelshare.vendors.enforcement import Enforcement
from accelshare.wire.assignment import DELIVERED, slices_of
from accelshare.wire.node_pods import NodePod, NodePodReader
from tests.unit.agent.builders import container_handler, guard, mode, pod_store

CATALOG = load()
ASCEND, MTHREADS = CATALOG["ascend"], CATALOG["mthreads"]
NPU, SGPU = ASCEND.resources.memory or "", MTHREADS.resources.memory or ""


def pod(name: str, resource: str, *amounts: int, card: int | None = 0, catalog: Catalog = CATALOG) -> NodePod:
    """A pod whose containers request these amounts; without a card it names its node itself."""
    found = catalog.by_resource(resource)
    assert found is not None
    notes = {"accelshare.io/assignment": json.dumps({found[0].name: [{"index": card, "id": f"id{card}"}]})}
    scheduled = [{"type": "PodScheduled", "status": "True"}]
    content = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "resourceVersion": "1",
            "annotations": notes if card is not None else {},
        },
        "spec": {
            "nodeName": "n1",
            "containers": [
                {"name": f"c{number}", "resources": {"limits": {resource: str(amount)}}} for number, amount in enumerate(amounts)
            ],
        },
        "status": {"phase": "Pending", "conditions": scheduled},
    }
    return NodePodReader(catalog).decode(msgspec.Raw(msgspec.json.encode(content)))


def vendor(kind: str = "ascend", *, cards: int = 2, units: int = 65536, catalog: Catalog = CATALOG) -> VendorCards:
    profile = catalog[kind]
    way = next(iter(profile.enforcement.ways), "")
    enforcement = Enforcement(way, profile.enforcement.ways[way].env) if way else None
    return VendorCards(
        profile,
        profile.unit.default,
        profile.unit.mib[profile.unit.default],
        {
            index: InventoryCard(HostCard(index, f"id{index}", 65536, minor=index), units, enforcement=enforcement)
            for index in range(cards)
        },
    )


def inventory(kind: VendorCards) -> DeviceInventory:
    devices = DeviceInventory()
    devices.put(kind)
    return devices


def created(handler: ContainerHandler, one: NodePod, container: str = "c0") -> tuple[dict[str, str], tuple[Slice, ...]]:
    adjustment = handler.create_container(
        PodSandbox(id="b", name=one.seen.name, uid=one.uid, namespace="default"),
        Container(id=container, pod_sandbox_id="b", name=container),
    )
    env = environment(Container(env=[f"{pair.key}={pair.value}" for pair in adjustment.env]))
    return env, slices_of(adjustment.annotations[DELIVERED])


def test_the_runtime_gives_the_shape_that_is_counted() -> None:
    one = pod("p", NPU, 10_000, card=1)
    env, slices = created(container_handler(inventory(vendor()), pod_store(one)), one)
    assert env["ASCEND_VNPU_SPECS"] == "vir05_1c_16g"
    assert env["ASCEND_VISIBLE_DEVICES"] == "1"
    assert slices == one.seen.slices == (Slice("ascend", 1, 16384, False, "id1"),)


def test_each_container_has_its_own_shape() -> None:
    one = pod("p", NPU, 10_000, 20_000)
    handler = container_handler(inventory(vendor()), pod_store(one))
    assert created(handler, one, "c0")[0]["ASCEND_VNPU_SPECS"] == "vir05_1c_16g"
    assert created(handler, one, "c1")[0]["ASCEND_VNPU_SPECS"] == "vir10_3c_32g"
    assert one.seen.request == (Ask("ascend", 1, 16384 + 32768),)


def test_a_limit_in_bytes_is_that_of_the_shape() -> None:
    """Five units of 512 MiB take 4 GiB: the driver rounds up, and the ledger counts what it gives."""
    one = pod("p", SGPU, 5)
    env, _ = created(container_handler(inventory(vendor("mthreads", units=128)), pod_store(one)), one)
    assert env["MTHREADS_QOS_MEMORY_LIMIT"] == str(8 * 512 * 2**20)


class Plugin:
    """The device plugin's allocator over two cards of 64 units."""

    def __init__(self, kind: VendorCards) -> None:
        self.kind = kind.profile.name
        self.pods = PodStore()
        devices = inventory(kind)
        self.queue = PodQueue(devices, self.pods, arrival_s=0.01)
        self.allocator = Allocator(devices, self.queue, self._unreported, mode=mode(), exists=lambda _: True)
        self.free = {unit for card in kind.cards.values() for unit in unit_ids(card.index, card.units)}

    async def _unreported(self) -> None:
        return None

    async def serve(self, one: NodePod, amount: int) -> tuple[set[int], dict[str, str]]:
        self.pods.put(one)
        ids = await self.allocator.prefer(self.kind, whole=False, available=self.free, must=(), size=amount)
        edits = await self.allocator.allocate(self.kind, whole=False, device_ids=ids)
        self.free -= set(ids)
        return cards_of(ids), dict(edits.env)


async def test_device_plugins_give_the_shape_for_fewer_ids() -> None:
    plugin = Plugin(vendor("mthreads", units=64))
    cards, env = await plugin.serve(pod("p", SGPU, 5, card=1), 5)
    assert cards == {1}
    assert env["MTHREADS_QOS_MEMORY_LIMIT"] == str(8 * 512 * 2**20)


async def test_a_pod_without_the_scheduler_gets_a_card_with_room_for_its_shape() -> None:
    """Three pods of 17 units take 32 each. kubelet has 47 ids of the first card left after one, but room for one shape only."""
    plugin = Plugin(vendor("mthreads", units=64))
    for number in range(4):
        cards, _ = await plugin.serve(pod(f"p{number}", SGPU, 17, card=None), 17)
        assert cards == {number // 2}
    with pytest.raises(AllocationError):
        await plugin.serve(pod("last", SGPU, 17, card=None), 17)


async def test_a_record_on_a_full_card_is_refused_by_name() -> None:
    plugin = Plugin(vendor("mthreads", units=64))
    await plugin.serve(pod("a", SGPU, 33, card=0), 33)
    with pytest.raises(AllocationError, match=r"default/b got card 0 of mthreads"):
        await plugin.serve(pod("b", SGPU, 1, card=0), 1)


async def test_device_plugins_keep_to_the_most_slices_of_a_card(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('extends = "nvidia"\n[request]\nmax_slices_per_card = 1\n')
    catalog = load([tmp_path])
    plugin = Plugin(vendor("nvidia", units=64, catalog=catalog))
    for number in range(2):
        cards, _ = await plugin.serve(pod(f"p{number}", "aliyun.com/gpu-mem", 1, card=None, catalog=catalog), 1)
        assert cards == {number}
    with pytest.raises(AllocationError):
        await plugin.serve(pod("last", "aliyun.com/gpu-mem", 1, card=None, catalog=catalog), 1)


def dri_handler(kind: str) -> ContainerHandler:
    """A node with one card of this vendor, /dev/dri/card1, and a pod that requests none of it."""
    cards = {1: InventoryCard(HostCard(1, "id1", 16384, minor=1, card_node="card1", render_node="renderD129"), 16384)}
    devices = inventory(VendorCards(CATALOG[kind], "MiB", 1, cards))
    return container_handler(devices, pod_store(pod("p", NPU, 1)), guard=guard(CATALOG[kind]))


@pytest.mark.parametrize("kind", ["amd", "intel"])
def test_a_card_of_another_vendor_in_the_same_folder_is_not_taken_for_one_of_this(kind: str) -> None:
    """Several vendors have their files in /dev/dri: only the files of this vendor's cards are refused."""
    sandbox = PodSandbox(id="b", name="p", uid="p", namespace="default")

    def create(path: str) -> None:
        devices = [LinuxDevice(path=path, type="c", major=226, minor=200)]
        other = Container(id="c", pod_sandbox_id="b", name="other", linux=LinuxContainer(devices=devices))
        dri_handler(kind).create_container(sandbox, other)

    create("/dev/dri/card0")
    create("/dev/dri/renderD128")
    for path in ("/dev/dri/card1", "/dev/dri/renderD129"):
        with pytest.raises(Refuse, match=path):
            create(path)


def test_files_of_an_unknown_vendor_are_refused_by_their_names() -> None:
    """Until the driver has answered, every file of this form may be one of its cards."""
    handler = container_handler(DeviceInventory(), pod_store(pod("p", NPU, 1)), guard=guard(CATALOG["amd"]))
    devices = [LinuxDevice(path="/dev/dri/card7", type="c", major=226, minor=7)]
    other = Container(id="c", pod_sandbox_id="b", name="other", linux=LinuxContainer(devices=devices))
    with pytest.raises(Refuse, match="/dev/dri/card7"):
        handler.create_container(PodSandbox(id="b", name="p", uid="p", namespace="default"), other)
