"""An assignment as pod annotations, and back.

Belongs here: what is written with a bind, and what is believed of what stands on a pod. Never: amounts, which are always
read from the pod's own request, so that no annotation can make a pod larger or smaller than kubelet will.

Two records are written in the same breath. Ours (`accelshare.io/assignment`) has everything, the hardware's id included.
The profile's own keys are what its users, tools and node plugins already read, one card by its index or several joined by
commas. Ours is believed first; a pod placed by an original system has only the other.
"""

from collections.abc import Iterator, Mapping
from sys import intern
from typing import Final

import msgspec

from accelshare.ledger.nouns import Ask, Request, Slice
from accelshare.vendors.profile import Profile

OURS: Final = "accelshare.io/assignment"
# A runtime with a validator refuses a container of such a pod while the plugin of this name is away.
REQUIRED_PLUGINS: Final = "required-plugins.noderesource.dev"
PLUGIN: Final = "accelshare"
LARGEST_INDEX: Final = 1023


class _Entry(msgspec.Struct, omit_defaults=True, frozen=True):
    index: int
    id: str = ""
    units: int = 0
    whole: bool = False


_decoder: Final = msgspec.json.Decoder(dict[str, list[_Entry]])


def write(
    slices: tuple[Slice, ...], *, profiles: Mapping[str, Profile], sizes: Mapping[tuple[str, int], int], now_ns: int
) -> dict[str, str]:
    """The annotations that say who was given what; `sizes` tells how large each (kind, index) of the node is."""
    by_kind: dict[str, list[Slice]] = {}
    for slice_ in slices:
        by_kind.setdefault(slice_.kind, []).append(slice_)
    record = {kind: [_Entry(s.index, s.id, s.units, s.whole) for s in given] for kind, given in sorted(by_kind.items())}
    annotations = {OURS: msgspec.json.encode(record).decode()} if record else {}
    for kind, given in by_kind.items():
        annotations |= dict(_seed_keys(profiles[kind], [s for s in given if not s.whole], sizes, now_ns))
    return annotations


def require_plugin() -> dict[str, str]:
    """What makes the container runtime insist on our part in each container of the pod."""
    return {REQUIRED_PLUGINS: f'["{PLUGIN}"]'}


def requires_plugin(annotations: Mapping[str, str]) -> bool:
    return PLUGIN in annotations.get(REQUIRED_PLUGINS, "")


def _seed_keys(
    profile: Profile, shared: list[Slice], sizes: Mapping[tuple[str, int], int], now_ns: int
) -> Iterator[tuple[str, str]]:
    if not shared:
        return
    keys = profile.annotations
    values = (
        (keys.index, ",".join(str(s.index) for s in shared)),
        (keys.card_size, str(sizes[profile.name, shared[0].index])),
        (keys.pod_units, str(sum(s.units for s in shared))),
        (keys.assigned, "false"),
        (keys.assign_time, str(now_ns)),
    )
    yield from ((key, value) for key, value in values if key is not None)


def read(
    annotations: Mapping[str, str], request: Request, profiles: Mapping[str, Profile]
) -> tuple[tuple[Slice, ...], tuple[str, ...]]:
    """The cards that the annotations name for this request, and what could not be read of them, in words."""
    record, problems = _ours(annotations)
    slices: list[Slice] = []
    for ask in request:
        found = _from_record(record, ask)
        if found is None and not ask.whole:
            key = profiles[ask.kind].annotations.index
            found = _from_indexes(annotations[key], ask, key, problems) if key is not None and key in annotations else None
        slices.extend(found or ())
    return tuple(slices), tuple(problems)


def _ours(annotations: Mapping[str, str]) -> tuple[dict[str, list[_Entry]], list[str]]:
    value = annotations.get(OURS)
    if value is None:
        return {}, []
    try:
        return _decoder.decode(value), []
    except msgspec.DecodeError as error:
        return {}, [f"annotation {OURS} cannot be read: {error}"]


def _from_record(record: dict[str, list[_Entry]], ask: Ask) -> list[Slice] | None:
    entries = [entry for entry in record.get(ask.kind, ()) if entry.whole == ask.whole]
    indexes = {entry.index for entry in entries if 0 <= entry.index <= LARGEST_INDEX}
    ids = [entry.id for entry in entries if entry.id]
    if len(entries) != ask.cards or len(indexes) != ask.cards or len(set(ids)) < len(ids):
        return None
    return [Slice(ask.kind, entry.index, ask.share, ask.whole, intern(entry.id)) for entry in entries]


def _from_indexes(value: str, ask: Ask, key: str, problems: list[str]) -> list[Slice] | None:
    words = [word.strip() for word in value.split(",")]
    indexes = {int(word) for word in words if word.isascii() and word.isdigit() and len(word) <= 4}
    if len(words) != ask.cards or len(indexes) != ask.cards or max(indexes) > LARGEST_INDEX:
        problems.append(f"annotation {key} is {value[:64]!r}; it must name {ask.cards} different card(s) by index")
        return None
    return [Slice(ask.kind, index, ask.share, ask.whole) for index in sorted(indexes)]
