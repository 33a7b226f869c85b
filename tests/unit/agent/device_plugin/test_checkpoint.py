"""kubelet's checkpoint, and the ids that a plugin lists because of it."""

import json
from pathlib import Path

from accelshare.agent.device_plugin import checkpoint
from accelshare.agent.device_plugin.device_ids import card_of, current, unit_ids

MEMORY = "aliyun.com/gpu-mem"


def entry(uid: str, resource: str, *ids: str, container: str = "c0") -> dict[str, object]:
    """As kubelet 1.36 writes it: ids by NUMA node, -1 for none."""
    return {"PodUID": uid, "ContainerName": container, "ResourceName": resource, "DeviceIDs": {"-1": list(ids)}, "AllocResp": ""}


def remember(directory: Path, *entries: dict[str, object]) -> None:
    data = {"PodDeviceEntries": list(entries) or None, "RegisteredDevices": {MEMORY: ["0-0"]}}
    (directory / checkpoint.FILE).write_text(json.dumps({"Data": data, "Checksum": 1}))


def test_the_ids_of_each_pod_by_resource(tmp_path: Path) -> None:
    npu = entry("b", "streamcomputing.com/npu", "0")
    remember(tmp_path, entry("a", MEMORY, "0-0"), entry("a", MEMORY, "0-1", container="c1"), npu)
    assert {(one.uid, one.container, one.resource, *one.ids) for one in checkpoint.allocations(tmp_path)} == {
        ("a", "c0", MEMORY, "0-0"),
        ("a", "c1", MEMORY, "0-1"),
        ("b", "c0", "streamcomputing.com/npu", "0"),
    }
    assert checkpoint.registered(tmp_path) == {MEMORY: {"0-0"}}


def test_a_missing_empty_or_unreadable_file_has_no_allocations(tmp_path: Path) -> None:
    assert checkpoint.allocations(tmp_path) == []
    remember(tmp_path)
    assert checkpoint.allocations(tmp_path) == []
    for content in ("", "{", "[]", '{"Data": {"PodDeviceEntries": [{"PodUID": "a"}]}}', '{"Data": {"PodDeviceEntries": [7]}}'):
        (tmp_path / checkpoint.FILE).write_text(content)
        assert checkpoint.allocations(tmp_path) == []


def test_a_card_has_its_usual_ids_without_ended_pods() -> None:
    assert current(1, unit_ids(1, 4), held=[], stale=()) == ["1-0", "1-1", "1-2", "1-3"]
    assert sorted(current(1, unit_ids(1, 4), held=["1-2"], stale=())) == ["1-0", "1-1", "1-2", "1-3"]


def test_ids_that_kubelet_keeps_for_ended_pods_are_replaced_by_new_ones_of_the_card() -> None:
    shown = current(1, unit_ids(1, 4), held=["1-3"], stale={"1-0", "1-1", "2-0"})
    assert shown == ["1-3", "1-2", "1-4", "1-5"]
    assert {card_of(name) for name in shown} == {1}
    assert current(7, ["7"], held=[], stale={"7"}) == ["7-1"]
    assert current(7, ["7"], held=["7-1"], stale={"7"}) == ["7-1"]


def test_ids_that_living_pods_hold_stay_listed() -> None:
    """A container that restarts needs its ids among the healthy ones."""
    assert current(1, unit_ids(1, 4), held=["1-4", "1-5"], stale=()) == ["1-4", "1-5", "1-0", "1-1"]
    assert len(current(1, unit_ids(1, 2), held=["1-4", "1-5", "1-6"], stale=())) == 2
