import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelshare.agent.nri.protocol.errors import Code, GoneError, StatusError, WireError
from accelshare.agent.nri.protocol.messages import decode
from accelshare.agent.nri.protocol.ttrpc import Packet, Packets, PacketType, PendingCalls, packet, response_packet
from accelshare.agent.nri.protocol.ttrpc_pb2 import Request, Response, Status

CALL = Request(service="s", method="m").SerializeToString()


def response(raw: bytes, *, call: int = 7) -> Response:
    """The one response in these bytes."""
    (received,) = Packets().feed(raw)
    assert (received.call, received.type) == (call, PacketType.RESPONSE)
    return decode(Response, received.data)


def test_an_answer_is_the_payload() -> None:
    def answer(request: Request) -> bytes:
        return request.payload[::-1]

    raw = Request(service="s", method="m", payload=b"abc").SerializeToString()
    assert response(response_packet(7, raw, answer)) == Response(payload=b"cba")


@pytest.mark.parametrize(
    ("raised", "code", "text"),
    [
        (StatusError(Code.UNKNOWN, "no card"), Code.UNKNOWN, "no card"),
        (ZeroDivisionError("a bug"), Code.INTERNAL, "m: ZeroDivisionError: a bug"),
        (WireError("bad bytes"), Code.INVALID_ARGUMENT, "m: bad bytes"),
        (StatusError(Code.UNKNOWN, "\udc80"), Code.UNKNOWN, "\\udc80"),
        (StatusError(Code.UNKNOWN, "x" * 5_000_000), Code.UNKNOWN, "x" * 4000),
    ],
)
def test_every_failure_is_an_error_response(raised: Exception, code: Code, text: str) -> None:
    def answer(_request: Request) -> bytes:
        raise raised

    assert response(response_packet(7, CALL, answer)).status == Status(code=code, message=text)


def test_an_answer_that_is_too_large_is_an_error() -> None:
    """Sent, it would close the connection, and the container would start without its card."""

    def answer(_request: Request) -> bytes:
        return bytes(4 * 2**20)

    status = response(response_packet(7, CALL, answer)).status
    assert "at most 4194304" in status.message


@given(st.binary(max_size=200))
def test_any_request_has_an_answer(data: bytes) -> None:
    def answer(_request: Request) -> bytes:
        return b""

    response(response_packet(7, data, answer))


@given(st.lists(st.binary(max_size=64), max_size=20))
def test_any_bytes_are_packets_or_a_wire_error(chunks: list[bytes]) -> None:
    reader = Packets()
    try:
        for chunk in chunks:
            list(reader.feed(chunk))
    except WireError:
        pass


def test_a_packet_that_is_too_large_is_refused_at_its_header() -> None:
    with pytest.raises(WireError, match=r"call 1 .* 4194305 bytes"):
        list(Packets().feed((4 * 2**20 + 1).to_bytes(4, "big") + b"\0\0\0\1\2\0"))
    with pytest.raises(WireError, match="request of 4194305 bytes"):
        packet(1, PacketType.REQUEST, bytes(4 * 2**20 + 1))


async def test_calls_have_odd_numbers_and_get_their_own_answers() -> None:
    calls = PendingCalls()
    (first, one), (second, two) = calls.begin(), calls.begin()
    assert (first, second) == (1, 3)
    calls.finish(Packet(second, PacketType.RESPONSE, Response(payload=b"2").SerializeToString()))
    calls.finish(Packet(first, PacketType.RESPONSE, Response(status=Status(code=5, message="not there")).SerializeToString()))
    calls.finish(Packet(99, PacketType.RESPONSE, b""))
    assert await two == b"2"
    with pytest.raises(StatusError, match="not there"):
        await one


async def test_calls_end_with_the_connection() -> None:
    calls = PendingCalls()
    _, waiting = calls.begin()
    calls.fail(GoneError("closed"))
    with pytest.raises(GoneError, match="closed"):
        await waiting
