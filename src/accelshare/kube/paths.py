"""URL paths of Kubernetes objects.

Belongs here: putting names into a path, and refusing invalid names, because they come from other people's requests.
Never: a request.
"""

import re
from typing import Final

# The characters of a DNS subdomain, which every namespace, pod and node name is made of.
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)


class InvalidNameError(ValueError):
    """A name that no object can have; the text has it, and what would be right."""


def pod(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{_checked('namespace', namespace)}/pods/{_checked('pod name', name)}"


def node(name: str) -> str:
    return f"/api/v1/nodes/{_checked('node name', name)}"


def namespace(name: str) -> str:
    return f"/api/v1/namespaces/{_checked('namespace', name)}"


def binding(namespace: str, name: str) -> str:
    return f"{pod(namespace, name)}/binding"


def events(namespace: str) -> str:
    return f"/api/v1/namespaces/{_checked('namespace', namespace)}/events"


def pods(namespace: str) -> str:
    return _in_namespace("/api/v1", namespace, "pods", "")


def daemon_set(namespace: str, name: str) -> str:
    return _in_namespace("/apis/apps/v1", namespace, "daemonsets", name)


def secret(namespace: str, name: str = "") -> str:
    return _in_namespace("/api/v1", namespace, "secrets", name)


def config_map(namespace: str, name: str = "") -> str:
    return _in_namespace("/api/v1", namespace, "configmaps", name)


def resource_quotas(namespace: str) -> str:
    return _in_namespace("/api/v1", namespace, "resourcequotas", "")


def service(namespace: str, name: str) -> str:
    return _in_namespace("/api/v1", namespace, "services", name)


def lease(namespace: str, name: str = "") -> str:
    return _in_namespace("/apis/coordination.k8s.io/v1", namespace, "leases", name)


def endpoint_slice(namespace: str, name: str = "") -> str:
    return _in_namespace("/apis/discovery.k8s.io/v1", namespace, "endpointslices", name)


def _in_namespace(group: str, namespace: str, plural: str, name: str) -> str:
    """The path of one object, or without a name of the collection."""
    place = f"{group}/namespaces/{_checked('namespace', namespace)}/{plural}"
    return f"{place}/{_checked('name', name)}" if name else place


def _checked(what: str, value: str) -> str:
    if not _NAME.fullmatch(value):
        raise InvalidNameError(
            f"{what} {value[:260]!r}: it must be lower-case letters, digits, '-' and '.', at most 253 characters"
        )
    return value
