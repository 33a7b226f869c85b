"""What kubelet's device manager has written down: the resources it knows, and who holds which ids with which answer.

Belongs here: reading that file. kubelet forgets a resource five minutes after its plugin has gone; until then it refuses every
pod that asks for it, whoever else could hand it out. And it forgets a pod that has ended at its next work, but writes that down
only then.
"""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

FILE: Final = "kubelet_internal_checkpoint"


@dataclass(frozen=True, slots=True)
class Allocation:
    """What one container was given of one resource. kubelet gives it the same answer again when the container restarts."""

    uid: str  # the pod's, as kubelet knows it
    container: str
    resource: str
    ids: frozenset[str]
    answer: bytes  # a ContainerAllocateResponse


class _Entry(msgspec.Struct, rename="pascal"):
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
_decode_entries = msgspec.json.Decoder(list[_Entry] | None).decode
_decode_registered = msgspec.json.Decoder(dict[str, list[str] | None] | None).decode
# msgspec's errors are ValueErrors; a file that is nested too deep is none.
_UNREADABLE: Final = (OSError, ValueError, RecursionError)


def registered(directory: Path) -> dict[str, frozenset[str]]:
    """The resources that kubelet has devices of, with their ids; none if it has no such file or it cannot be understood."""
    try:
        devices = _decode_registered(_data(directory).registered_devices) or {}
    except _UNREADABLE:
        return {}
    return {resource: frozenset(ids or ()) for resource, ids in devices.items()}


def allocations(directory: Path) -> list[Allocation]:
    """All that kubelet remembers; nothing if the file is not there or cannot be understood."""
    try:
        entries = _decode_entries(_data(directory).pod_device_entries) or ()
    except _UNREADABLE:
        return []
    found = []
    for entry in entries:
        ids = entry.device_ids
        names = frozenset(ids if isinstance(ids, list) else (i for of_numa in ids.values() for i in of_numa))
        try:
            answer = base64.b64decode(entry.alloc_resp or "")
        except ValueError:
            answer = b""
        found.append(Allocation(entry.pod_uid, entry.container_name, entry.resource_name, names, answer))
    return found


def held(directory: Path) -> dict[str, dict[str, set[str]]]:
    """For each resource and pod's uid, the ids that kubelet remembers; none if the file is not there or cannot be understood."""
    told: dict[str, dict[str, set[str]]] = {}
    for one in allocations(directory):
        told.setdefault(one.resource, {}).setdefault(one.uid, set()).update(one.ids)
    return told


def _data(directory: Path) -> _Data:
    return _decode((directory / FILE).read_bytes()).data
