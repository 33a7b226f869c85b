"""Addresses of the objects we ask for by name.

Belongs here: putting names into a path, and refusing what is no name, because names arrive in other people's requests.
Never: a request.
"""

import re
from typing import Final

# The characters of a DNS subdomain, which every namespace, pod and node name is made of.
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)


def pod(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{_checked('namespace', namespace)}/pods/{_checked('pod name', name)}"


def node(name: str) -> str:
    return f"/api/v1/nodes/{_checked('node name', name)}"


def binding(namespace: str, name: str) -> str:
    return f"{pod(namespace, name)}/binding"


def events(namespace: str) -> str:
    return f"/api/v1/namespaces/{_checked('namespace', namespace)}/events"


def _checked(what: str, value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(f"{what} {value[:260]!r}: it must be lower-case letters, digits, '-' and '.', at most 253 characters")
    return value
