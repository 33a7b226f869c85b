"""The systems that accelshare replaces, and how they are recognized in a cluster.

Belongs here: reading `originals.toml`. Never: reading a cluster, how to migrate.
"""

from pathlib import Path
from typing import Final

import msgspec

FILE: Final = Path(__file__).with_name("originals.toml")


class Original(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One system. Workloads are Kind/name; `urls` are the URLs in its kube-scheduler configuration, `files` the files with it."""

    name: str
    profile: str
    page: str
    schedulers: tuple[str, ...]
    plugins: tuple[str, ...]
    urls: tuple[str, ...]
    files: tuple[str, ...]


class Neighbour(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A vendor's own plugin for whole cards, which registers the same resource with kubelet as our agent."""

    profile: str
    plugins: tuple[str, ...]


class Originals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All known systems."""

    systems: tuple[Original, ...] = msgspec.field(name="system")
    neighbours: tuple[Neighbour, ...] = msgspec.field(name="neighbour")


def load() -> Originals:
    """The shipped table."""
    return msgspec.toml.decode(FILE.read_bytes(), type=Originals)
