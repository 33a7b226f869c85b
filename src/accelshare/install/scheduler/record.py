"""What the record of this room says beside what every journal says.

Belongs here: its fields. Never: how it is kept, deciding what to do.
"""

from typing import Final, Self

import msgspec

from accelshare.install.host_files.journal import Before, Journal, Touched

_KEPT: Final = 3  # an upgrade may be tried more than once


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


class Earlier(msgspec.Struct, frozen=True):
    """A trigger of ours that was overwritten, and what it was made from. kubeadm puts it back if its upgrade fails."""

    written: str
    original: Before


class Record(Journal[Tracked], frozen=True):
    """One installation: the trigger makes kube-scheduler read our file."""

    trigger: str
    sources: list[Source] = msgspec.field(default_factory=list)
    earlier: list[Earlier] = msgspec.field(default_factory=list)  # the newest first

    @property
    def needed(self) -> frozenset[str | None]:
        """The contents that a roll-back or a restore would bring back."""
        now = [before.sha256 for file in self.files for before in (file.original, file.before) if before is not None]
        return frozenset([*now, *(each.original.sha256 for each in self.earlier)])

    def overwritten(self) -> list[Earlier]:
        """The earlier triggers once the one of now is overwritten too."""
        tracked = self.file(self.trigger)
        if tracked is None or tracked.written in (None, tracked.original.sha256):
            return self.earlier
        newest = Earlier(tracked.written or "", tracked.original)
        return [newest, *(each for each in self.earlier if each.written != newest.written)][:_KEPT]

    def as_found(self, trigger: str | None) -> Self:
        """The record that goes with a trigger of this hash: about an earlier one of ours again, if that is what was put back."""
        back = next((each for each in self.earlier if each.written == trigger), None)
        tracked = self.file(self.trigger)
        if self.state != "applied" or back is None or tracked is None or tracked.written == trigger:
            return self
        again = Tracked(self.trigger, back.original, written=back.written)
        files = [again if file is tracked else file for file in self.files]
        return msgspec.structs.replace(self, files=files, earlier=[each for each in self.earlier if each is not back])
