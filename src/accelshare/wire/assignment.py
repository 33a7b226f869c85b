"""The record of an assignment in pod annotations: writing and reading it.

Belongs here: the annotations of a Binding, and which of them are trusted. Never: amounts, which are always read from the pod's
request, so that no annotation can make a pod larger or smaller than it is for kubelet.

Every Binding has two records. Ours (`accelshare.io/assignment`) has everything, also the id of the hardware. The profile's own
keys are what its users, tools and node plugins already read: the index of one card, or several joined by commas. Ours takes
precedence; a pod placed by an original system has only the other.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from sys import intern
from typing import Final

import msgspec

from accelshare.ledger.nouns import Ask, Request, Slice, spread_as
from accelshare.vendors.profile import Profile
from accelshare.wire.decoding import LONGEST_ANNOTATION, Decoder, UnreadableError
from accelshare.wire.inventory import LONGEST_ID, MOST_CARDS

OURS: Final = "accelshare.io/assignment"
# A runtime with a validator refuses a container of such a pod while the plugin of this name is not connected.
REQUIRED_PLUGINS: Final = "required-plugins.noderesource.dev"
PLUGIN: Final = "accelshare"
_WHOLE_POD: Final = f"{REQUIRED_PLUGINS}/pod"
_PLUGIN_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,62}")
MOST_PLUGINS: Final = 32
LONGEST_KEY_NAME: Final = 63  # of an annotation, after the slash; Kubernetes' limit
# On a container, for the runtime: the cards that the agent delivered to it. Users cannot write it through Kubernetes.
DELIVERED: Final = "accelshare.io/delivered"
# On a container, too: by the id of a card, the way in which the agent must limit the container's share of it before it starts.
LIMITED: Final = "accelshare.io/limited"
LARGEST_INDEX: Final = MOST_CARDS - 1
# On a Node, written by its agent: the cards of pods whose own record was wrong, by uid. Users of a namespace cannot write Nodes.
CORRECTED: Final = "accelshare.io/corrected-assignments"
LARGEST_CORRECTIONS: Final = 100 * 1024  # characters; the API server takes 256 KiB of annotations on one object


class _Entry(msgspec.Struct, omit_defaults=True, frozen=True):
    index: int
    id: str = ""
    units: int = 0
    whole: bool = False


_decoder: Final = Decoder(dict[str, list[_Entry]], most_bytes=LONGEST_ANNOTATION)
_texts: Final = Decoder(dict[str, str], most_bytes=LONGEST_ANNOTATION)


def write(
    slices: tuple[Slice, ...], *, profiles: Mapping[str, Profile], sizes: Mapping[tuple[str, int], int], now_ns: int
) -> dict[str, str]:
    """The annotations of this assignment; `sizes` has the size of each (kind, index) of the node."""
    annotations = {OURS: text(slices)} if slices else {}
    for kind in dict.fromkeys(slice_.kind for slice_ in slices):
        shared = [s for s in slices if s.kind == kind and not s.whole]
        annotations |= dict(_vendor_keys(profiles[kind], shared, sizes, now_ns))
    return annotations


def text(slices: tuple[Slice, ...]) -> str:
    """Our record of these slices."""
    by_kind: dict[str, list[_Entry]] = {}
    for s in slices:
        by_kind.setdefault(s.kind, []).append(_Entry(s.index, s.id, s.units, s.whole))
    return msgspec.json.encode(dict(sorted(by_kind.items()))).decode()


def slices_of(record: str) -> tuple[Slice, ...]:
    """The slices in a record of text(); none if it cannot be read."""
    try:
        entries = _decoder.decode(record)
    except UnreadableError:
        return ()
    return tuple(Slice(kind, e.index, e.units, e.whole, intern(e.id)) for kind, of_kind in entries.items() for e in of_kind)


def limited_text(ways: Mapping[str, str]) -> str:
    """The annotation of a container whose share of these cards is limited in these ways."""
    return msgspec.json.encode(dict(sorted(ways.items()))).decode()


def limited_ways(value: str) -> dict[str, str]:
    """The ways of limited_text(), by card id; none if they cannot be read."""
    try:
        return _texts.decode(value)
    except UnreadableError:
        return {}


def record_keys(profiles: Iterable[Profile]) -> frozenset[str]:
    """The annotation keys of a record: ours, and those of these vendors except `assigned`."""
    keys = [key for p in profiles for a in (p.annotations,) for key in (a.index, a.card_size, a.pod_units, a.assign_time)]
    return frozenset({OURS, *(key for key in keys if key is not None)})


def write_corrections(records: Mapping[str, str]) -> str | None:
    """Records by uid as the Node's annotation; None if there are none. Of too many the latest are kept."""
    kept: list[tuple[str, str]] = []
    size = 0
    for uid, record in reversed(list(records.items())):
        size += len(uid) + 2 * len(record) + 8
        if size > LARGEST_CORRECTIONS:
            break
        kept.append((uid, record))
    return msgspec.json.encode(dict(reversed(kept))).decode() if kept else None


def read_corrections(value: str) -> dict[str, str]:
    """The records of write_corrections; none if they cannot be read."""
    try:
        return _texts.decode(value)
    except UnreadableError:
        return {}


def corrected_slices(value: str) -> dict[str, tuple[Slice, ...]]:
    """The same as slices of each pod. A record that cannot be read has none: the pod's card is then unknown."""
    slices: dict[str, tuple[Slice, ...]] = {}
    for uid, record in read_corrections(value).items():
        by_kind, _ = _ours({OURS: record})
        named = [Slice(kind, e.index, e.units, e.whole, intern(e.id)) for kind, entries in by_kind.items() for e in entries]
        places = [(s.kind, s.index) for s in named] + [(s.kind, s.id) for s in named if s.id]
        good = len(set(places)) == len(places) and all(0 <= s.index <= LARGEST_INDEX and len(s.id) <= LONGEST_ID for s in named)
        slices[uid] = tuple(named) if good else ()
    return slices


def require_plugin(containers: Iterable[str] = (), annotations: Mapping[str, str] | None = None) -> dict[str, str]:
    """The annotations with which the container runtime requires our plugin for each of these containers.

    A validator reads only the narrowest scope: the container's, the pod's, then the plain key. So each gets our name in addition
    to the plugins that the user requires there.
    """
    own = annotations or {}
    scopes = [_scope(name) for name in containers if len(_scope(name).partition("/")[2]) <= LONGEST_KEY_NAME]
    whole_pod = _with_our_plugin(own, _WHOLE_POD)
    notes = {REQUIRED_PLUGINS: _with_our_plugin(own, REQUIRED_PLUGINS), _WHOLE_POD: whole_pod}
    # One text for all containers without a key of their own: there may be thousands, and the text may be long.
    return notes | {scope: _with_our_plugin(own, scope) if scope in own else whole_pod for scope in scopes}


def _with_our_plugin(annotations: Mapping[str, str], key: str) -> str:
    # Ours comes first: of a long list, only the first names are read.
    return msgspec.json.encode(list(dict.fromkeys((PLUGIN, *_required(annotations, key))))).decode()


def requires_plugin(annotations: Mapping[str, str], container: str) -> bool | None:
    """Whether the pod requires our plugin for this container; None if it requires no plugin."""
    if not annotations.keys() & {_scope(container), _WHOLE_POD, REQUIRED_PLUGINS}:
        return None
    return PLUGIN in _required(annotations, _scope(container))


def _scope(container: str) -> str:
    return f"{REQUIRED_PLUGINS}/container.{container}"


def _required(annotations: Mapping[str, str], key: str) -> list[str]:
    """The plugins that are required in this scope. The validator reads YAML; every word that may be a name is taken as one, so
    that nothing the user requires is lost.
    """
    wider = {REQUIRED_PLUGINS: (), _WHOLE_POD: (REQUIRED_PLUGINS,)}.get(key, (_WHOLE_POD, REQUIRED_PLUGINS))
    value = next((annotations[scope] for scope in (key, *wider) if scope in annotations), "")
    return [found.group() for found in islice(_PLUGIN_NAME.finditer(value), MOST_PLUGINS)]


def _vendor_keys(
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
    """The cards that the annotations name for this request, and messages about what could not be read."""
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
    except UnreadableError as error:
        return {}, [f"annotation {OURS} cannot be read: {error}"]


def _from_record(record: dict[str, list[_Entry]], ask: Ask) -> Sequence[Slice] | None:
    of_kind = record.get(ask.kind, ())
    if len(of_kind) == ask.cards == 1:  # nearly every record, and faster than the general case below
        only = of_kind[0]
        if only.whole == ask.whole and 0 <= only.index <= LARGEST_INDEX and len(only.id) <= LONGEST_ID:
            return (Slice(ask.kind, only.index, ask.share, ask.whole, intern(only.id)),)
    entries = [entry for entry in of_kind if entry.whole == ask.whole]
    indexes = {entry.index for entry in entries if 0 <= entry.index <= LARGEST_INDEX}
    ids = [entry.id for entry in entries if entry.id]
    if len(indexes) != len(entries) or len(set(ids)) < len(ids) or any(len(id_) > LONGEST_ID for id_ in ids):
        return None
    if len(entries) != ask.cards:
        served = spread_as(ask, [Slice(ask.kind, entry.index, entry.units) for entry in entries])
        if served is None:
            return None
        ask = served
    return [Slice(ask.kind, entry.index, ask.share, ask.whole, intern(entry.id)) for entry in entries]


def _from_indexes(value: str, ask: Ask, key: str, problems: list[str]) -> list[Slice] | None:
    parts = [part.strip() for part in value.split(",")]
    indexes = {int(part) for part in parts if part.isascii() and part.isdigit() and len(part) <= 4}
    if len(parts) != ask.cards or len(indexes) != ask.cards or max(indexes) > LARGEST_INDEX:
        problems.append(f"annotation {key} is {value[:64]!r}; it must name {ask.cards} different card(s) by index")
        return None
    return [Slice(ask.kind, index, ask.share, ask.whole) for index in sorted(indexes)]
