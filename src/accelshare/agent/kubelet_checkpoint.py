"""Which resources kubelet believes to be a device plugin's, read from the file in which it remembers them.

Belongs here: reading that file. kubelet forgets a resource five minutes after its plugin has gone; until then it refuses every
pod that asks for it, whoever else could hand it out.
"""

import json
from pathlib import Path
from typing import Final

FILE: Final = "kubelet_internal_checkpoint"


def registered(directory: Path) -> set[str]:
    """The resources that kubelet has devices of; none if it has no such file or the file cannot be understood."""
    try:
        content = json.loads((directory / FILE).read_bytes())
        found = content["Data"]["RegisteredDevices"] or {}
        return {str(resource) for resource in found}
    except (OSError, ValueError, KeyError, TypeError):
        return set()
