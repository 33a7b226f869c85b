"""What the record of this room says beside what every journal says.

Belongs here: its fields. Never: how it is kept, deciding what to do.
"""

import msgspec

from accelshare.files.journal import Before, Journal, Touched


class Tracked(Touched, frozen=True):
    """`original` is from before accelshare, `before` from before the change under way."""

    written: str | None = None
    before: Before | None = None
    after: str | None = None

    @property
    def known(self) -> frozenset[str | None]:
        """Every content that we have seen or made; anything else is somebody else's."""
        return frozenset({self.original.sha256, self.written, self.after, self.before.sha256 if self.before else None, None})


class Source(msgspec.Struct, frozen=True):
    """A file of the operator's that ours was made from."""

    path: str
    sha256: str | None


class Record(Journal[Tracked], frozen=True):
    """One installation: the trigger makes kube-scheduler read our file."""

    trigger: str
    sources: list[Source] = msgspec.field(default_factory=list)

    @property
    def needed(self) -> frozenset[str | None]:
        """The contents that a roll-back or a restore would bring back."""
        return frozenset(before.sha256 for file in self.files for before in (file.original, file.before) if before is not None)
