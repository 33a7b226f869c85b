"""What a kubelet that starts believes: the file in which it remembers resources, and who holds which ids.

Belongs here: reading that file. kubelet forgets a resource five minutes after its plugin has gone; until then it refuses every
pod that asks for it, whoever else could hand it out. And it forgets a pod that has ended at its next work, but writes that down
only then.
"""

import json
from pathlib import Path
from typing import Any, Final

FILE: Final = "kubelet_internal_checkpoint"


def registered(directory: Path) -> dict[str, frozenset[str]]:
    """The resources that kubelet has devices of, with their ids; none if it has no such file or it cannot be understood."""
    try:
        devices = _content(directory)["RegisteredDevices"] or {}
        return {str(resource): frozenset(map(str, ids or ())) for resource, ids in devices.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def held(directory: Path) -> dict[str, dict[str, set[str]]]:
    """For each resource and pod's uid, the ids that kubelet remembers; none if the file is not there or cannot be understood."""
    told: dict[str, dict[str, set[str]]] = {}
    try:
        for entry in _content(directory)["PodDeviceEntries"] or ():
            pods = told.setdefault(str(entry["ResourceName"]), {})
            pods.setdefault(str(entry["PodUID"]), set()).update(i for of_numa in entry["DeviceIDs"].values() for i in of_numa)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    return told


def _content(directory: Path) -> Any:
    return json.loads((directory / FILE).read_bytes())["Data"]
