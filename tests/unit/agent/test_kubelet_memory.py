"""Whom kubelet remembers, and who of them lives."""

import json
from pathlib import Path

import pytest

from accelshare.agent.kubelet_memory import KubeletMemory
from accelshare.ledger.facts import PodSeen
from accelshare.wire.node_pods import NodePod

RESOURCE = "acme.example/zpu-mem"


def pod(uid: str, **annotations: str) -> NodePod:
    return NodePod(PodSeen(uid, "default", f"p-{uid}", request=()), (), annotations, "Running", terminating=False)


def remember(directory: Path, *uids: str) -> None:
    entries = [{"PodUID": uid, "ContainerName": "c", "ResourceName": RESOURCE, "DeviceIDs": {"-1": ["0-0"]}} for uid in uids]
    data = {"PodDeviceEntries": entries, "RegisteredDevices": {}}
    (directory / "kubelet_internal_checkpoint").write_text(json.dumps({"Data": data, "Checksum": 1}))


class Kubelet:
    asked = 0

    async def __call__(self) -> None:
        self.asked += 1


@pytest.mark.parametrize(("uid", "annotations"), [("a", {}), ("hash", {"kubernetes.io/config.mirror": "hash"})])
async def test_who_lives_is_not_forgotten(tmp_path: Path, uid: str, annotations: dict[str, str]) -> None:
    """A pod of a file on the node has one uid at kubelet, and another at the API server."""
    pods, kubelet = {"a": pod("a", **annotations)}, Kubelet()
    remember(tmp_path, uid)
    memory = KubeletMemory(tmp_path, pods, kubelet)
    await memory.let_go([RESOURCE])
    assert kubelet.asked == 0
    assert memory.served([RESOURCE]) == ["default/p-a"]
    assert memory.refuses(RESOURCE)

    del pods["a"]
    await memory.let_go([RESOURCE])
    assert kubelet.asked == 1
    assert memory.served([RESOURCE]) == []
    assert not memory.refuses(RESOURCE)
