"""The annotations of a resize: what the owner of a pod wants, what the extender granted, and what the node's agent did.

Belongs here: their names, and encoding and decoding them. Never: whether a resize is possible.

`accelshare.io/resize` is the owner's. `accelshare.io/granted` is the extender's alone, which an admission policy ensures.
`accelshare.io/applied` is on the Node, which users of a namespace cannot write.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from accelshare.ledger.facts import WantedResize
from accelshare.ledger.nouns import Resize
from accelshare.wire.decoding import LONGEST_ANNOTATION, Decoder, UnreadableError
from accelshare.wire.inventory import LARGEST_SIZE

RESIZE: Final = "accelshare.io/resize"
GRANTED: Final = "accelshare.io/granted"
APPLIED: Final = "accelshare.io/applied"
LONGEST_TEXT: Final = 64  # characters of what a user wrote, in messages
LARGEST_NUMBER: Final = 2**31
MOST_APPLIED: Final = 1000  # pods of one node; kubelet runs 110 by default


class _Entry(msgspec.Struct, frozen=True):
    units: int
    n: int


_entry: Final = Decoder(_Entry, most_bytes=1024)
_entries: Final = Decoder(dict[str, _Entry], most_bytes=LONGEST_ANNOTATION)


def wanted(text: str, *, one_container: bool) -> WantedResize:
    """What the owner of a pod wrote: a whole number in the unit of the pod's request."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else 0
    return WantedResize(text[:LONGEST_TEXT], number if number <= LARGEST_SIZE else LARGEST_SIZE + 1, one_container)


def granted_text(resize: Resize) -> str:
    return msgspec.json.encode(_Entry(resize.units, resize.number)).decode()


def granted(text: str | None) -> Resize | None:
    """The grant in this text; None if it is none."""
    if text is None:
        return None
    try:
        return _resize(_entry.decode(text))
    except UnreadableError:
        return None


def applied_text(resizes: Mapping[str, Resize]) -> str:
    """By the uids of pods: the last resize that was answered, with the amount in force."""
    latest = list(resizes.items())[-MOST_APPLIED:]
    return msgspec.json.encode({uid: _Entry(one.units, one.number) for uid, one in sorted(latest)}).decode()


def applied(text: str) -> dict[str, Resize]:
    """The resizes of applied_text(); none if they cannot be read."""
    try:
        entries = _entries.decode(text)
    except UnreadableError:
        return {}
    return {uid: one for uid, entry in entries.items() if (one := _resize(entry)) is not None}


def _resize(entry: _Entry) -> Resize | None:
    valid = 0 < entry.units <= LARGEST_SIZE and 0 < entry.n <= LARGEST_NUMBER
    return Resize(entry.units, entry.n) if valid else None
