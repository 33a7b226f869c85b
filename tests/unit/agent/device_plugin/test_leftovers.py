"""Which pods kubelet still holds ids for, and which of them live."""

import json
import socket
from pathlib import Path

import pytest

from accelshare.agent.device_plugin.leftovers import PluginLeftovers
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
    calls = 0

    async def __call__(self) -> None:
        self.calls += 1


@pytest.mark.parametrize(("uid", "annotations"), [("a", {}), ("hash", {"kubernetes.io/config.mirror": "hash"})])
async def test_kubelet_refuses_resources_that_living_pods_hold(tmp_path: Path, uid: str, annotations: dict[str, str]) -> None:
    """A pod of a file on the node has one uid at kubelet, and another at the API server."""
    pods, kubelet = {"a": pod("a", **annotations)}, Kubelet()
    remember(tmp_path, uid)
    memory = PluginLeftovers(tmp_path, pods, kubelet)
    await memory.drop_ended_pods([RESOURCE])
    assert kubelet.calls == 0
    assert memory.served([RESOURCE]) == ["default/p-a"]
    assert memory.refuses(RESOURCE)

    del pods["a"]
    await memory.drop_ended_pods([RESOURCE])
    assert kubelet.calls == 1
    assert memory.served([RESOURCE]) == []
    assert not memory.refuses(RESOURCE)


def test_another_plugin_serves_whole_cards_while_it_listens(tmp_path: Path) -> None:
    """Its ids are not of our form. kubelet keeps them after the plugin has gone, and its socket may stay behind."""
    memory = PluginLeftovers(tmp_path, {}, Kubelet())

    def registers(*ids: str) -> None:
        data = {"PodDeviceEntries": None, "RegisteredDevices": {"acme.example/zpu": list(ids)}}
        (tmp_path / "kubelet_internal_checkpoint").write_text(json.dumps({"Data": data, "Checksum": 1}))

    registers("GPU-8f3a", "GPU-90c1")
    assert not memory.is_served_by_others("acme.example/zpu")  # no plugin listens
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(tmp_path / "other.sock"))
        other.listen()
        assert memory.is_served_by_others("acme.example/zpu")
        assert not memory.is_served_by_others("acme.example/zpu-mem")
        assert not memory.is_served_by_others(None)
        registers("0", "1")
        assert not memory.is_served_by_others("acme.example/zpu")  # those are ours
        registers("GPU-8f3a")
    assert not memory.is_served_by_others("acme.example/zpu")  # a socket that was left behind
