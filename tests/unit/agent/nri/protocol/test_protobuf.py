from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelshare.agent.device_plugin.api import kubelet_device_plugin_pb2 as google
from accelshare.agent.nri.protocol import protobuf
from accelshare.agent.nri.protocol.errors import WireError
from accelshare.agent.nri.protocol.messages import (
    Adjustment,
    ConfigureRequest,
    ConfigureResponse,
    Container,
    ContainerRequest,
    CreateContainerResponse,
    LinuxDevice,
    OptionalNumber,
    PodSandbox,
    RegisterPluginRequest,
    StateChange,
    SynchronizeRequest,
    SynchronizeResponse,
)
from accelshare.agent.nri.protocol.protobuf import decode, encode
from accelshare.agent.nri.protocol.ttrpc import Request, Response

MESSAGES: tuple[Any, ...] = (
    Adjustment,
    ConfigureRequest,
    ConfigureResponse,
    Container,
    ContainerRequest,
    CreateContainerResponse,
    PodSandbox,
    RegisterPluginRequest,
    Request,
    Response,
    StateChange,
    SynchronizeRequest,
    SynchronizeResponse,
)


@dataclass(frozen=True, slots=True)
class Everything:
    """A field of every kind."""

    text: Annotated[str, 1] = ""
    content: Annotated[bytes, 2] = b""
    number: Annotated[int, 3] = 0
    flag: Annotated[bool, 4] = False
    by_name: Annotated[Mapping[str, str], 5] = field(default_factory=dict)
    texts: Annotated[tuple[str, ...], 16] = ()
    one: Annotated[LinuxDevice | None, 17] = None
    many: Annotated[tuple[LinuxDevice, ...], 1000] = ()


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.integers(-(2**63), 2**63 - 1)
devices = st.builds(LinuxDevice, texts, texts, numbers, numbers, st.none() | st.builds(OptionalNumber, numbers))
everything = st.builds(
    Everything,
    texts,
    st.binary(max_size=20),
    numbers,
    st.booleans(),
    st.dictionaries(texts, texts, max_size=4),
    st.lists(texts, max_size=4).map(tuple),
    st.none() | devices,
    st.lists(devices, max_size=4).map(tuple),
)


@given(everything)
def test_what_is_written_is_read(message: Everything) -> None:
    assert decode(Everything, encode(message)) == message


@given(st.sampled_from(MESSAGES), st.binary(max_size=400))
def test_any_bytes_are_a_message_or_a_wire_error(kind: type[Any], data: bytes) -> None:
    try:
        message = decode(kind, data)
    except WireError:
        return
    assert decode(kind, encode(message)) == message


@given(everything, st.data())
def test_damaged_bytes_are_a_message_or_a_wire_error(message: Everything, data: st.DataObject) -> None:
    """Near misses reach further into the codec than noise does."""
    raw = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 3))):
        if raw:
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert isinstance(decode(Everything, bytes(raw)), Everything)
    except WireError:
        pass


@given(
    st.dictionaries(texts, texts, max_size=4),
    st.lists(st.tuples(texts, texts, st.booleans()), max_size=4),
    st.lists(texts, max_size=3),
)
def test_the_bytes_are_those_of_googles_codec(env: dict[str, str], mounts: list[tuple[str, str, bool]], names: list[str]) -> None:
    """Both read what the other writes."""

    theirs = google.ContainerAllocateResponse(
        envs=env,
        mounts=[google.Mount(container_path=a, host_path=b, read_only=c) for a, b, c in mounts],
        cdi_devices=[google.CdiDevice(name=name) for name in names],
    )
    ours = _Response(env, tuple(_Mount(*mount) for mount in mounts), tuple(_Name(name) for name in names))
    assert decode(_Response, theirs.SerializeToString()) == ours
    assert google.ContainerAllocateResponse.FromString(encode(ours)) == theirs


@dataclass(frozen=True, slots=True)
class _Mount:
    container_path: Annotated[str, 1] = ""
    host_path: Annotated[str, 2] = ""
    read_only: Annotated[bool, 3] = False


@dataclass(frozen=True, slots=True)
class _Name:
    name: Annotated[str, 1] = ""


@dataclass(frozen=True, slots=True)
class _Response:
    envs: Annotated[Mapping[str, str], 1] = field(default_factory=dict)
    mounts: Annotated[tuple[_Mount, ...], 2] = ()
    cdi_devices: Annotated[tuple[_Name, ...], 5] = ()


def test_unknown_fields_of_every_wire_type_are_skipped() -> None:
    """A newer peer may say more than we know."""
    unknown = b"\x98\x06\x05" + b"\x99\x06" + bytes(8) + b"\x9a\x06\x03abc" + b"\x9d\x06" + bytes(4)
    assert decode(PodSandbox, unknown + encode(PodSandbox(name="a")) + unknown) == PodSandbox(name="a")


def test_an_empty_message_is_there_and_a_zero_is_not() -> None:
    """The runtime takes an absent uid for its own choice, and an empty one for 0."""
    assert encode(LinuxDevice(major=0)) == b""
    assert encode(LinuxDevice(uid=OptionalNumber(0))) == b"\x32\x00"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x0a", "a number ends in its middle"),
        (b"\x0a\x05ab", "field 1 says 5 bytes, but only 2 are left"),
        (b"\x09abc", "field 1 says 8 bytes, but only 3 are left"),
        (b"\x08\x01", r"PodSandbox.id \(field 1\) has wire type 0; it must be 2"),
        (b"\x0b", "field 1 has the unknown wire type 3"),
        (b"\x00\x00", "a field has the number 0"),
        (b"\x0a\x01\xff", "not UTF-8"),
        (b"\x18" + b"\xff" * 11, "more than 10 bytes"),
        (b"\x18" + b"\xff" * 9 + b"\x7f", "it must fit into 64 bits"),
        (b"\x32\x02\x0a\x05", "field 1 says 5 bytes, but only 0 are left"),
    ],
)
def test_bad_bytes_are_named(data: bytes, words: str) -> None:
    with pytest.raises(WireError, match=words):
        decode(PodSandbox, data)


def test_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few megabytes of nothing must not become millions of objects."""
    monkeypatch.setattr(protobuf, "MOST_FIELDS", 1000)
    assert len(decode(SynchronizeRequest, b"\x0a\x00" * 1000).pods) == 1000
    with pytest.raises(WireError, match="more than 1000 fields"):
        decode(SynchronizeRequest, b"\x0a\x00" * 1001)
    nested = encode(ContainerRequest(container=Container(env=("A=1",) * 1000)))
    with pytest.raises(WireError, match="more than 1000 fields"):
        decode(ContainerRequest, nested)
    with pytest.raises(WireError, match="at most 4194304 may come"):
        decode(SynchronizeRequest, bytes(4 * 2**20 + 1))


def test_what_cannot_be_written_is_named() -> None:
    with pytest.raises(WireError, match="cannot be written as UTF-8"):
        encode(PodSandbox(name="\udc80"))
    with pytest.raises(WireError, match="does not fit into 64 bits"):
        encode(LinuxDevice(major=2**63))


def test_a_type_that_the_codec_does_not_know_is_named() -> None:
    with pytest.raises(TypeError, match=r"_Odd.price is <class 'float'>, which this codec does not know"):
        encode(_Odd(1.0))


@dataclass(frozen=True, slots=True)
class _Odd:
    price: Annotated[float, 1] = 0.0
