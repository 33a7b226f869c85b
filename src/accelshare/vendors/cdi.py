"""The CDI specification of a profile's cards, which defines the CDI names that containers get.

Belongs here: its content. Pure. Never: writing or removing the file, which is the agent's.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from accelshare.vendors.container_edits import CardNames, DeviceNode, EditsError, cdi_name, device_nodes, path_pattern
from accelshare.vendors.profile import Profile

# Old enough for every runtime with CDI, and it has every field used here.
CDI_VERSION: Final = "0.5.0"

# Device names that CDI's own parser accepts.
_DEVICE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")


def spec(profile: Profile, cards: Sequence[CardNames], *, exists: Callable[[str], bool]) -> str:
    """The specification of these cards as JSON: each with its device files, and what all share for any of them."""
    kinds, devices = set[str](), list[dict[str, object]]()
    shared = device_nodes(profile, (), exists)
    for card in cards:
        kind, _, name = cdi_name(profile, card).partition("=")
        if not _DEVICE.fullmatch(name):
            raise EditsError(f"profile {profile.name}: {name!r} is no name for a CDI device; letters, digits and _.:- are")
        kinds.add(kind)
        own = device_nodes(profile, (card,), lambda _: False)
        devices.append({"name": name, "containerEdits": {"deviceNodes": _listed(own)}})
    if len(kinds) != 1:
        raise EditsError(f"profile {profile.name}: a CDI specification needs cards, all of one kind")
    content: dict[str, object] = {"cdiVersion": CDI_VERSION, "kind": kinds.pop(), "devices": devices}
    if shared:
        content["containerEdits"] = {"deviceNodes": _listed(shared)}
    return json.dumps(content, indent=2) + "\n"


def existing_name(profile: Profile, card: CardNames, specs: Iterable[object]) -> str:
    """The name that specifications of the vendor's own tool have for this card; empty if they have none.

    By the profile's name, else by the device files: the device that has this card's, and no other card's.
    """
    kind, _, name = cdi_name(profile, card).partition("=")
    devices = [device for spec in specs for device in _devices(spec, kind)]
    if name in (found for found, _ in devices):
        return f"{kind}={name}"
    try:
        own = {node.host_path for node in device_nodes(profile, (card,), lambda _: False)}
    except EditsError:
        return ""  # its minor number is not known
    of_cards = [path_pattern(template) for template in profile.hardware.device_nodes]
    same = [
        found
        for found, paths in devices
        if own and {path for path in paths if any(pattern.fullmatch(path) for pattern in of_cards)} == own
    ]
    return f"{kind}={min(same)}" if same else ""


def _devices(spec: object, kind: str) -> Iterator[tuple[str, list[str]]]:
    """Each device of a specification of this kind, with its device files; anything else is skipped."""
    if not isinstance(spec, Mapping) or spec.get("kind") != kind or not isinstance(spec.get("devices"), list):
        return
    for device in spec["devices"]:
        if isinstance(device, Mapping) and isinstance(device.get("name"), str):
            edits = device.get("containerEdits")
            nodes = edits.get("deviceNodes") if isinstance(edits, Mapping) else None
            paths = [node.get("hostPath") or node.get("path") for node in nodes or () if isinstance(node, Mapping)]
            yield device["name"], [path for path in paths if isinstance(path, str)]


def file_name(profile: Profile) -> str:
    """What the file is called under /var/run/cdi: one per profile, so that writing it again replaces it."""
    return f"accelshare-{profile.name}.json"


def _listed(nodes: Sequence[DeviceNode]) -> list[dict[str, str]]:
    return [
        {
            "path": node.container_path,
            **({"hostPath": node.host_path} if node.host_path != node.container_path else {}),
            "permissions": node.permissions,
        }
        for node in nodes
    ]
