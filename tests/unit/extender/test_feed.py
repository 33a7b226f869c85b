"""The feed: lists and watch events in the ledger, and events on pods whose record was edited."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from accelshare.extender import feed as feed_room
from accelshare.extender.feed import Feed, HistoryWentBackError
from accelshare.extender.metrics import Metrics
from accelshare.kube.client import Client, Page, WatchEvent
from accelshare.kube.config import Cluster
from accelshare.kube.errors import Expired
from accelshare.kube.events import Events
from accelshare.ledger.facts import PodSeen
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.nouns import Ask, Assignment, Slice
from accelshare.testing.api_server import FakeApiServer
from accelshare.vendors.catalog import load
from accelshare.wire import assignment
from accelshare.wire.pods import AGENT_LABEL, PodReader
from accelshare.wire.scheduling import SchedulingNode, SchedulingPod
from tests.builders import pending, share

CATALOG = load(())
PROFILE = CATALOG.profiles[0]
LIMIT_S = 60.0
POD_SPEC = {"containers": [{"name": "main", "image": "none", "resources": {"limits": {PROFILE.resources.memory: "4"}}}]}
PLAIN_SPEC = {"containers": [{"name": "main", "image": "none"}]}


class Scene:
    def __init__(self, server: FakeApiServer, client: Client, plan: Any = None) -> None:
        self.server = server
        self.ledger = Ledger()
        self.freed_nodes: list[str] = []
        self.metrics = Metrics()
        events = Events(client, component="test", clock=lambda: 0.0)
        reader = PodReader(CATALOG)
        self.feed = Feed(
            client,
            self.ledger,
            CATALOG,
            reader,
            events,
            self.metrics,
            text=str,
            on_free_capacity=self.freed_nodes.append,
            plan=plan,
        )

    def create_pod(self, name: str, spec: dict[str, Any] = POD_SPEC, **metadata: Any) -> str:
        made = self.server.store.create("pods", {"metadata": {"name": name, **metadata}, "spec": spec}, namespace="default")
        return str(json.loads(made.item)["metadata"]["uid"])

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not condition():
                await asyncio.sleep(0.01)

    async def list_again(self) -> None:
        """The watch ends, and its version is too old to resume from."""
        self.create_pod("before")
        too_old = self.server.faults.answer(410, method="GET", path=r"/pods\?.*watch=")
        self.server.end_watches()
        await self.until(lambda: too_old.hits)
        after = self.create_pod("after")
        await self.until(lambda: self.ledger.pod(after))


@asynccontextmanager
async def fed(plan: Any = None, *, before: Callable[[FakeApiServer], object] = lambda _: None) -> AsyncIterator[Scene]:
    async with FakeApiServer() as server, Client(Cluster(server.url), user_agent="test") as client:
        before(server)
        scene = Scene(server, client, plan)
        following = asyncio.create_task(scene.feed.run())
        try:
            await scene.until(scene.feed.complete.is_set)
            yield scene
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
    assert scene.ledger.check() == []


def read_by_a_bind(*, version: int) -> PodSeen:
    """A bound pod that the watch has not shown."""
    slices = (Slice(PROFILE.name, 0, 4),)
    return PodSeen("ghost", "default", "ghost", (Ask(PROFILE.name, share=4),), version, node="n1", slices=slices)


async def test_a_pod_deleted_before_the_watch_showed_it_frees_its_cards() -> None:
    async with fed() as scene:
        scene.ledger.apply(read_by_a_bind(version=1))
        await scene.list_again()
        await scene.until(lambda: scene.ledger.pod("ghost") is None)
        assert scene.freed_nodes == ["n1"]


async def test_a_pod_that_is_newer_than_the_list_stays() -> None:
    """The pod is newer than the list; the watch will show it."""
    async with fed() as scene:
        scene.ledger.apply(read_by_a_bind(version=10**9))
        await scene.list_again()
        last = scene.create_pod("last")
        await scene.until(lambda: scene.ledger.pod(last))
        assert scene.ledger.pod("ghost") is not None


class RecordedPlan:
    """What the feed tells the plan."""

    def __init__(self) -> None:
        self.pods: dict[str, SchedulingPod] = {}
        self.listed: set[str] = set()
        self.nodes: dict[str, SchedulingNode] = {}

    def pod_seen(self, pod: SchedulingPod, *, listed: bool) -> None:
        self.pods[pod.name] = pod
        if listed:
            self.listed.add(pod.name)

    def pod_gone(self, uid: str) -> None:
        self.pods = {name: pod for name, pod in self.pods.items() if pod.uid != uid}

    def node_seen(self, node: SchedulingNode) -> None:
        self.nodes[node.name] = node

    def node_gone(self, name: str) -> None:
        self.nodes.pop(name, None)


async def test_one_watch_keeps_the_plan_current_too() -> None:
    """Pods without cards take CPU and memory, which the ledger does not count."""
    plan = RecordedPlan()
    early = {"metadata": {"name": "early"}, "spec": POD_SPEC}
    async with fed(plan, before=lambda server: server.store.create("pods", early, namespace="default")) as scene:
        store = scene.server.store
        plain = {"nodeName": "n1", "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "2"}}}]}
        uid = scene.create_pod("late")
        scene.create_pod("plain", plain)
        store.create("nodes", {"metadata": {"name": "n1"}, "spec": {"unschedulable": True}})
        await scene.until(lambda: {*plan.pods} == {"early", "late", "plain"} and "n1" in plan.nodes)
        assert plan.listed == {"early"}
        assert plan.pods["plain"].needs == (("cpu", 2000),)
        assert plan.pods["late"].needs == ((PROFILE.resources.memory, 4000),)
        assert plan.nodes["n1"].unschedulable
        assert sorted(pod.seen.name for pod in scene.ledger.pods()) == ["early", "late"]
        store.patch("pods", "plain", {"status": {"phase": "Succeeded"}}, namespace="default", subresource="status")
        store.delete("pods", "late", namespace="default")
        store.delete("nodes", "n1")
        await scene.until(lambda: {*plan.pods} == {"early"} and not plan.nodes)
        await scene.until(lambda: scene.ledger.pod(uid) is None)


async def test_what_the_plan_cannot_read_reaches_the_ledger() -> None:
    plan = RecordedPlan()
    async with fed(plan) as scene:
        odd = scene.create_pod("odd", {**POD_SPEC, "tolerations": [1]})
        scene.create_pod("odd-plain", {**PLAIN_SPEC, "tolerations": [1]})
        scene.server.store.create("nodes", {"metadata": {"name": "n1"}, "spec": {"taints": [1]}})
        after = scene.create_pod("after")
        await scene.until(lambda: scene.ledger.pod(after) and scene.ledger.node("n1"))
        assert scene.ledger.pod(odd) is not None
        assert {*plan.pods} == {"after"}
        assert plan.nodes == {}


async def test_with_a_plan_deleted_pods_without_cards_leave_nothing_in_the_ledger() -> None:
    plan = RecordedPlan()
    async with fed(plan) as scene:
        uid = scene.create_pod("plain", PLAIN_SPEC)
        await scene.until(lambda: plan.pods)
        scene.server.store.delete("pods", "plain", namespace="default")
        await scene.until(lambda: not plan.pods)
        scene.ledger.apply(replace(pending("late", share(4)), uid=uid))
        assert scene.ledger.knows(uid), "the ledger remembers the uid of each pod that has ended, up to a number"


async def test_pods_that_a_later_list_shows_are_listed_too() -> None:
    """Such a list has them in the order of their names."""
    plan = RecordedPlan()
    async with fed(plan) as scene:
        scene.create_pod("watched")
        await scene.until(lambda: "watched" in plan.pods)
        expired = scene.server.faults.answer(410, method="GET", path=r"/pods\?.*watch=")
        scene.server.faults.delay(0.5, method="GET", path=r"/pods\?(?!.*watch)")
        scene.server.end_watches()
        await scene.until(lambda: expired.hits)
        scene.create_pod("meanwhile")
        await scene.until(lambda: "meanwhile" in plan.pods)
        assert "watched" in plan.listed
        assert "meanwhile" in plan.listed


async def test_with_a_plan_an_agent_that_loses_its_label_is_none_any_more() -> None:
    async with fed(RecordedPlan()) as scene:
        uid = scene.create_pod("agent", {**PLAIN_SPEC, "nodeName": "n1"}, labels={AGENT_LABEL: "true"})
        await scene.until(lambda: scene.ledger.knows(uid))
        scene.server.store.patch("pods", "agent", {"metadata": {"labels": {AGENT_LABEL: None}}}, namespace="default")
        await scene.until(lambda: not scene.ledger.knows(uid))


class Restored:
    """An API server whose version rises to 5000 after its first list of pods and then falls to 3000."""

    def __init__(self) -> None:
        self._pods_at = iter([1000, *[3000] * 100])

    async def pages(self, path: str, **_options: object) -> AsyncIterator[Page]:
        yield Page([], str(next(self._pods_at)) if path == "/api/v1/pods" else "1000")

    async def watch(self, path: str, **_options: object) -> AsyncIterator[WatchEvent]:
        if path != "/api/v1/pods":
            await asyncio.Event().wait()
        metadata = {"name": "a", "namespace": "default", "uid": "a", "resourceVersion": "5000"}
        yield WatchEvent("ADDED", msgspec.Raw(json.dumps({"metadata": metadata, "spec": POD_SPEC}).encode()))
        raise Expired(410, "Expired", "too old")


async def test_a_list_older_than_a_watch_event_ends_the_feed() -> None:
    """The list is newer than the first one, but older than a pod in the ledger."""
    client: Any = Restored()
    nobody: Any = None
    feed = Feed(client, Ledger(), CATALOG, PodReader(CATALOG), nobody, Metrics(), text=str, on_free_capacity=lambda _: None)
    with pytest.raises(HistoryWentBackError, match="version 3000, and before that was at 5000"):
        async with asyncio.timeout(LIMIT_S):
            await feed.run()


# Records that their pods' owners edit.


def bound_pod(scene: Scene, name: str, card: int) -> str:
    record = {"accelshare.io/assignment": json.dumps({PROFILE.name: [{"index": card}]})}
    content = {"metadata": {"name": name, "annotations": record}, "spec": {**POD_SPEC, "nodeName": "n1"}}
    return str(json.loads(scene.server.store.create("pods", content, namespace="default").item)["metadata"]["uid"])


def edit(scene: Scene, name: str, card: int | None) -> None:
    record = json.dumps({PROFILE.name: [{"index": card}]}) if card is not None else None
    scene.server.store.patch(
        "pods", name, {"metadata": {"annotations": {"accelshare.io/assignment": record}}}, namespace="default"
    )


def two_cards(scene: Scene, **corrected: int) -> None:
    records = {uid: json.dumps({PROFILE.name: [{"index": card}]}) for uid, card in corrected.items()}
    annotations = {
        "accelshare.io/inventory": json.dumps({PROFILE.name: {"cards": [{"index": 0, "size": 16}, {"index": 1, "size": 16}]}}),
        "accelshare.io/corrected-assignments": json.dumps(records),
    }
    if any(node.name == "n1" for node in scene.ledger.nodes() if node.fact):
        scene.server.store.patch("nodes", "n1", {"metadata": {"annotations": annotations}})
    else:
        scene.server.store.create("nodes", {"metadata": {"name": "n1", "annotations": annotations}})


def reasons(scene: Scene) -> list[str]:
    return [version.object["reason"] for version in scene.server.store.list("events", namespace="default").versions]


def rewrites(scene: Scene) -> int:
    (line,) = [line for line in scene.metrics.text().decode().splitlines() if line.startswith("accelshare_record_rewrites_total")]
    return int(float(line.split()[-1]))


@pytest.mark.parametrize("card", [1, None], ids=["another card", "removed"])
async def test_an_edited_record_moves_no_pod_and_is_reported_once(card: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_room, "CORRECTION_S", 0.01)
    async with fed() as scene:
        two_cards(scene)
        uid = bound_pod(scene, "a", 0)
        await scene.until(lambda: scene.ledger.pod(uid) and scene.ledger.node("n1"))
        edit(scene, "a", card)
        await scene.until(lambda: "AcceleratorRecordRewritten" in reasons(scene))
        pod = scene.ledger.pod(uid)
        assert pod is not None
        assert [slice_.index for slice_ in pod.seen.slices] == [0]
        assert rewrites(scene) == 1


async def test_a_record_that_its_node_corrects_is_no_rewrite(monkeypatch: pytest.MonkeyPatch) -> None:
    """In either order of the two watches."""
    monkeypatch.setattr(feed_room, "CORRECTION_S", 0.5)
    async with fed() as scene:
        two_cards(scene)
        uid = bound_pod(scene, "a", 0)
        await scene.until(lambda: scene.ledger.pod(uid) and scene.ledger.node("n1"))
        edit(scene, "a", 1)
        await scene.until(lambda: scene.feed._suspect_records)
        two_cards(scene, **{uid: 1})
        await scene.until(lambda: not scene.feed._suspect_records)
        pod = scene.ledger.pod(uid)
        assert pod is not None
        assert [slice_.index for slice_ in pod.seen.slices] == [1]
        assert (rewrites(scene), reasons(scene)) == (0, [])


async def test_what_is_wrong_with_a_node_is_logged_once_and_again_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    async with fed() as scene:
        bad = {"accelshare.io/inventory": json.dumps({PROFILE.name: {"cards": [{"index": -1, "size": 1}] * 3_000}})}
        scene.server.store.create("nodes", {"metadata": {"name": "n1", "annotations": bad}})
        await scene.until(lambda: "name=n1" in caplog.text)
        for number in range(5):
            scene.server.store.patch("nodes", "n1", {"metadata": {"labels": {"n": str(number)}}})
        scene.server.store.patch("nodes", "n1", {"metadata": {"annotations": {"accelshare.io/inventory": "{"}}})
        await scene.until(lambda: caplog.text.count("name=n1") == 2)
        lines = [record.getMessage() for record in caplog.records if "name=n1" in record.getMessage()]
        assert max(map(len, lines)) < 1_200


async def test_the_echo_of_a_bind_is_no_rewritten_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole cards are chosen first and decoded last; the order of cards does not matter."""
    monkeypatch.setattr(feed_room, "CORRECTION_S", 0.0)
    async with fed() as scene:
        two_cards(scene)
        spec = {
            "containers": [
                {"name": "slice", "image": "none", "resources": {"limits": {PROFILE.resources.memory: "4"}}},
                {"name": "whole", "image": "none", "resources": {"limits": {PROFILE.resources.whole: "1"}}},
            ]
        }
        made = scene.server.store.create("pods", {"metadata": {"name": "a"}, "spec": spec}, namespace="default")
        uid = str(json.loads(made.item)["metadata"]["uid"])
        await scene.until(lambda: scene.ledger.pod(uid) and scene.ledger.node("n1"))
        pod = scene.ledger.pod(uid)
        assert pod is not None
        offer = scene.ledger.offer("n1", pod.seen.request)
        assert isinstance(offer, Assignment)
        scene.ledger.hold(uid, offer)
        record = {"accelshare.io/assignment": assignment.text(offer.slices)}
        scene.server.store.bind("a", {"metadata": {"name": "a", "annotations": record}, "target": {"name": "n1"}})
        await scene.until(lambda: pod.seen.node)
        assert not pod.rewritten
        marker = scene.create_pod("later")
        await scene.until(lambda: scene.ledger.pod(marker))
        assert rewrites(scene) == 0
        assert reasons(scene) == []


async def test_what_a_node_had_corrected_before_is_no_rewritten_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent without the right to patch pods corrects on its Node only: a new extender has seen no change of that pod."""
    monkeypatch.setattr(feed_room, "CORRECTION_S", 0.0)
    async with fed() as scene:
        uid = bound_pod(scene, "a", 0)
        two_cards(scene, **{uid: 1})
        await scene.until(lambda: (pod := scene.ledger.pod(uid)) and [card.index for card in pod.seen.slices] == [1])
        book = scene.ledger.node("n1")
        assert book is not None
        assert book.fact is not None
        async with Client(Cluster(scene.server.url), user_agent="test") as client:
            started = Scene(scene.server, client)
            started.ledger.apply(book.fact)
            following = asyncio.create_task(started.feed.run())
            await started.until(lambda: started.ledger.pod(uid) and started.feed.complete.is_set())
            marker = scene.create_pod("later")
            await started.until(lambda: started.ledger.pod(marker))
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            assert started.ledger.pod(uid).rewritten  # type: ignore[union-attr]
            assert rewrites(started) == 0
