"""Which resource a URL is about.

Belongs here: the shape of Kubernetes' paths. Never: what is done with the resource.
"""

from dataclasses import dataclass
from urllib.parse import unquote

from accelshare.testing.api_server.resources import RESOURCES, Resource


@dataclass(frozen=True, slots=True)
class Target:
    """One object, or with no name a whole collection, and the part of it that is meant."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def target(path: str) -> Target | None:
    """The target of a path; None when this server has nothing there."""
    match [unquote(part) for part in path.strip("/").split("/")]:
        case ["api", "v1", *rest]:
            return _within("", rest)
        case ["apis", group, "v1", *rest] if group:
            return _within(group, rest)
        case _:
            return None


def _within(group: str, parts: list[str]) -> Target | None:
    namespace = ""
    if len(parts) > 2 and parts[0] == "namespaces":
        _, namespace, *parts = parts
    match parts:
        case ["bindings"] if namespace and not group:  # the older door to the same room
            return Target(RESOURCES["pods"], namespace, subresource="binding")
        case [plural, *rest] if len(rest) <= 2:
            resource = RESOURCES.get(plural)
            name, subresource = (*rest, "", "")[:2]
        case _:
            return None
    if resource is None or resource.group != group or (namespace and not resource.namespaced):
        return None
    if name and resource.namespaced and not namespace:
        return None
    known = {"binding": resource.plural == "pods", "status": resource.on_status_update is not None, "": True}
    return Target(resource, namespace, name, subresource) if known.get(subresource, False) else None
