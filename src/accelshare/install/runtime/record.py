"""What the record of this room says beside what every journal says.

Belongs here: its fields. Never: how it is kept, deciding what to do.
"""

import msgspec

from accelshare.install.host_files.disk import Found
from accelshare.install.host_files.journal import Journal, Touched


class Tracked(Touched, frozen=True):
    """With the hash of every content that we gave the file."""

    written: list[str] = msgspec.field(default_factory=list)

    def knows(self, found: Found | None) -> bool:
        """Whether this is a content of ours or the original; anything else is somebody else's."""
        now = found.sha256 if found is not None else None
        return now == self.original.sha256 or now in self.written


class Record(Journal[Tracked], frozen=True):
    """One installation, beside the runtime's main file."""

    config: str
