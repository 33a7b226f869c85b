"""The fake API server's store, beyond the contract suite: bounded history, slow watchers, immutable versions."""

from datetime import UTC, datetime

import pytest

from accelshare.testing.api_server import Store
from accelshare.testing.api_server.errors import Object, RequestError


def config_map(name: str, **data: str) -> Object:
    return {"metadata": {"name": name}, "data": data}


def pod(name: str) -> Object:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}


def test_the_history_is_bounded() -> None:
    """Only a limited number of changes is kept; a watch from an older version gets Gone."""
    store = Store(keep_changes=10)
    before = store.revision
    for number in range(100):
        store.create("configmaps", config_map(f"c{number}"))
    collection = store._collections["configmaps"]
    assert len(collection._changes) < 20
    with pytest.raises(RequestError, match="too old resource version") as gone:
        store.watch("configmaps", revision=before).take()
    assert (gone.value.code, gone.value.reason) == (410, "Expired")
    assert [
        event.version.object["metadata"]["name"] for event in store.watch("configmaps", revision=store.revision - 3).take()
    ] == [
        "c97",
        "c98",
        "c99",
    ]


def test_a_kind_without_changes_keeps_its_history() -> None:
    """Many changes of one kind do not remove the history of others."""
    store = Store(keep_changes=10)
    made = store.create("pods", pod("a"))
    for number in range(100):
        store.create("configmaps", config_map(f"c{number}"))
    assert store.watch("pods", revision=made.revision).take() == []


def test_a_watcher_that_does_not_read_delays_no_other() -> None:
    """It has a position in the history, not a queue; when that position is dropped, it must list again."""
    store = Store(keep_changes=10)
    slow = store.watch("configmaps", revision=store.revision)
    quick = store.watch("configmaps", revision=store.revision)
    seen = []
    for number in range(100):
        store.create("configmaps", config_map(f"c{number}"))
        seen += [event.version.object["metadata"]["name"] for event in quick.take()]
    assert seen == [f"c{number}" for number in range(100)]
    with pytest.raises(RequestError, match="too old resource version"):
        slow.take()


def test_a_watcher_is_notified_only_while_it_is_open() -> None:
    store = Store()
    woken: list[str] = []
    watch = store.watch("configmaps")
    watch.on_change(lambda: woken.append("now"))
    store.create("configmaps", config_map("a"))
    store.create("pods", pod("a"))
    watch.close()
    watch.close()
    store.create("configmaps", config_map("b"))
    assert woken == ["now"]


def test_many_changes_are_read_in_portions() -> None:
    store = Store()
    watch = store.watch("configmaps", revision=store.revision)
    for number in range(25):
        store.create("configmaps", config_map(f"c{number}"))
    assert [len(watch.take(10)) for _ in range(4)] == [10, 10, 5, 0]


def test_a_stored_version_is_immutable() -> None:
    """Later writes do not change returned objects, nor objects that were passed in."""
    store = Store()
    body = pod("a")
    first = store.create("pods", body)
    original = first.json
    assert body == pod("a")
    body["spec"]["containers"][0]["image"] = "changed"
    store.bind("a", {"metadata": {"name": "a", "annotations": {"example.com/x": "1"}}, "target": {"name": "n1"}})
    for kind in ("merge-patch", "strategic-merge-patch"):
        change = {"metadata": {"labels": {"by": kind}}, "spec": {"containers": first.object["spec"]["containers"]}}
        store.patch("pods", "a", change, content_type=f"application/{kind}+json")
    store.patch("pods", "a", {"status": {"phase": "Running"}}, subresource="status")
    store.delete("pods", "a")
    assert first.json == original
    assert "nodeName" not in first.object["spec"]
    assert first.object["status"] == {"phase": "Pending"}


def test_deleting_a_namespace_deletes_its_objects() -> None:
    """The fake server needs no controller to delete a namespace."""
    store = Store()
    store.create("namespaces", {"metadata": {"name": "ml"}})
    store.create("pods", pod("a"), namespace="ml")
    watch = store.watch("pods", namespace="ml", revision=store.revision)
    store.delete("namespaces", "ml")
    assert [event.type for event in watch.take()] == ["DELETED"]
    with pytest.raises(RequestError, match='namespaces "ml" not found'):
        store.create("pods", pod("b"), namespace="ml")


def test_time_and_randomness_are_arguments() -> None:
    def created(seed: int) -> bytes:
        store = Store(now=lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), seed=seed)
        return store.create("configmaps", {"metadata": {"generateName": "a-"}}).json

    assert b"2026-01-02T03:04:05Z" in created(1)
    assert created(1) == created(1)
    assert created(1) != created(2)
