"""The resizer: each requested resize is granted or refused once, one at a time, and a lost answer oversells nothing."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from accelshare.extender import resizer as resizer_module
from accelshare.extender.feed import Feed
from accelshare.extender.fence import Fence
from accelshare.extender.metrics import Metrics
from accelshare.extender.resizer import Resizer
from accelshare.kube.client import Client
from accelshare.kube.config import Cluster
from accelshare.kube.errors import Conflict
from accelshare.kube.events import Events
from accelshare.kube.patches import grant_resize
from accelshare.ledger.facts import PodSeen
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.nouns import Resize, Slice
from accelshare.testing.api_server import FakeApiServer
from accelshare.vendors.catalog import load
from accelshare.wire import assignment, resizing
from accelshare.wire.pods import PodReader

CATALOG = load(())
LIMIT_S = 60.0
MEMORY = "aliyun.com/gpu-mem"
SIZE = 16
STATUS_PATCH = r"/pods/[^/]+/status$"


class Scene:
    """An extender's feed and resizer over a fake API server with one node and one card."""

    def __init__(self, server: FakeApiServer, client: Client, *, enabled: bool) -> None:
        self.server = server
        self.client = client
        self.enabled = enabled
        self.metrics = Metrics()
        self.ledger = Ledger()
        self.lease = True
        self.freed: list[str] = []
        self.feed, self.resizer, self.fence = self._parts()

    def _parts(self) -> tuple[Feed, Resizer, Fence]:
        events = Events(self.client, component="test", clock=lambda: 0.0)
        reader = PodReader(CATALOG)

        def freed(node: str) -> None:
            self.freed.append(node)
            resizer.capacity_freed(node)

        resizer = Resizer(
            *(self.client, self.ledger, CATALOG, events, self.metrics),
            enabled=self.enabled,
            on_free_capacity=freed,
            may_write=lambda: self.lease,
        )
        feed = Feed(
            self.client, self.ledger, CATALOG, reader, events, self.metrics, text=str, on_free_capacity=freed, resizer=resizer
        )
        return feed, resizer, Fence(self.client, self.ledger, reader, on_free_capacity=freed, resizes=self.enabled)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        following = asyncio.create_task(self.feed.run())
        try:
            await self.until(self.feed.complete.is_set)
            await self.fence.fence_pending()
            self.resizer.start()
            yield
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await self.resizer.stop()
        assert self.ledger.check() == []

    def restart(self) -> None:
        self.ledger = Ledger()
        self.feed, self.resizer, self.fence = self._parts()

    def node(self, *, way: str = "nvml", delivery: str = "nri", **applied: tuple[int, int]) -> None:
        """The node's card and, by pod name, what its agent has answered: units and number."""
        card = {"index": 0, "id": "GPU-0", "size": SIZE, "enforced_by": way, "min_units": 2}
        answers = {self.uid(name): {"units": units, "n": number} for name, (units, number) in applied.items()}
        inventory = {"nvidia": {"unit": "GiB", "delivery": delivery, "cards": [card]}}
        annotations = {"accelshare.io/inventory": json.dumps(inventory), resizing.APPLIED: json.dumps(answers)}
        if not self.server.store.list("nodes").versions:
            self.server.store.create("nodes", {"metadata": {"name": "n1"}, "status": {}})
        self.server.store.patch("nodes", "n1", {"metadata": {"annotations": annotations}})

    def pod(self, name: str, units: int, *, resize: str | None = None, more: dict[str, Any] | None = None) -> None:
        """A pod that runs with this slice of the card."""
        spec = {"containers": [{"name": "main", "image": "none", "resources": {"limits": {MEMORY: str(units)}}}], **(more or {})}
        annotations = {} if resize is None else {resizing.RESIZE: resize}
        self.server.store.create(
            "pods", {"metadata": {"name": name, "annotations": annotations}, "spec": spec}, namespace="default"
        )
        record = {assignment.OURS: assignment.text((Slice("nvidia", 0, units, id="GPU-0"),))}
        self.server.store.bind(name, {"metadata": {"name": name, "annotations": record}, "target": {"name": "n1"}})
        status = {"status": {"phase": "Running", "startTime": "2026-11-17T00:00:00Z"}}
        self.server.store.patch("pods", name, status, subresource="status")

    def resize(self, name: str, text: str | None) -> None:
        self.server.store.patch("pods", name, {"metadata": {"annotations": {resizing.RESIZE: text}}})

    def uid(self, name: str) -> str:
        return str(self.server.store.get("pods", name).object["metadata"]["uid"])

    def granted(self, name: str) -> Resize | None:
        return resizing.granted(self.server.store.get("pods", name).object["metadata"]["annotations"].get(resizing.GRANTED))

    def counted(self, name: str) -> int:
        pod = self.ledger.pod(self.uid(name))
        return pod.seen.request[0].share if pod is not None else 0

    def events(self, name: str) -> list[tuple[str, str]]:
        found = [event.object for event in self.server.store.list("events").versions]
        return [(event["reason"], event["message"]) for event in found if event["involvedObject"]["name"] == name]

    def outcomes(self) -> dict[str, int]:
        lines = [line for line in self.metrics.text().decode().splitlines() if line.startswith("accelshare_resizes_total{")]
        pairs = [(line.split('"')[1], int(float(line.split()[-1]))) for line in lines]
        return {outcome: count for outcome, count in pairs if count}

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not condition():
                await asyncio.sleep(0.01)


@asynccontextmanager
async def cluster(*, enabled: bool = True) -> AsyncIterator[Scene]:
    async with FakeApiServer() as server, Client(Cluster(server.url), user_agent="test") as client:
        scene = Scene(server, client, enabled=enabled)
        scene.node()
        yield scene


async def test_growth_is_granted_and_counted_and_the_next_resize_waits_for_the_node() -> None:
    async with cluster() as scene, scene.running():
        scene.pod("a", 4)
        scene.resize("a", "12")
        await scene.until(lambda: scene.granted("a") == Resize(12, 1))
        await scene.until(lambda: scene.counted("a") == 12)
        await scene.until(lambda: scene.events("a"))
        ((reason, message),) = scene.events("a")
        assert reason == "ResizeGranted"
        assert all(fact in message for fact in ("12", "4", MEMORY, "n1"))
        scene.resize("a", "2")
        scene.pod("b", 2)
        await scene.until(lambda: scene.counted("b") == 2)
        assert scene.granted("a") == Resize(12, 1), "its node has not reported the first resize"
        scene.node(a=(12, 1))
        await scene.until(lambda: scene.granted("a") == Resize(2, 2))
        assert scene.counted("a") == 12, "a shrink frees nothing yet"
        scene.node(a=(2, 2))
        await scene.until(lambda: scene.counted("a") == 2)
        assert scene.outcomes() == {"granted": 2}


@pytest.mark.parametrize(
    ("text", "reason", "fact"),
    [
        ("lots", "unreadable", "whole number"),
        ("", "unreadable", "whole number"),
        ("0", "unreadable", "whole number"),
        ("-3", "unreadable", "whole number"),
        ("99999999999999999999", "unreadable", "whole number"),
        ("17", "larger-than-card", "16"),
        ("1", "below-minimum", "2"),
        ("11", "no-room", "10"),
    ],
)
async def test_a_refusal_is_an_event_with_the_numbers_once_for_each_text(text: str, reason: str, fact: str) -> None:
    async with cluster() as scene, scene.running():
        scene.pod("a", 4)
        scene.pod("other", 6)
        scene.resize("a", text)
        await scene.until(lambda: scene.events("a"))
        for _ in range(3):  # kubelet writes the status again and again
            scene.server.store.patch("pods", "a", {"status": {"message": "again"}}, subresource="status")
            scene.server.store.patch("pods", "a", {"status": {"message": None}}, subresource="status")
        scene.pod("last", 2)
        await scene.until(lambda: scene.counted("last") == 2)
        ((name, message),) = scene.events("a")
        assert name == "ResizeRefused"
        assert fact in message
        assert repr(text) in message
        assert scene.outcomes() == {reason: 1}
        assert scene.granted("a") is None
        assert scene.counted("a") == 4


@pytest.mark.parametrize(("way", "delivery"), [("toolkit", "nri"), ("nobody", "nri"), ("nvml", "device-plugin")])
async def test_a_limit_that_cannot_be_changed_is_named(way: str, delivery: str) -> None:
    async with cluster() as scene:
        scene.node(way=way, delivery=delivery)
        async with scene.running():
            scene.pod("a", 4, resize="8")
            await scene.until(lambda: scene.outcomes() == {"limit-fixed": 1})
            await scene.until(lambda: "kernel" in scene.events("a")[0][1] if scene.events("a") else False)
            assert scene.granted("a") is None


async def test_a_node_whose_agent_does_not_resize_is_named_and_asked_again_when_it_does() -> None:
    async with cluster() as scene:
        scene.server.store.patch("nodes", "n1", {"metadata": {"annotations": {resizing.APPLIED: None}}})
        async with scene.running():
            scene.pod("a", 4, resize="8")
            await scene.until(lambda: scene.outcomes() == {"limit-fixed": 1})
            await scene.until(lambda: "--resize" in scene.events("a")[0][1] if scene.events("a") else False)
            scene.node()
            await scene.until(lambda: scene.granted("a") == Resize(8, 1))


async def test_a_pod_with_more_than_one_slice_is_refused() -> None:
    async with cluster() as scene, scene.running():
        second = {"initContainers": [{"name": "first", "image": "none", "resources": {"limits": {MEMORY: "1"}}}]}
        scene.pod("a", 4, resize="8", more=second)
        await scene.until(lambda: scene.outcomes() == {"not-one-slice": 1})


async def test_without_the_policy_resizing_is_off_and_says_so() -> None:
    async with cluster(enabled=False) as scene, scene.running():
        scene.pod("a", 4, resize="8")
        await scene.until(lambda: scene.outcomes() == {"off": 1})
        await scene.until(lambda: scene.events("a"))
        assert "admission policy" in scene.events("a")[0][1]
        forged = {"metadata": {"annotations": {resizing.GRANTED: resizing.granted_text(Resize(1, 1))}}}
        scene.server.store.patch("pods", "a", forged)
        scene.pod("last", 2)
        await scene.until(lambda: scene.counted("last") == 2)
        assert scene.counted("a") == 4, "a grant that anybody can write counts nothing"


def quota(scene: Scene, namespace: str = "default", key: str = f"requests.{MEMORY}") -> None:
    status = {"hard": {key: "64", "pods": "10"}, "used": {key: "4", "pods": "1"}}
    scene.server.store.create("resourcequotas", {"metadata": {"name": "cards"}, "status": status}, namespace=namespace)


async def test_no_slice_grows_beyond_its_request_where_a_quota_counts_requests() -> None:
    """The API server would not count it: whoever may write an annotation could hold more than the namespace's quota."""
    async with cluster() as scene:
        scene.pod("a", 4)
        quota(scene)
        async with scene.running():
            scene.resize("a", "8")
            await scene.until(lambda: scene.outcomes() == {"quota": 1})
            assert (scene.granted("a"), scene.counted("a")) == (None, 4)
            await scene.until(lambda: len(scene.events("a")) == 1)
            ((reason, message),) = scene.events("a")
            assert reason == "ResizeRefused"
            assert all(fact in message for fact in ("cards", MEMORY, "4 at most"))
            scene.resize("a", "2")
            await scene.until(lambda: scene.granted("a") == Resize(2, 1))
            scene.node(a=(2, 1))
            scene.resize("a", "4")
            await scene.until(lambda: scene.granted("a") == Resize(4, 2))


async def test_quotas_of_other_namespaces_and_resources_do_not_matter() -> None:
    async with cluster() as scene:
        scene.pod("a", 4)
        scene.server.store.create("namespaces", {"metadata": {"name": "other"}})
        quota(scene, "other")
        quota(scene, key="requests.example.com/other")
        async with scene.running():
            scene.resize("a", "8")
            await scene.until(lambda: scene.granted("a") == Resize(8, 1))


async def test_who_may_not_read_quotas_grants_no_growth() -> None:
    async with cluster() as scene:
        scene.pod("a", 4)
        scene.server.faults.answer(403, path="/resourcequotas", times=10)
        async with scene.running():
            scene.resize("a", "8")
            await scene.until(lambda: scene.outcomes() == {"not-written": 1})
            assert (scene.granted("a"), scene.counted("a")) == (None, 4)


async def test_a_refusal_for_lack_of_room_is_decided_again_when_something_ends() -> None:
    async with cluster() as scene, scene.running():
        scene.pod("a", 4)
        scene.pod("other", 10)
        scene.resize("a", "12")
        await scene.until(lambda: scene.outcomes() == {"no-room": 1})
        scene.server.store.delete("pods", "other", options={"gracePeriodSeconds": 0})
        await scene.until(lambda: scene.granted("a") == Resize(12, 1))
        await scene.until(lambda: scene.outcomes() == {"no-room": 1, "granted": 1})


async def test_a_pod_that_changed_meanwhile_is_decided_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster() as scene, scene.running():
        scene.pod("a", 4)
        await scene.until(lambda: scene.counted("a") == 4)
        real = grant_resize
        conflicts = 0

        async def kubelet_is_faster(*arguments: Any, **named: Any) -> None:
            nonlocal conflicts
            if not conflicts:
                conflicts += 1
                scene.server.store.patch("pods", "a", {"status": {"message": "again"}}, subresource="status")
            await real(*arguments, **named)

        monkeypatch.setattr(resizer_module, "grant_resize", kubelet_is_faster)
        scene.resize("a", "12")
        await scene.until(lambda: scene.granted("a") == Resize(12, 1))
        assert conflicts == 1


async def test_nothing_is_left_of_pods_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One waits for its node, one was refused, and one is deleted while its grant is being written."""
    async with cluster() as scene, scene.running():
        real, resizer = grant_resize, scene.resizer

        def delete(name: str) -> None:
            scene.server.store.delete("pods", name, options={"gracePeriodSeconds": 0})

        async def written_and_then_deleted(*arguments: Any, **named: Any) -> None:
            await real(*arguments, **named)
            delete("granted")
            await scene.until(lambda: scene.ledger.pod(named["uid"]) is None)

        scene.pod("waits", 4, resize="3")
        await scene.until(lambda: scene.granted("waits") == Resize(3, 1))
        scene.resize("waits", "2")
        await scene.until(lambda: resizer._waiting)
        scene.pod("refused", 4, resize="14")
        await scene.until(lambda: resizer._short)
        monkeypatch.setattr(resizer_module, "grant_resize", written_and_then_deleted)
        scene.pod("granted", 4, resize="5")
        await scene.until(lambda: scene.outcomes().get("granted") == 2)
        delete("waits")
        delete("refused")
        await scene.until(lambda: not list(scene.ledger.pods()))
        await scene.until(resizer.settled)
        assert (resizer._answered, resizer._waiting, resizer._short) == ({}, {}, {})


@pytest.mark.parametrize("carried_out", [True, False])
async def test_a_lost_answer_keeps_the_larger_count_until_the_truth_is_known(
    carried_out: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resizer_module, "RETRY_S", 0.05)
    async with cluster() as scene, scene.running():
        scene.pod("a", 4)
        await scene.until(lambda: scene.counted("a") == 4)
        lose = scene.server.faults.drop_after if carried_out else scene.server.faults.drop_before
        fault = lose(method="PATCH", path=STATUS_PATCH, times=3)
        scene.resize("a", "12")
        await scene.until(lambda: fault.hits)
        await scene.until(lambda: scene.counted("a") == 12)
        await scene.until(lambda: scene.granted("a") == Resize(12, 1))
        scene.node(a=(12, 1))
        scene.resize("a", "3")
        await scene.until(lambda: scene.granted("a") == Resize(3, 2))


async def test_a_grant_that_the_api_server_refuses_frees_its_units() -> None:
    async with cluster() as scene, scene.running():
        scene.pod("a", 4)
        await scene.until(lambda: scene.counted("a") == 4)
        scene.server.faults.answer(403, method="PATCH", path=STATUS_PATCH, times=9)
        scene.resize("a", "12")
        await scene.until(lambda: scene.outcomes() == {"not-written": 1})
        assert scene.counted("a") == 4


async def test_the_same_amount_again_after_the_node_could_not_do_it_needs_a_new_wish() -> None:
    async with cluster() as scene, scene.running():
        scene.pod("a", 8, resize="4")
        await scene.until(lambda: scene.granted("a") == Resize(4, 1))
        scene.node(a=(8, 1))
        scene.pod("marker", 2)
        await scene.until(lambda: scene.counted("marker") == 2)
        assert (scene.granted("a"), scene.counted("a")) == (Resize(4, 1), 8)
        scene.resize("a", None)
        scene.pod("second", 2)
        await scene.until(lambda: scene.counted("second") == 2)
        scene.resize("a", "4")
        await scene.until(lambda: scene.granted("a") == Resize(4, 2))


async def test_a_restart_grants_nothing_twice_and_fences_what_may_be_on_its_way() -> None:
    async with cluster() as scene:
        async with scene.running():
            scene.pod("a", 4, resize="6")
            await scene.until(lambda: scene.granted("a") == Resize(6, 1))
        scene.node(a=(6, 1))
        scene.pod("b", 4)
        scene.resize("b", "5")  # no extender is running
        before = {name: scene.server.store.get("pods", name).object["metadata"]["resourceVersion"] for name in ("a", "b")}
        scene.restart()
        async with scene.running():
            await scene.until(lambda: scene.granted("b") == Resize(5, 1))
            assert scene.counted("a") == 6
            versions = {name: scene.server.store.get("pods", name).object["metadata"]["resourceVersion"] for name in ("a", "b")}
            assert versions["a"] == before["a"], "nothing is written on a pod that has what it wants"
            conditions = scene.server.store.get("pods", "b").object["status"]["conditions"]
            assert "accelshare.io/BindFence" in {condition["type"] for condition in conditions}


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resizer_module, "RETRY_S", 0.05)


@pytest.mark.usefixtures("quick_retries")
async def test_a_grant_on_its_way_when_the_lease_lapsed_is_written_when_it_is_renewed() -> None:
    """The API server was away for longer than the Lease; the pod does not change meanwhile."""
    async with cluster() as scene, scene.running():
        scene.pod("a", 4)
        await scene.until(lambda: scene.counted("a") == 4)
        fault = scene.server.faults.drop_before(method="PATCH", path=STATUS_PATCH, times=1)
        scene.resize("a", "12")
        await scene.until(lambda: fault.hits)
        scene.lease = False
        await asyncio.sleep(4 * resizer_module.RETRY_S)
        assert not scene.resizer.settled(), "it may still arrive"
        assert scene.granted("a") is None
        scene.lease = True
        await scene.until(lambda: scene.granted("a") == Resize(12, 1))


@pytest.mark.usefixtures("quick_retries")
async def test_what_is_seen_while_the_lease_has_lapsed_is_decided_when_it_is_renewed() -> None:
    async with cluster() as scene, scene.running():
        scene.pod("a", 4)
        scene.resize("a", "8")
        await scene.until(lambda: scene.granted("a") == Resize(8, 1))
        scene.resize("a", "2")
        scene.pod("b", 2)
        await scene.until(lambda: scene.counted("b") == 2)
        scene.lease = False
        scene.node(a=(8, 1))
        scene.resize("b", "4")
        await scene.until(lambda: (scene.ledger.pod(scene.uid("b")) or pytest.fail("gone")).seen.resize is not None)
        await asyncio.sleep(4 * resizer_module.RETRY_S)
        assert scene.granted("b") is None
        scene.lease = True
        await scene.until(lambda: scene.granted("a") == Resize(2, 2))
        await scene.until(lambda: scene.granted("b") == Resize(4, 1))


async def test_what_a_refused_growth_gives_back_is_reported_and_tried_by_those_that_were_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pod a is counted with the whole card while its quotas are read; b, for which there is no room then, gets its turn."""
    async with cluster() as scene, scene.running():
        scene.pod("a", 4)
        scene.pod("b", 4)
        await scene.until(lambda: scene.counted("a") == scene.counted("b") == 4)
        reading, go_on = asyncio.Event(), asyncio.Event()

        async def quota_of(seen: PodSeen) -> str:
            if seen.name == "b":
                return ""
            reading.set()
            await go_on.wait()
            return "few"

        monkeypatch.setattr(scene.resizer, "_quota_of", quota_of)
        scene.resize("a", "12")
        await reading.wait()
        scene.resize("b", "8")
        await scene.until(lambda: scene.outcomes() == {"no-room": 1})
        scene.freed.clear()
        go_on.set()
        await scene.until(lambda: scene.granted("b") == Resize(8, 1))
        assert scene.counted("a") == 4
        assert "n1" in scene.freed


async def test_a_late_grant_of_the_same_amount_as_before_is_refused_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node could not set 12, the owner wrote it again, and the extender died while it sent the second grant."""
    late: list[dict[str, Any]] = []

    async def sent(_client: Client, **named: Any) -> None:
        late.append(named)
        await asyncio.Event().wait()

    async with cluster() as scene:
        async with scene.running():
            scene.pod("a", 4, resize="12")
            await scene.until(lambda: scene.granted("a") == Resize(12, 1))
            scene.node(a=(4, 1))
            await scene.until(lambda: scene.counted("a") == 4)
            monkeypatch.setattr(resizer_module, "grant_resize", sent)
            scene.resize("a", None)
            await scene.until(lambda: (scene.ledger.pod(scene.uid("a")) or pytest.fail("gone")).seen.resize is None)
            scene.resize("a", "12")
            await scene.until(lambda: late)
        scene.restart()
        async with scene.running():
            assert scene.counted("a") == 4
            scene.pod("b", 12)
            await scene.until(lambda: scene.counted("b") == 12)
            with pytest.raises(Conflict):
                await grant_resize(scene.client, **late[0])
            assert scene.granted("a") == Resize(12, 1)


async def test_an_amount_that_is_written_again_after_a_restart_is_granted_again() -> None:
    async with cluster() as scene:
        async with scene.running():
            scene.pod("a", 8, resize="4")
            await scene.until(lambda: scene.granted("a") == Resize(4, 1))
            scene.node(a=(8, 1))
            scene.resize("a", None)
            await scene.until(lambda: (scene.ledger.pod(scene.uid("a")) or pytest.fail("gone")).seen.resize is None)
        scene.restart()
        async with scene.running():
            scene.resize("a", "4")
            await scene.until(lambda: scene.granted("a") == Resize(4, 2))
