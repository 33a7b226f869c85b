"""What is looked at: one file each, a function from a snapshot to findings, and the table of them all.

Belongs here: pure functions, ordered as an operator would go. Never: reading a cluster.
"""

from collections.abc import Callable, Iterator
from typing import Final

from accelshare.preflight.checks import (
    cards_in_use,
    labels,
    originals,
    permissions,
    ports,
    runtimes,
    scheduler,
    unread,
    versions,
)
from accelshare.preflight.findings import Finding
from accelshare.preflight.snapshot import Snapshot
from accelshare.vendors.catalog import Catalog

Check = Callable[[Snapshot, Catalog], Iterator[Finding]]

CHECKS: Final[tuple[Check, ...]] = (
    unread.check,
    versions.check,
    runtimes.check,
    permissions.check,
    scheduler.check,
    labels.check,
    ports.check,
    originals.check,
    cards_in_use.check,
)


def findings(snapshot: Snapshot, catalog: Catalog) -> list[Finding]:
    """All that the checks have to say, in their order."""
    return [finding for check in CHECKS for finding in check(snapshot, catalog)]
