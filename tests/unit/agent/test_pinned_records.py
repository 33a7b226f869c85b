"""A pod keeps the cards of its bind, whatever is written on it afterwards."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import msgspec

from accelshare.agent.metrics import AgentMetrics
from accelshare.agent.pinned_records import PinnedRecords
from accelshare.kube.client import Client
from accelshare.kube.errors import Forbidden
from accelshare.kube.events import Events
from accelshare.ledger.nouns import Slice
from accelshare.vendors.catalog import load
from accelshare.wire import assignment
from accelshare.wire.node_pods import NodePod, NodePodReader

CATALOG = load()
PROFILES = {profile.name: profile for profile in CATALOG}
OURS, INDEX = assignment.OURS, "ALIYUN_COM_GPU_MEM_IDX"
LIMIT_S = 60.0


def record(*cards: int, units: int = 2) -> dict[str, str]:
    slices = tuple(Slice("nvidia", card, units, id=f"GPU-{card}") for card in cards)
    sizes = {("nvidia", card): 16 for card in range(8)}
    return assignment.write(slices, profiles=PROFILES, sizes=sizes, now_ns=7)


def pod(annotations: dict[str, str], *, uid: str = "u", units: int = 2) -> NodePod:
    content = {
        "metadata": {"name": "p", "namespace": "default", "uid": uid, "annotations": annotations},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "resources": {"limits": {"aliyun.com/gpu-mem": units}}}]},
        "status": {"phase": "Pending"},
    }
    read = NodePodReader(CATALOG).decode(msgspec.Raw(msgspec.json.encode(content)))
    assert read is not None
    return read


class ApiServer:
    """What was written on the Node and on the pod, in order; a pod's writes may be denied."""

    def __init__(self) -> None:
        self.writes: list[tuple[str, dict[str, str | None]]] = []
        self.events: list[str] = []
        self.denies = False
        self.written = asyncio.Event()

    async def request(self, _method: str, path: str, *, body: bytes, **_: object) -> bytes:
        what = path.split("/")[-2]
        self.writes.append((what, json.loads(body)["metadata"]["annotations"]))
        self.written.set()
        if what == "pods" and self.denies:
            raise Forbidden(403, "Forbidden", "pods is forbidden")
        return b"{}"

    async def record(self, _pod: object, *, reason: str, message: str, **_: object) -> bool:
        self.events.append(f"{reason}: {message}")
        return True

    def of(self, what: str) -> list[dict[str, str | None]]:
        return [annotations for where, annotations in self.writes if where == what]

    async def until(self, what: str, count: int) -> None:
        async with asyncio.timeout(LIMIT_S):
            while len(self.of(what)) < count:
                self.written.clear()
                await self.written.wait()


class Node:
    def __init__(self) -> None:
        self.api = ApiServer()
        self.metrics = AgentMetrics()
        self.pins = PinnedRecords(cast("Client", self.api), "n1", CATALOG, cast("Events", self.api), self.metrics)

    @property
    def rewrites(self) -> float:
        (sample,) = [s for metric in self.metrics.record_rewrites.collect() for s in metric.samples if s.name.endswith("_total")]
        return sample.value

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.pins.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def cards(of: NodePod) -> list[int]:
    return [slice_.index for slice_ in of.seen.slices]


async def test_a_rewrite_moves_nothing_and_is_undone_after_the_node_has_the_right_cards() -> None:
    node = Node()
    assert cards(node.pins.see(pod(record(1)))) == [1]
    assert cards(node.pins.see(pod(record(5) | {"ALIYUN_COM_GPU_MEM_ASSIGNED": "true"}))) == [1]
    async with node.at_work():
        await node.api.until("pods", 1)
    (first, published), (second, restored) = node.api.writes
    assert (first, second) == ("nodes", "pods")
    assert json.loads(cast("str", published[assignment.CORRECTED])) == {"u": record(1)[OURS]}
    assert restored == {OURS: record(1)[OURS], INDEX: "1"}
    (event,) = node.api.events
    assert event.startswith("AcceleratorRecordRewritten: ")
    assert "keeps nvidia/1" in event
    assert node.rewrites == 1


async def test_each_key_of_the_record_is_restored() -> None:
    """Removed, added or changed keys; the assigned flag and keys of other systems are not part of the record."""
    for change in ({OURS: None}, {INDEX: None}, {INDEX: "7"}, {"ALIYUN_COM_GPU_MEM_POD": "16"}, {"BAIDU_COM_XPU_MEM_IDX": "3"}):
        node = Node()
        node.pins.see(pod(record(1)))
        changed = {key: value for key, value in {**record(1), **change}.items() if value is not None}
        assert cards(node.pins.see(pod(changed))) == [1], change
        async with node.at_work():
            await node.api.until("pods", 1)
        assert node.api.of("pods") == [{key: record(1).get(key) for key in change}]
    node = Node()
    node.pins.see(pod(record(1)))
    node.pins.see(pod(record(1) | {"ALIYUN_COM_GPU_MEM_ASSIGNED": "true", "mine": "yes"}))
    assert (node.rewrites, node.pins.corrections) == (0, None)


async def test_a_changed_card_count_after_the_bind_changes_nothing() -> None:
    node = Node()
    first = node.pins.see(pod(record(1, 2, units=1) | {"accelshare.io/card-count": "2"}))
    later = node.pins.see(pod(record(1, 2, units=1) | {"accelshare.io/card-count": "1"}))
    assert cards(later) == [1, 2]
    assert later.seen.request == first.seen.request


async def test_a_pod_without_a_record_gets_none_from_a_user() -> None:
    node = Node()
    assert cards(node.pins.see(pod({}))) == []
    assert cards(node.pins.see(pod(record(3)))) == []
    async with node.at_work():
        await node.api.until("pods", 1)
    assert node.api.of("pods") == [dict.fromkeys(assignment.record_keys(CATALOG) & record(3).keys())]


async def test_our_own_correction_is_no_rewrite() -> None:
    """The Node gets it first; a version of the pod from before our write is no rewrite."""
    node = Node()
    node.pins.see(pod(record(1)))
    await node.pins.correct("u", (Slice("nvidia", 4, 2, id="GPU-4"),), record(4))
    assert node.api.writes == [("nodes", {assignment.CORRECTED: json.dumps({"u": record(4)[OURS]}, separators=(",", ":"))})]
    assert cards(node.pins.see(pod(record(1)))) == [4]
    assert cards(node.pins.see(pod(record(4)))) == [4]
    assert (node.rewrites, node.api.events) == (0, [])
    assert cards(node.pins.see(pod(record(1)))) == [4]
    assert node.rewrites == 1


async def test_a_correction_that_could_not_be_written_is_written_later() -> None:
    node = Node()
    node.pins.see(pod(record(1)))
    await node.pins.correct("u", (Slice("nvidia", 4, 2, id="GPU-4"),), record(4))
    node.pins.see(pod(record(1)))
    async with node.at_work():
        await node.api.until("pods", 1)
    assert node.api.of("pods") == [{OURS: record(4)[OURS], INDEX: "4"}]
    assert node.api.events == []


async def test_corrections_of_an_earlier_agent_count_before_the_pods_record() -> None:
    node = Node()
    node.pins.load(json.dumps({"u": record(1)[OURS], "gone": record(2)[OURS]}))
    assert cards(node.pins.see(pod(record(6)))) == [1]
    node.pins.forget_others()
    assert json.loads(node.pins.corrections or "") == {"u": record(1)[OURS]}
    node.pins.forget("u")
    assert node.pins.corrections is None


async def test_cards_that_containers_hold_count_before_the_pods_record() -> None:
    """An agent that starts finds a record that was rewritten while no agent ran."""
    node = Node()
    node.pins.see(pod(record(6)))
    corrected = node.pins.check([("u", (Slice("nvidia", 1, 2, id="GPU-1"),)), ("unknown", (Slice("nvidia", 2, 2, id="GPU-2"),))])
    assert [cards(each) for each in corrected] == [[1]]
    assert cards(node.pins.see(pod(record(6)))) == [1]
    async with node.at_work():
        await node.api.until("pods", 1)
    assert node.api.of("pods")[0][INDEX] == "1"
    assert node.rewrites == 1
    # The same again is nothing new.
    node.pins.see(pod({**record(6), OURS: assignment.text((Slice("nvidia", 1, 2, id="GPU-1"),)), INDEX: "1"}))
    node.pins.check([("u", (Slice("nvidia", 1, 2, id="GPU-1"),))])
    assert node.rewrites == 1


async def test_a_record_without_hardware_ids_is_no_rewritten_one() -> None:
    """A pod that an original system placed has its card by index only; our annotation on its container has the id as well."""
    node = Node()
    node.pins.see(pod({INDEX: "1"}))
    node.pins.check([("u", (Slice("nvidia", 1, 2, id="GPU-1"),))])
    assert (node.rewrites, node.pins.corrections) == (0, None)
    node.pins.check([("u", (Slice("nvidia", 2, 2, id="GPU-2"),))])
    assert node.rewrites == 1


async def test_the_nodes_correction_of_a_pod_without_cards_stays_for_the_next_agent() -> None:
    """It has no card; a user wrote one on it, and wrote it again while no agent ran."""
    node = Node()
    node.pins.see(pod({}))
    node.pins.see(pod(record(3)))
    later = Node()
    later.pins.load(node.pins.corrections or "")
    assert cards(later.pins.see(pod(record(3)))) == []
    assert later.rewrites == 1


async def test_a_denied_write_is_tried_less_and_less_often() -> None:
    node = Node()
    node.api.denies = True
    node.pins.see(pod(record(1)))
    async with node.at_work():
        for _ in range(50):  # a user who does not stop
            for card in (2, 3):
                node.pins.see(pod(record(card)))
                await asyncio.sleep(0)
        await node.api.until("pods", 1)
    assert len(node.api.of("pods")) <= 2
    assert cards(node.pins.see(pod(record(5)))) == [1]


def test_corrections_are_bounded() -> None:
    many = {f"uid-{number}": record(*range(8))[OURS] for number in range(2000)}
    text = assignment.write_corrections(many)
    assert text is not None
    assert len(text) <= assignment.LARGEST_CORRECTIONS
    assert "uid-1999" in assignment.read_corrections(text)
    assert assignment.read_corrections("[" * 100_000) == {}
