"""The table of checks. Each is a function from a snapshot to findings.

Belongs here: pure functions, in the order in which an operator would check. Never: reading a cluster.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from accelshare.install.preflight.checks import control_plane, nodes, originals, pods
from accelshare.install.preflight.findings import Finding, Grade
from accelshare.install.preflight.snapshot import ClusterPart, Snapshot
from accelshare.vendors.catalog import Catalog

CheckFunction = Callable[[Snapshot, Catalog], Iterator[Finding]]


@dataclass(frozen=True, slots=True)
class Check:
    """One check, and the parts of a cluster that it needs."""

    run: CheckFunction
    reads: frozenset[ClusterPart]


def check_unread(snapshot: Snapshot, catalog: Catalog) -> Iterator[Finding]:
    """What could not be read: a check that saw nothing must not look like one that found nothing."""
    for what, error in snapshot.unread.items():
        yield Finding("unread", Grade.WARNING, f"{what} could not be read and are not checked: {error}")


def _check(run: CheckFunction, *reads: ClusterPart) -> Check:
    return Check(run, frozenset(reads))


def _checks(units: Mapping[str, str]) -> dict[str, Check]:
    return {
        "unread": _check(check_unread),
        "versions": _check(nodes.check_versions, ClusterPart.VERSION, ClusterPart.NODES),
        "runtimes": _check(nodes.check_runtimes, ClusterPart.NODES),
        "permissions": _check(control_plane.check_permissions, ClusterPart.RIGHTS),
        "scheduler": _check(control_plane.check_scheduler, ClusterPart.NODES, ClusterPart.PODS, ClusterPart.LEASE),
        "labels": _check(nodes.check_labels, ClusterPart.NODES),
        "ports": _check(control_plane.check_ports, ClusterPart.SERVICES),
        "originals": _check(originals.check_originals, ClusterPart.DEPLOYMENTS, ClusterPart.DAEMON_SETS, ClusterPart.PODS),
        "cards-in-use": _check(pods.check_cards_in_use, ClusterPart.PODS),
        "memory-units": _check(partial(pods.check_memory_units, units=units), ClusterPart.NODES, ClusterPart.PODS),
    }


NAMES: Final = tuple(_checks({}))
ALWAYS: Final = "unread"


def chosen(only: Collection[str] = (), units: Mapping[str, str] | None = None) -> list[Check]:
    """The named checks, or all of them, in their order. `units`: the wanted memory units by profile."""
    return [check for name, check in _checks(units or {}).items() if not only or name in only or name == ALWAYS]


def parts(checks: Iterable[Check]) -> frozenset[ClusterPart]:
    """The parts that these checks need."""
    return frozenset(part for check in checks for part in check.reads)


def findings(checks: Iterable[Check], snapshot: Snapshot, catalog: Catalog) -> list[Finding]:
    """The findings of these checks, in their order."""
    return [finding for check in checks for finding in check.run(snapshot, catalog)]
