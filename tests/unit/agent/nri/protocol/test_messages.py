"""Bytes from the socket become messages or a WireError, and the helpers read and build messages as NRI means them."""

from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from accelshare.agent.nri.protocol import nri_pb2, ttrpc_pb2
from accelshare.agent.nri.protocol.errors import WireError
from accelshare.agent.nri.protocol.messages import adjustment, decode, environment, event_mask, is_privileged
from accelshare.agent.nri.protocol.nri_pb2 import (
    Container,
    CreateContainerRequest,
    Event,
    LinuxContainer,
    LinuxDevice,
    LinuxDeviceCgroup,
    LinuxResources,
    Mount,
    OptionalInt64,
    OptionalUInt32,
    PodSandbox,
    StateChangeEvent,
)

MESSAGES: tuple[Any, ...] = tuple(
    kind
    for module in (nri_pb2, ttrpc_pb2)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Message)
)
REQUEST = CreateContainerRequest(
    pod=PodSandbox(id="p", name="train-7", annotations={"a": "b"}),
    container=Container(
        id="c", env=["A=1"], mounts=[Mount(destination="/d")], linux=LinuxContainer(devices=[LinuxDevice(path="/dev/a", minor=7)])
    ),
).SerializeToString()


@given(st.sampled_from(MESSAGES), st.binary(max_size=400))
def test_any_bytes_are_a_message_or_a_wire_error(kind: type[Message], data: bytes) -> None:
    try:
        message = decode(kind, data)
    except WireError:
        return
    assert decode(kind, message.SerializeToString()) == message


@given(st.data())
def test_damaged_bytes_are_a_message_or_a_wire_error(data: st.DataObject) -> None:
    """Damaged messages reach further into the decoder than noise does."""
    raw = bytearray(REQUEST)
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert isinstance(decode(CreateContainerRequest, bytes(raw)), CreateContainerRequest)
    except WireError:
        pass


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\x0a", "corrupt"),  # a length is missing
        (b"\x0a\x05ab", "corrupt"),  # 5 bytes announced, 2 sent
        (b"\x00\x00", "corrupt"),  # field 0
        (b"\x0b", "corrupt"),  # a group that does not end
        (b"\x0a\x01\xff", "UTF-8"),
        (b"\x32\x03\x0a\x01\xff", "UTF-8"),  # the key of an annotation
    ],
)
def test_bad_bytes_are_an_error_with_type_and_cause(data: bytes, problem: str) -> None:
    with pytest.raises(WireError, match=rf"^{len(data)} bytes are not a PodSandbox: .*{problem}"):
        decode(PodSandbox, data)


def test_unknown_fields_of_every_wire_type_are_skipped() -> None:
    """A newer runtime may send more than we know."""
    unknown = b"\x98\x06\x05" + b"\x99\x06" + bytes(8) + b"\x9a\x06\x03abc" + b"\x9d\x06" + bytes(4)
    pod = decode(PodSandbox, unknown + PodSandbox(name="a").SerializeToString() + unknown)
    assert pod.name == "a"


def test_an_unknown_event_is_a_number() -> None:
    assert decode(StateChangeEvent, b"\x08\x63").event == 99


def test_an_empty_message_is_sent_and_a_zero_is_not() -> None:
    """The runtime reads an absent uid as its own choice, and an empty message as uid 0."""
    assert LinuxDevice(major=0).SerializeToString() == b""
    assert LinuxDevice(uid=OptionalUInt32(value=0)).SerializeToString() == b"\x32\x00"


def test_text_that_is_not_unicode_and_numbers_out_of_range_are_errors() -> None:
    """The caller answers the runtime with the error (test_ttrpc.py)."""
    with pytest.raises(UnicodeEncodeError):
        PodSandbox(name="\udc80")
    with pytest.raises(ValueError, match="out of range"):
        LinuxDevice(major=2**63)


def test_event_n_is_bit_n_minus_1() -> None:
    assert event_mask([Event.CREATE_CONTAINER, Event.VALIDATE_CONTAINER_ADJUSTMENT, Event.CREATE_CONTAINER]) == 1 << 3 | 1 << 13


def test_the_later_of_two_variables_counts() -> None:
    assert environment(Container(env=["A=1", "B=x=y", "A=2", "C"])) == {"A": "2", "B": "x=y", "C": ""}


@pytest.mark.parametrize(
    ("rule", "privileged"),
    [
        (LinuxDeviceCgroup(allow=True), True),
        (LinuxDeviceCgroup(allow=True, type="a"), True),
        (LinuxDeviceCgroup(type="a"), False),
        (LinuxDeviceCgroup(allow=True, type="c"), False),
        (LinuxDeviceCgroup(allow=True, major=OptionalInt64(value=0)), False),
    ],
)
def test_a_container_that_may_use_every_device_is_privileged(rule: LinuxDeviceCgroup, privileged: bool) -> None:
    rules = [LinuxDeviceCgroup(), rule]
    assert is_privileged(Container(linux=LinuxContainer(resources=LinuxResources(devices=rules)))) is privileged


def test_an_adjustment_without_devices_has_no_linux_part() -> None:
    assert adjustment().SerializeToString() == b""
    assert [device.path for device in adjustment(devices=[LinuxDevice(path="/dev/a")]).linux.devices] == ["/dev/a"]
