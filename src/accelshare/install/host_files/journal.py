"""What we have done to this host, written down before it is done: the journal and the way back in one file.

Belongs here: what every such record has; a room adds what it needs to its own. Never: where it is kept (`archive.py`), deciding
what to do.
"""

from pathlib import Path
from typing import Final, Generic, Literal, TypeVar

import msgspec

FORMAT: Final = 1


class Before(msgspec.Struct, frozen=True):
    """A file as it was; no hash if it was not there."""

    sha256: str | None = None
    mode: int = 0o600
    uid: int = 0
    gid: int = 0


class Touched(msgspec.Struct, frozen=True):
    """One file of ours or changed by us, and how it was before accelshare."""

    path: str
    original: Before


TouchedT = TypeVar("TouchedT", bound=Touched)


class Journal(msgspec.Struct, Generic[TouchedT], frozen=True, kw_only=True):
    """The whole state of one installation; what is under way has a state of its own."""

    state: Literal["applying", "applied", "restoring"]
    files: list[TouchedT]
    made: list[str] = []  # directories, to be removed with the rest if nobody else uses them
    accelshare: str = ""
    format: int = FORMAT

    def file(self, path: str | Path) -> TouchedT | None:
        return next((file for file in self.files if file.path == str(path)), None)

    @property
    def unfinished(self) -> str | None:
        """What ended in the middle, in words; None if nothing did."""
        if self.state == "applied":
            return None
        what = "an apply" if self.state == "applying" else "a restore"
        return f"{what} ended in the middle: `apply` finishes, `restore` puts all back"
