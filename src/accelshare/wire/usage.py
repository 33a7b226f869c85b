"""What a node's cards are used for, as its agent serves it at /usage and `inspect` reads it.

Belongs here: the values, and their JSON. Never: measuring them (agent/usage), tables (report/).
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from accelshare.wire.decoding import Decoder

PATH: Final = "/usage"
LONGEST: Final = 4 << 20  # bytes; 500 pods and 16 cards have 200 kB
MOST_LISTED: Final = 10  # processes of others that are listed for one card, the largest first


class PodUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """One pod's use of one card of which it holds a part, or the whole."""

    namespace: str
    name: str
    uid: str
    kind: str
    card: int  # its index
    held_bytes: int
    used_bytes: int | None = None  # none: not reported
    utilisation: float | None = None  # 0 to 1; none: not reported
    idle_s: float | None = None  # for how long it has not used the card; none: it does, or it is not known
    over_use: bool = False  # it has used more than it holds in several samples


class OtherProcess(msgspec.Struct, frozen=True, omit_defaults=True):
    """A process that uses a card of which its pod, if it is in one, holds nothing."""

    pid: int
    used_bytes: int | None = None
    pod: str = ""  # namespace/name


class CardUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """One card: what all processes use, and what those outside of its pods use."""

    kind: str
    card: int
    used_bytes: int | None = None
    utilisation: float | None = None
    used_by_others_bytes: int | None = None
    others: tuple[OtherProcess, ...] = ()


class NodeUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """One sample of a node."""

    node: str
    age_s: float = 0.0  # when it was read
    pods: tuple[PodUse, ...] = ()
    cards: tuple[CardUse, ...] = ()
    problems: Mapping[str, str] = {}  # by kind: why its use is not known


decoder: Final = Decoder(NodeUse, most_bytes=LONGEST)


def write(use: NodeUse) -> bytes:
    return msgspec.json.encode(use)
