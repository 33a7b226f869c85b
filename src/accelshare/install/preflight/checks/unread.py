"""What could not be looked at: a check that saw nothing must not pass for one that found nothing.

Belongs here: saying so. Never: why rights are missing (`permissions.py`).
"""

from collections.abc import Iterator

from accelshare.install.preflight.findings import Finding, Grade
from accelshare.install.preflight.snapshot import Snapshot
from accelshare.vendors.catalog import Catalog


def check(snapshot: Snapshot, catalog: Catalog) -> Iterator[Finding]:
    for what, words in snapshot.unread.items():
        yield Finding("unread", Grade.WARNING, f"{what} could not be read, so nothing is said of them: {words}")
