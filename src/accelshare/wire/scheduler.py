"""kube-scheduler's extender messages, as it sends them from 1.18 to 1.36 and as the lower-case clients before it did.

Belongs here: reading and writing these messages. The scheduler's client has no JSON tags: requests have Go's own casing, and
absent fields are null. Go reads any casing, so a client that writes lower case is read too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec
import orjson

from accelshare.wire.decoding import Decoder, UnreadableError
from accelshare.wire.objects import Metadata, Pod, PodToSchedule

MOST_SEARCHES: Final = 16  # a search scans all bytes; decoding all names costs about as much as this many searches
_decoder: Final = Decoder(list[str])


class NodeNames:
    """The node names of one call as JSON: thousands, of which few are needed, so they are searched before they are decoded.

    A name with escapes is found only after decoding.
    """

    __slots__ = ("_count", "_raw", "_read", "_searches", "_set")

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._count: int | None = None
        self._searches = 0
        self._read: list[str] | None = None
        self._set: frozenset[str] | None = None

    def __contains__(self, name: object) -> bool:
        if self._set is None:
            if self._searches < MOST_SEARCHES:
                self._searches += 1
                return f'"{name}"'.encode() in self._raw
            self._set = frozenset(self.listed())
        return name in self._set

    def __iter__(self) -> Iterator[str]:
        return iter(self.listed())

    def __len__(self) -> int:
        if self._count is None:
            # No name has a comma in it. Between the names of compact JSON, which kube-scheduler sends, three bytes are found in a
            # quarter of the time of one.
            commas = self._raw.count(b'","') or self._raw.count(b",")
            self._count = commas + (b'"' in self._raw)
        return self._count

    def listed(self) -> list[str]:
        """All names; UnreadableError if they cannot be read."""
        if self._read is None:
            self._read = _decoder.decode(self._raw)
        return self._read


T = TypeVar("T")


class _NodeList(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw] | None = None


class _NamedObject(msgspec.Struct, frozen=True):
    metadata: Metadata


class _FilterArguments(msgspec.Struct, rename="pascal", frozen=True):
    pod: PodToSchedule | None = None
    nodes: _NodeList | None = None
    node_names: msgspec.Raw = msgspec.Raw()


class _LowerFilterArguments(msgspec.Struct, rename="lower", frozen=True):
    pod: PodToSchedule | None = None
    nodes: _NodeList | None = None
    nodenames: msgspec.Raw = msgspec.Raw()


class _MetaPod(msgspec.Struct, rename="upper", frozen=True):
    uid: str = ""


class _MetaVictims(msgspec.Struct, rename="pascal", frozen=True):
    pods: list[_MetaPod] | None = None
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class _Victims(msgspec.Struct, rename="pascal", frozen=True):
    pods: list[Pod] | None = None
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class _PreemptArguments(msgspec.Struct, rename="pascal", frozen=True):
    pod: PodToSchedule | None = None
    node_name_to_victims: dict[str, _Victims] | None = None
    node_name_to_meta_victims: dict[str, _MetaVictims] | None = None


class BindArguments(msgspec.Struct, rename="pascal", frozen=True):
    pod_name: str
    pod_namespace: str
    node: str
    pod_uid: str = msgspec.field(name="PodUID")


class FilterCall(msgspec.Struct, frozen=True):
    """A filter or prioritize call: a pod and its candidate nodes, by name or as whole objects."""

    pod: PodToSchedule
    nodes: NodeNames
    objects: Mapping[str, msgspec.Raw] | None = None

    @property
    def names(self) -> list[str]:
        """All names; UnreadableError if they cannot be read."""
        try:
            return self.nodes.listed()
        except UnreadableError as error:
            raise UnreadableError(f"the message cannot be read: NodeNames: {error}") from error


@dataclass(frozen=True, slots=True)
class Victims:
    uids: list[str]
    pdb_violations: int


@dataclass(frozen=True, slots=True)
class PreemptionCall:
    pod: PodToSchedule
    proposals: dict[str, Victims]


class FilterAnswer(msgspec.Struct, frozen=True):
    names: Sequence[str]
    curable: Mapping[str, str] = msgspec.field(default_factory=dict)
    incurable: Mapping[str, str] = msgspec.field(default_factory=dict)


_filter: Final = Decoder(_FilterArguments)
_lower_filter: Final = Decoder(_LowerFilterArguments)
_preempt: Final = Decoder(_PreemptArguments)
_bind: Final = Decoder(BindArguments)
_named: Final = Decoder(_NamedObject)


def read_filter_call(body: bytes) -> FilterCall:
    arguments = _decode(_filter, body)
    pod, nodes, names = arguments.pod, arguments.nodes, arguments.node_names
    if pod is None:
        lower = _decode(_lower_filter, body)
        pod, nodes, names = lower.pod, lower.nodes, lower.nodenames
    if pod is None:
        raise UnreadableError("the message has no Pod")
    raw = bytes(names)
    if raw.startswith(b"["):
        return FilterCall(pod, NodeNames(raw))
    if raw not in (b"", b"null"):
        raise UnreadableError(f"the message cannot be read: NodeNames is {raw[:40].decode(errors='replace')}, which is no list")
    objects = {_decode(_named, bytes(raw)).metadata.name: raw for raw in (nodes.items if nodes else None) or ()}
    return FilterCall(pod, NodeNames(orjson.dumps(list(objects))), objects)


def read_preemption_call(body: bytes) -> PreemptionCall:
    arguments = _decode(_preempt, body)
    if arguments.pod is None:
        raise UnreadableError("the message has no Pod")
    proposals = {
        node: Victims([pod.uid for pod in victims.pods or ()], victims.num_pdb_violations)
        for node, victims in (arguments.node_name_to_meta_victims or {}).items()
    } or {
        node: Victims([pod.metadata.uid for pod in victims.pods or ()], victims.num_pdb_violations)
        for node, victims in (arguments.node_name_to_victims or {}).items()
    }
    return PreemptionCall(arguments.pod, proposals)


def read_bind(body: bytes) -> BindArguments:
    return _decode(_bind, body)


def write_filter_answer(answer: FilterAnswer, asked: FilterCall) -> bytes:
    """The answer in the form of the call: names for names, objects for objects."""
    reply: dict[str, Any] = {
        "Nodes": None,
        "NodeNames": list(answer.names),
        # Both maps name the incurable: kube-scheduler before 1.21 reads the first only, from 1.21 on the second one wins.
        "FailedNodes": {**answer.curable, **answer.incurable},
        "FailedAndUnresolvableNodes": answer.incurable,
        "Error": "",
    }
    if asked.objects is not None:
        reply["NodeNames"] = None
        reply["Nodes"] = {"metadata": {}, "items": [orjson.Fragment(bytes(asked.objects[name])) for name in answer.names]}
    return orjson.dumps(reply)


def write_filter_error(error: str) -> bytes:
    return orjson.dumps({"Nodes": None, "NodeNames": None, "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": error})


def write_preemption_answer(chosen: Mapping[str, Victims]) -> bytes:
    return orjson.dumps(
        {
            "NodeNameToMetaVictims": {
                node: {"Pods": [{"UID": uid} for uid in victims.uids], "NumPDBViolations": victims.pdb_violations}
                for node, victims in chosen.items()
            }
        }
    )


def write_bind_answer(error: str = "") -> bytes:
    return orjson.dumps({"Error": error})


class ScoreWriter:
    """Writes score lists. Nearly every node of a long list scores 0, so that part of its JSON is kept ready."""

    def __init__(self) -> None:
        self._zero: dict[str, bytes] = {}

    def write(self, names: Iterable[str], scores: Mapping[str, int]) -> bytes:
        zero = self._zero
        parts: list[bytes] = []
        for name in names:
            if name in scores:
                parts.append(orjson.dumps({"Host": name, "Score": scores[name]}))
                continue
            part = zero.get(name)
            if part is None:
                if len(zero) > 50_000:
                    zero.clear()
                part = zero[name] = orjson.dumps({"Host": name, "Score": 0})
            parts.append(part)
        return b"[" + b",".join(parts) + b"]"


def _decode(decoder: Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except UnreadableError as error:
        raise UnreadableError(f"the message cannot be read: {error}") from error
