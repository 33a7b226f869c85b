"""Decodes lists of pods and nodes in protobuf, which costs the API server and us less than JSON.

Belongs here: from bytes to the parts of objects that accelshare reads (objects.py), the same as JSON gives. Never: their meaning.

protobuf checks types, and refuses text that is not UTF-8 and more than 100 levels of nesting. The API server stores text that is
not UTF-8 if a user sends it in protobuf, and replaces it in JSON, so a page that cannot be read here is asked for in JSON.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from google.protobuf.message import DecodeError, Message

from accelshare.wire import kubernetes_pb2 as messages
from accelshare.wire.decoding import LONGEST_PROBLEM, PROTOBUF_MAGIC, ListPage, UnreadableError
from accelshare.wire.list_splitter import ListSplitter
from accelshare.wire.objects import (
    Address,
    Condition,
    Container,
    Metadata,
    Node,
    NodeStatus,
    Pod,
    PodSpec,
    PodStatus,
    Quantity,
    Resources,
)

T = TypeVar("T", bound=Message)

LONGEST_CACHED: Final = 1_000  # bytes of a container's resources
CACHED_RESOURCES: Final = 4_096
CACHED_SECONDS: Final = 4_096
_IS_THERE: Final = msgspec.Raw(b"{}")
_IS_ABSENT: Final = msgspec.Raw()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class MessageList(NamedTuple):
    """A kind of list, and the message that it comes in."""

    envelope: type[messages.PodListEnvelope] | type[messages.NodeListEnvelope]
    list: type[messages.PodList] | type[messages.NodeList]

    def page(self, body: bytes) -> ListPage:
        listed = _decode(self.envelope, body).list
        # A copy of a repeated field is a list, which is read several times as fast.
        return ListPage(listed.items[:], listed.metadata.resource_version, listed.metadata.continue_token, binary=True)

    def stream(self) -> "MessageStream":
        return MessageStream(self.list)


class MessageStream:
    """A list that is decoded while it comes, so that no more of it than the newest piece is in memory."""

    def __init__(self, kind: type[messages.PodList] | type[messages.NodeList]) -> None:
        self._kind = kind
        self._splitter = ListSplitter()
        self._goes_on = False
        self.resource_version = ""

    @property
    def complete(self) -> bool:
        return self._splitter.complete and not self._goes_on

    def feed(self, piece: bytes) -> Sequence[Any]:
        part = self._splitter.feed(piece)
        if not part:
            return ()
        listed = _parsed(self._kind, part)
        self.resource_version = self.resource_version or listed.metadata.resource_version
        self._goes_on = self._goes_on or bool(listed.metadata.continue_token)
        return listed.items[:]


# Their items are `messages.Pod` and `messages.Node`.
PODS: Final = MessageList(messages.PodListEnvelope, messages.PodList)
NODES: Final = MessageList(messages.NodeListEnvelope, messages.NodeList)


def pod_of(message: messages.Pod) -> Pod:
    """The same as `objects.pod_decoder` makes of the pod's JSON; labels and annotations are views of the message."""
    spec, status = message.spec, message.status
    containers, init_containers, conditions = spec.containers, spec.init_containers, status.conditions
    return Pod(
        metadata_of(message.metadata),
        PodSpec(
            spec.node_name,
            spec.service_account_name,
            spec.priority,
            [_container(container) for container in containers[:]],
            [_container(container) for container in init_containers[:]] if init_containers else None,
            _amounts(spec.overhead),
            _resources(spec.resources),
            _IS_THERE if spec.scheduling_group else _IS_ABSENT,
            _IS_THERE if spec.workload_ref else _IS_ABSENT,
        ),
        PodStatus(
            status.phase,
            status.reason,
            status.message,
            _time(status.start_time.seconds) if status.HasField("start_time") else None,
            [Condition(condition.type, condition.status) for condition in conditions[:]] if conditions else None,
        ),
    )


def has_binding(status: messages.PodStatus) -> bool:
    """As `objects.has_binding` tells."""
    conditions = status.conditions
    return bool(conditions) and any(each.type == "PodScheduled" and each.status == "True" for each in conditions[:])


def node_of(message: messages.Node) -> Node:
    status = message.status
    addresses = [Address(address.type, address.address) for address in status.addresses[:]] or None
    return Node(metadata_of(message.metadata), NodeStatus(_amounts(status.capacity), _amounts(status.allocatable), addresses))


def metadata_of(message: messages.ObjectMeta) -> Metadata:
    return Metadata(
        message.name,
        message.namespace,
        message.uid,
        message.resource_version,
        creation_of(message),
        message.labels,
        message.annotations,
    )


def creation_of(message: messages.ObjectMeta) -> str | None:
    seconds = message.creation_timestamp.seconds
    return _time(seconds) if seconds else None


def _container(message: messages.Container) -> Container:
    return Container(message.name, _resources(message.resources), message.restart_policy or None)


def _resources(encoded: bytes) -> Resources | None:
    if not encoded:
        return None
    return _same_resources(encoded) if len(encoded) <= LONGEST_CACHED else _decode_resources(encoded)


def _decode_resources(encoded: bytes) -> Resources:
    message = _parsed(messages.ResourceRequirements, encoded)
    return Resources(_amounts(message.limits), _amounts(message.requests))


# There are few templates and many pods. Nobody changes what was decoded.
_same_resources: Final = lru_cache(maxsize=CACHED_RESOURCES)(_decode_resources)


def _amounts(message: Mapping[str, messages.Quantity]) -> dict[str, Quantity] | None:
    return {name: quantity.text for name, quantity in message.items()} if message else None


@lru_cache(maxsize=CACHED_SECONDS)
def _time(seconds: int) -> str:
    """As JSON has it."""
    try:
        return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    except OverflowError as error:
        raise UnreadableError(f"{seconds} seconds is no time") from error


def _decode(kind: type[T], body: bytes) -> T:
    if not body.startswith(PROTOBUF_MAGIC):
        raise UnreadableError("it does not begin as the API server's protobuf does")
    return _parsed(kind, memoryview(body)[len(PROTOBUF_MAGIC) :])


def _parsed(kind: type[T], encoded: Any) -> T:
    try:
        return kind.FromString(encoded)
    except DecodeError as error:
        raise UnreadableError(str(error)[:LONGEST_PROBLEM]) from error
