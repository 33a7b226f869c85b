"""From checked data to a profile's rules about nodes, and back to data.

Belongs here: the sections that hold tables within tables. Never: checking (`schema.py`, `agreement.py`); whatever comes here
is of its kind, so that Any is only for the type checker.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from accelshare.vendors.node_rules import (
    Cdi,
    ContainerRules,
    DeviceNodes,
    DriverRules,
    EnforcementRules,
    Requirement,
    StaticCard,
    StaticRules,
    VolumeMounts,
    Way,
)


def driver_rules(driver: dict[str, Any], static: dict[str, Any]) -> DriverRules:
    """The section `driver`, and `driver.static` under it."""
    cards = tuple(StaticCard(**card) for card in static["cards"])
    rules = StaticRules(**{**static, "cards": cards, "model": static["model"] or ""}) if driver["name"] == "static" else None
    return DriverRules(**driver, static=rules)


def container_rules(
    container: dict[str, Any], *, volume_mounts: dict[str, Any], device_nodes: dict[str, Any], cdi: dict[str, Any]
) -> ContainerRules:
    """The section `container`, and those under it."""
    strategy: Any = container["strategy"]
    return ContainerRules(
        **{**container, "strategy": (strategy,) if isinstance(strategy, str) else strategy},
        volume_mounts=VolumeMounts(**volume_mounts),
        device_nodes=DeviceNodes(**device_nodes),
        cdi=Cdi(**cdi),
    )


def enforcement_rules(enforcement: dict[str, Any]) -> EnforcementRules:
    """The section `enforcement`, with each way under its name."""
    ways = {name: _way(name, data) for name, data in enforcement["ways"].items()}
    return EnforcementRules(enforcement["order"], MappingProxyType(ways))


def thawed(value: object) -> object:
    """A value of a profile as plain data; what a record leaves open, and the name it is filed under, stay out of it."""
    if isinstance(value, Mapping):
        return {key.value if isinstance(key, Enum) else key: thawed(held) for key, held in value.items()}
    if isinstance(value, tuple):
        return [thawed(entry) for entry in value]
    if isinstance(value, Struct):
        held = {name: thawed(getattr(value, name)) for name in value.__struct_fields__}
        return {name: inner for name, inner in held.items() if inner not in (None, "", [], {}) and not _is_its_name(value, name)}
    return value


def _way(name: str, data: Mapping[str, Any]) -> Way:
    requires = tuple(Requirement(**{**each, "command": tuple(each.get("command", ()))}) for each in data.get("requires", ()))
    return Way(
        name, data.get("kind", "env"), MappingProxyType(dict(data.get("env", {}))), requires, tuple(data.get("mounts", ()))
    )


def _is_its_name(value: object, field: str) -> bool:
    return isinstance(value, Way) and field == "name"
