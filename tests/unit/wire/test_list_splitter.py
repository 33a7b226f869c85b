"""A list in protobuf is split between its objects, wherever the pieces end in which it comes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelshare.wire import kubernetes_pb2 as messages
from accelshare.wire import list_splitter, protobuf
from accelshare.wire.decoding import PROTOBUF_MAGIC, UnreadableError
from accelshare.wire.list_splitter import ListSplitter

# What the API server sends around the list: apiVersion and kind before it, two empty fields after it.
TYPE = b"\x0a\x0d\x0a\x02v1\x12\x07PodList"
END = b"\x1a\x00\x22\x00"


def number(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


def response(listed: bytes) -> bytes:
    return PROTOBUF_MAGIC + TYPE + b"\x12" + number(len(listed)) + listed + END


def pods(*names: str) -> messages.PodList:
    metadata = messages.ListMeta(resource_version="7")
    return messages.PodList(metadata=metadata, items=[messages.Pod(metadata=messages.ObjectMeta(name=name)) for name in names])


@given(st.lists(st.text(max_size=300), max_size=12), st.lists(st.integers(0, 3000), max_size=20))
def test_any_pieces_give_the_same_objects(names: list[str], cuts: list[int]) -> None:
    body = response(pods(*names).SerializeToString())
    places = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    stream = protobuf.PODS.stream()
    found = [item.metadata.name for start, end in pairwise(places) for item in stream.feed(body[start:end])]
    assert found == names == [item.metadata.name for item in protobuf.PODS.page(body).items]
    assert (stream.resource_version, stream.complete) == ("7", True)


def test_byte_by_byte() -> None:
    body = response(pods("a", "b" * 200, "c" * 20_000).SerializeToString())
    splitter = ListSplitter()
    parts = b"".join(bytes(splitter.feed(body[at : at + 1])) for at in range(len(body)))
    assert messages.PodList.FromString(parts) == pods("a", "b" * 200, "c" * 20_000)
    assert splitter.complete


def test_a_list_that_breaks_off_is_not_complete() -> None:
    body = response(pods("a", "b").SerializeToString())[: -len(END) - 1]
    stream = protobuf.PODS.stream()
    assert [item.metadata.name for item in stream.feed(body)] == ["a"]
    assert not stream.complete


def test_an_empty_list_is_complete() -> None:
    splitter = ListSplitter()
    assert bytes(splitter.feed(response(b""))) == b""
    assert splitter.complete


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"k8s\1",
        PROTOBUF_MAGIC + b"\x08\x01",
        PROTOBUF_MAGIC + b"\xff" * 12,
        response(b"\x12\x05abc"),
        response(b"\x15abcd"),
        PROTOBUF_MAGIC + b"\x12" + number(9_000) + b"\x12" + number(2_000) + bytes(1_500),
    ],
    ids=["json", "other-magic", "not-a-length", "endless-number", "too-short", "fixed-width", "huge"],
)
def test_what_is_no_list_is_refused(monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    monkeypatch.setattr(list_splitter, "LARGEST_OBJECT", 1_000)
    with pytest.raises(UnreadableError):
        ListSplitter().feed(body)
