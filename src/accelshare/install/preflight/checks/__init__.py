"""What is looked at: one file each, a function from a snapshot to findings, and the table of them all.

Belongs here: pure functions, ordered as an operator would go. Never: reading a cluster.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from accelshare.install.preflight.checks import (
    cards_in_use,
    labels,
    memory_units,
    originals,
    permissions,
    ports,
    runtimes,
    scheduler,
    unread,
    versions,
)
from accelshare.install.preflight.findings import Finding
from accelshare.install.preflight.snapshot import Part, Snapshot
from accelshare.vendors.catalog import Catalog

Look = Callable[[Snapshot, Catalog], Iterator[Finding]]


@dataclass(frozen=True, slots=True)
class Check:
    """One of them, and the parts of a cluster without which it has nothing to say."""

    look: Look
    reads: frozenset[Part]


def _check(look: Look, *reads: Part) -> Check:
    return Check(look, frozenset(reads))


def _checks(units: Mapping[str, str]) -> dict[str, Check]:
    return {
        "unread": _check(unread.check),
        "versions": _check(versions.check, Part.VERSION, Part.NODES),
        "runtimes": _check(runtimes.check, Part.NODES),
        "permissions": _check(permissions.check, Part.RIGHTS),
        "scheduler": _check(scheduler.check, Part.NODES, Part.PODS, Part.LEASE),
        "labels": _check(labels.check, Part.NODES),
        "ports": _check(ports.check, Part.SERVICES),
        "originals": _check(originals.check, Part.DEPLOYMENTS, Part.DAEMON_SETS, Part.PODS),
        "cards-in-use": _check(cards_in_use.check, Part.PODS),
        "memory-units": _check(partial(memory_units.check, units=units), Part.NODES, Part.PODS),
    }


NAMES: Final = tuple(_checks({}))
ALWAYS: Final = "unread"  # a check that saw nothing must not pass for one that found nothing


def chosen(only: Collection[str] = (), units: Mapping[str, str] | None = None) -> list[Check]:
    """The named checks, or all of them, in their order. `units` are the memory units that are wanted, by profile."""
    return [check for name, check in _checks(units or {}).items() if not only or name in only or name == ALWAYS]


def parts(checks: Iterable[Check]) -> frozenset[Part]:
    """All that has to be read for these."""
    return frozenset(part for check in checks for part in check.reads)


def findings(checks: Iterable[Check], snapshot: Snapshot, catalog: Catalog) -> list[Finding]:
    """All that they have to say, in their order."""
    return [finding for check in checks for finding in check.look(snapshot, catalog)]
