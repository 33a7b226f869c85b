"""Reads the checkpoint file of kubelet's device manager: registered resources, and which container holds which ids.

Belongs here: reading that file. kubelet drops a resource five minutes after its plugin has gone; until then it rejects every pod
that requests it, even if NRI could deliver it. It drops an ended pod at its next allocation, and writes the file only then.
"""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

FILE: Final = "kubelet_internal_checkpoint"


@dataclass(frozen=True, slots=True)
class Allocation:
    """What one container got of one resource. kubelet repeats the same answer when the container restarts."""

    uid: str  # the pod's, as kubelet knows it
    container: str
    resource: str
    ids: frozenset[str]
    answer: bytes  # a ContainerAllocateResponse


class _PodDevices(msgspec.Struct, rename="pascal"):
    pod_uid: str = msgspec.field(name="PodUID")
    container_name: str
    resource_name: str
    device_ids: dict[str, list[str]] | list[str] = msgspec.field(name="DeviceIDs")  # by NUMA node since 1.20
    alloc_resp: str | None = None


class _Data(msgspec.Struct, rename="pascal"):
    pod_device_entries: msgspec.Raw = msgspec.Raw(b"null")
    registered_devices: msgspec.Raw = msgspec.Raw(b"null")


class _Checkpoint(msgspec.Struct, rename="pascal"):
    data: _Data


_decode = msgspec.json.Decoder(_Checkpoint).decode
_decode_entries = msgspec.json.Decoder(list[_PodDevices] | None).decode
_decode_registered = msgspec.json.Decoder(dict[str, list[str] | None] | None).decode
# msgspec raises ValueErrors, and RecursionError for a file that is nested too deep.
_UNREADABLE: Final = (OSError, ValueError, RecursionError)


def registered(directory: Path) -> dict[str, frozenset[str]]:
    """The resources that kubelet has devices of, with their ids; empty if the file is missing or unreadable."""
    try:
        devices = _decode_registered(_data(directory).registered_devices) or {}
    except _UNREADABLE:
        return {}
    return {resource: frozenset(ids or ()) for resource, ids in devices.items()}


def allocations(directory: Path) -> list[Allocation]:
    """All allocations in the file; empty if it is missing or unreadable."""
    try:
        entries = _decode_entries(_data(directory).pod_device_entries) or ()
    except _UNREADABLE:
        return []
    read = []
    for entry in entries:
        ids = entry.device_ids
        names = frozenset(ids if isinstance(ids, list) else (i for of_numa in ids.values() for i in of_numa))
        try:
            answer = base64.b64decode(entry.alloc_resp or "")
        except ValueError:
            answer = b""
        read.append(Allocation(entry.pod_uid, entry.container_name, entry.resource_name, names, answer))
    return read


def _data(directory: Path) -> _Data:
    return _decode((directory / FILE).read_bytes()).data
