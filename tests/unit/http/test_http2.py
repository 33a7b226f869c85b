"""HTTP/2 connections to the server, against the h2 library as the client: requests, limits, and what breaks the protocol."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
import hpack
import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from accelshare.http import http2_connection, http2_frames
from accelshare.http.http2_connection import MAX_STREAMS, Http2Connection
from accelshare.http.http2_frames import ErrorCode
from accelshare.http.messages import AbortConnection, HttpRequest, Response
from accelshare.http.open_connections import OpenConnections
from accelshare.http.server import Server, listen
from tests.unit.http.test_server import contexts

MAX_BODY_BYTES = 100_000
LIMIT_S = 60.0


def mirror(request: HttpRequest) -> Response:
    return Response(200, f"{request.method} {request.target} {len(request.body)}".encode(), "text/plain")


class Peer:
    """A client and the server's side of its connection, without sockets. Sans I/O, so a test decides what arrives when."""

    def __init__(self, handle: Callable[[HttpRequest], Response | Awaitable[Response]] = mirror, **config: Any) -> None:
        self.connections = OpenConnections(max_bytes=10 * MAX_BODY_BYTES)
        self.connection = Http2Connection(
            handle, self.connections, address="x", max_body_bytes=MAX_BODY_BYTES, max_head_bytes=4096
        )
        self.connections.add(self.connection)
        self.written = bytearray()
        self.closed = False
        self.transport = Mock(
            asyncio.Transport,
            write=self.written.extend,
            close=self._close,
            abort=self._close,
            is_closing=lambda: self.closed,
            get_extra_info=lambda _name: None,
        )
        self.cut = 1 << 20
        self.events: list[h2.events.Event] = []
        self.client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8", **config))
        self.client.initiate_connection()
        self.connection.connection_made(self.transport)

    def _close(self) -> None:
        if not self.closed:
            self.closed = True
            self.connection.connection_lost(None)

    def exchange(self, *, cut: int = 1 << 20) -> None:
        """Deliver what both have sent, in pieces of `cut` bytes to the server."""
        while True:
            received, self.written[:] = bytes(self.written), b""
            self.events += self.client.receive_data(received) if received else []
            sent = self.client.data_to_send()
            for start in range(0, len(sent), cut):
                if not self.closed:
                    self.connection.data_received(sent[start : start + cut])
            if not sent and not self.written:
                return

    def send(self, path: str = "/filter", body: bytes = b"", method: str = "POST", headers: dict[str, str] | None = None) -> int:
        stream = self.client.get_next_available_stream_id()
        head = [(":method", method), (":path", path), (":scheme", "https"), (":authority", "extender"), *(headers or {}).items()]
        self.client.send_headers(stream, head, end_stream=not body)
        while body:
            size = min(len(body), 16_000, self.client.local_flow_control_window(stream))
            if size:
                self.client.send_data(stream, body[:size], end_stream=size == len(body))
            body = body[size:]
            if body:
                self.exchange(cut=self.cut)
            if self.ended(stream):
                break  # refused before it was complete
        return stream

    def raw(self, kind: int, flags: int, stream: int, payload: bytes = b"") -> None:
        self.exchange()
        self.connection.data_received(http2_frames.frame(kind, flags, stream, payload))
        self.exchange()

    def body(self, stream: int) -> bytes:
        return b"".join(event.data or b"" for event in self._of(stream, h2.events.DataReceived))

    def head(self, stream: int) -> dict[str, str]:
        (event,) = self._of(stream, h2.events.ResponseReceived)
        return dict(event.headers)

    def ended(self, stream: int) -> bool:
        return any(self._of(stream, h2.events.StreamEnded))

    def reset_code(self, stream: int) -> int | None:
        return next((int(event.error_code) for event in self._of(stream, h2.events.StreamReset)), None)

    @property
    def goodbye(self) -> int | None:
        """The code with which the server ended the connection."""
        ends = [event for event in self.events if isinstance(event, h2.events.ConnectionTerminated)]
        return int(ends[0].error_code or 0) if ends else None

    def has_unread(self) -> bool:
        return self.connection.unread_since is not None

    def _of(self, stream: int, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind) and getattr(event, "stream_id", None) == stream]


async def test_a_request_gets_its_response() -> None:
    peer = Peer()
    first = peer.send("/filter?x=%20", b"x" * 50_000)
    second = peer.send("/readyz", method="GET")
    peer.exchange()
    assert peer.body(first) == b"POST /filter?x=%20 50000"
    assert peer.body(second) == b"GET /readyz 0"
    head = peer.head(first)
    assert (head[":status"], head["content-type"], head["content-length"]) == ("200", "text/plain", "24")
    assert head["date"].endswith("GMT")
    assert peer.ended(first)
    assert peer.ended(second)
    assert peer.connection.held_bytes == 0


@settings(max_examples=50, deadline=None)
@given(cut=st.integers(1, 3000), sizes=st.lists(st.integers(0, 30_000), min_size=1, max_size=4))
def test_requests_may_arrive_in_any_pieces(cut: int, sizes: list[int]) -> None:
    async def main() -> None:
        peer = Peer()
        peer.cut = cut
        streams = [peer.send(f"/{number}", b"x" * size) for number, size in enumerate(sizes)]
        peer.exchange(cut=cut)
        expected = [f"POST /{number} {size}".encode() for number, size in enumerate(sizes)]
        assert [peer.body(stream) for stream in streams] == expected

    asyncio.run(main())


async def test_a_bind_that_waits_delays_no_other_request() -> None:
    released = asyncio.Event()

    async def bind() -> Response:
        await released.wait()
        return Response(200, b"bound")

    peer = Peer(lambda request: bind() if request.path == "/bind" else mirror(request))
    waiting = peer.send("/bind")
    peer.exchange()
    other = peer.send("/filter")
    peer.exchange()
    assert peer.ended(other)
    assert not peer.ended(waiting)
    assert peer.connection.handling is not None
    released.set()
    await asyncio.gather(*peer.connection.tasks)
    await asyncio.sleep(0)
    peer.exchange()
    assert peer.body(waiting) == b"bound"
    assert peer.connection.handling is None


def binds_whose_responses_can_wait(request: HttpRequest) -> Response | Awaitable[Response]:
    async def bind() -> Response:
        return Response(200, b"bound", can_wait=True)

    return bind() if request.path == "/bind" else mirror(request)


async def bound(peer: Peer) -> int:
    """A bind that was handled; nothing is delivered to the client."""
    peer.exchange()
    stream = peer.send("/bind")
    peer.connection.data_received(peer.client.data_to_send())
    await asyncio.gather(*peer.connection.tasks)
    return stream


async def test_a_response_that_can_wait_is_written_with_the_next_one() -> None:
    """Each write wakes the client."""
    peer = Peer(binds_whose_responses_can_wait)
    first, second = await bound(peer), await bound(peer)
    assert not peer.written
    other = peer.send("/filter")
    peer.exchange()
    assert [peer.body(stream) for stream in (first, second, other)] == [b"bound", b"bound", b"POST /filter 0"]
    assert [event.stream_id for event in peer.events if isinstance(event, h2.events.StreamEnded)] == [first, second, other]


async def test_a_response_that_can_wait_does_not_wait_for_long() -> None:
    peer = Peer(binds_whose_responses_can_wait)
    stream = await bound(peer)
    async with asyncio.timeout(LIMIT_S):
        while not peer.written:
            await asyncio.sleep(0)
    peer.exchange()
    assert peer.body(stream) == b"bound"


async def test_no_response_waits_when_the_connection_ends() -> None:
    """The response is written when the server stops, when the client sends no more, and when one begins after that."""
    stopped, ended = Peer(binds_whose_responses_can_wait), Peer(binds_whose_responses_can_wait)
    await bound(stopped)
    stopped.connection.close_when_idle()
    assert b"bound" in stopped.written
    await bound(ended)
    ended.connection.eof_received()
    assert b"bound" in ended.written
    late = Peer(binds_whose_responses_can_wait)
    late.exchange()
    late.send("/bind")
    late.connection.data_received(late.client.data_to_send())
    late.connection.close_when_idle()
    await asyncio.gather(*late.connection.tasks)
    assert b"bound" in late.written


async def test_a_lost_connection_leaves_no_timer() -> None:
    peer = Peer(binds_whose_responses_can_wait)
    await bound(peer)
    peer.connection.abort()
    async with asyncio.timeout(LIMIT_S):
        await peer.connection.closed
    assert not peer.connections


@pytest.mark.parametrize("status", [200, 404, 413, 503])
async def test_statuses_and_headers_are_those_of_the_response(status: int) -> None:
    long = "y" * 300
    peer = Peer(lambda _: Response(status, b"{}", headers=(f"X-Long: {long}",)))
    stream = peer.send()
    peer.exchange()
    assert peer.head(stream)[":status"] == str(status)
    assert peer.head(stream)["x-long"] == long


async def test_a_stream_needs_http_1_1_and_is_closed() -> None:
    closed: list[bool] = []

    class Endless:
        def __aiter__(self) -> AsyncIterator[bytes]:
            raise AssertionError("it is not read")

        async def aclose(self) -> None:
            closed.append(True)

    peer = Peer(lambda _: Response(200, b"", stream=Endless()))
    stream = peer.send()
    peer.exchange()
    await asyncio.gather(*peer.connection.tasks)
    assert peer.reset_code(stream) == ErrorCode.HTTP_1_1_REQUIRED
    assert closed == [True]


async def test_the_response_to_head_has_no_body() -> None:
    peer = Peer(lambda _: Response(200, b"12345"))
    stream = peer.send(method="HEAD")
    peer.exchange()
    assert peer.head(stream)["content-length"] == "5"
    assert peer.body(stream) == b""
    assert peer.ended(stream)


async def test_a_large_response_is_sent_as_far_as_the_client_asks_for_it() -> None:
    """Flow control: the rest comes with the client's next window, and what waits is counted."""
    pieces = [bytes([number]) * 10_000 for number in range(20)]
    peer = Peer(lambda _: Response(200, b"start", more=pieces))
    stream = peer.send()
    peer.exchange()
    assert len(peer.body(stream)) == http2_frames.DEFAULT_WINDOW
    assert peer.connection.held_bytes == 200_005 - http2_frames.DEFAULT_WINDOW
    assert peer.connection.unread_since is not None
    while not peer.ended(stream):
        before = len(peer.body(stream))
        peer.client.increment_flow_control_window(30_000)
        peer.client.increment_flow_control_window(30_000, stream_id=stream)
        peer.exchange()
        assert len(peer.body(stream)) > before
    assert peer.body(stream) == b"start" + b"".join(pieces)
    assert peer.connection.held_bytes == 0
    assert peer.connection.unread_since is None


async def test_nothing_is_read_of_a_client_that_does_not_read() -> None:
    peer = Peer(lambda _: Response(200, b"x" * 60_000))
    peer.exchange()
    peer.connection.pause_writing()
    peer.transport.pause_reading.assert_called_once()
    stream = peer.send()
    peer.exchange()
    assert not peer.ended(stream)
    peer.connection.resume_writing()
    peer.transport.resume_reading.assert_called_once()
    peer.exchange()
    assert peer.ended(stream)


async def test_the_client_s_smaller_window_holds_for_requests_under_way() -> None:
    peer = Peer(lambda _: Response(200, b"x" * 50_000))
    peer.client.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 100})
    stream = peer.send()
    peer.exchange()
    assert len(peer.body(stream)) == 100
    peer.client.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 60_000})
    peer.exchange()
    assert peer.ended(stream)


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "undeclared"])
async def test_a_body_that_is_too_large_is_refused(declared: bool) -> None:
    peer = Peer()
    size = MAX_BODY_BYTES + 5000
    stream = peer.send(body=b"x" * size, headers={"content-length": str(size)} if declared else None)
    peer.exchange()
    assert peer.head(stream)[":status"] == "413"
    assert str(MAX_BODY_BYTES).encode() in peer.body(stream)
    assert peer.connection.held_bytes == 0
    again = peer.send(body=b"small")
    peer.exchange()
    assert peer.ended(again)


@pytest.mark.parametrize("length", ["3", "6", "x", "9" * 30])
async def test_a_body_of_another_length_than_declared_is_refused(length: str) -> None:
    peer = Peer()
    peer.client.config.validate_outbound_headers = False
    stream = peer.client.get_next_available_stream_id()
    head = [(":method", "POST"), (":path", "/"), (":scheme", "https"), (":authority", "x"), ("content-length", length)]
    peer.client.send_headers(stream, head)
    peer.client.send_data(stream, b"12345", end_stream=True)
    peer.exchange()
    assert peer.reset_code(stream) == ErrorCode.PROTOCOL_ERROR or peer.head(stream)[":status"] == "413"
    assert peer.goodbye is None


@pytest.mark.parametrize(
    "head",
    [
        [(":path", "/"), (":scheme", "https")],
        [(":method", "POST"), (":scheme", "https")],
        [(":method", "POST"), (":method", "GET"), (":path", "/")],
        [(":method", "POST"), ("x", "y"), (":path", "/")],
        [(":method", "POST"), (":path", "/"), ("content-length", "0"), ("content-length", "1")],
    ],
    ids=["no method", "no path", "two methods", "pseudo-header after others", "two lengths"],
)
async def test_a_head_that_is_none_is_refused(head: list[tuple[str, str]]) -> None:
    peer = Peer(validate_outbound_headers=False)
    stream = peer.client.get_next_available_stream_id()
    peer.client.send_headers(stream, head, end_stream=True)
    peer.exchange()
    assert peer.reset_code(stream) == ErrorCode.PROTOCOL_ERROR
    assert peer.goodbye is None
    assert peer.connection.held_bytes == 0


@pytest.mark.parametrize(("path", "is_kept"), [("/accelshare/filter", True), ("/" + "x" * 3000, False)])
def test_a_head_that_repeats_is_kept_if_it_is_small(path: str, is_kept: bool) -> None:
    encoder, reader = hpack.Encoder(), http2_frames.HeadReader(max_bytes=4096)
    fields = [(":method", "POST"), (":path", path), ("content-length", "5")]
    heads = [reader.read(encoder.encode(fields)) for _ in range(3)]
    assert heads[0] == heads[1] == heads[2]
    assert (heads[1].method, heads[1].target, heads[1].length) == ("POST", path, 5)
    assert (heads[1] is heads[2]) == is_kept


async def test_requests_above_the_limit_are_refused_so_that_the_client_may_repeat_them() -> None:
    released = asyncio.Event()

    async def wait() -> Response:
        await released.wait()
        return Response(200, b"")

    peer = Peer(lambda _: wait())
    streams = [peer.send() for _ in range(MAX_STREAMS)]
    peer.exchange()
    peer.client.remote_settings[h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS] = 10_000
    peer.client.remote_settings.acknowledge()
    one_more = peer.send()
    peer.exchange()
    assert peer.reset_code(one_more) == ErrorCode.REFUSED_STREAM
    # Resetting requests frees no place while their handlers work.
    for stream in streams:
        peer.client.reset_stream(stream)
    again = peer.send()
    peer.exchange()
    assert peer.reset_code(again) == ErrorCode.REFUSED_STREAM
    released.set()
    await asyncio.gather(*peer.connection.tasks)
    await asyncio.sleep(0)
    after = peer.send()
    peer.exchange()
    assert peer.reset_code(after) is None


async def test_a_handler_that_has_begun_outlives_its_request_and_its_connection() -> None:
    carried_out: list[str] = []
    released = asyncio.Event()

    async def bind(path: str) -> Response:
        await released.wait()
        carried_out.append(path)
        return Response(200, b"")

    peer = Peer(lambda request: bind(request.path))
    reset = peer.send("/reset")
    peer.send("/lost")
    peer.exchange()
    await asyncio.sleep(0)
    peer.client.reset_stream(reset)
    peer.exchange()
    peer.transport.abort()
    assert peer.connection in peer.connections, "until its handlers have ended"
    released.set()
    await asyncio.gather(*peer.connection.tasks)
    await asyncio.sleep(0)
    assert sorted(carried_out) == ["/lost", "/reset"]
    assert not peer.connections


async def test_a_request_that_was_reset_before_its_handler_began_is_not_handled() -> None:
    carried_out: list[str] = []

    async def bind() -> Response:
        carried_out.append("bind")
        return Response(200, b"")

    peer = Peer(lambda _: bind())
    peer.client.reset_stream(peer.send())
    peer.exchange()
    await asyncio.gather(*peer.connection.tasks)
    assert carried_out == []


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_handler_that_fails_responds_with_500(is_async: bool) -> None:
    async def later() -> Response:
        raise RuntimeError("no")

    def now(_: HttpRequest) -> Response:
        raise RuntimeError("no")

    peer = Peer((lambda _: later()) if is_async else now)
    stream = peer.send()
    peer.exchange()
    await asyncio.gather(*peer.connection.tasks)
    peer.exchange()
    assert peer.head(stream)[":status"] == "500"


async def test_a_handler_may_leave_a_request_without_response() -> None:
    def handle(request: HttpRequest) -> Response:
        if request.path == "/lost":
            raise AbortConnection
        return mirror(request)

    peer = Peer(handle)
    lost, other = peer.send("/lost"), peer.send("/other")
    peer.exchange()
    assert peer.reset_code(lost) == ErrorCode.INTERNAL_ERROR
    assert peer.ended(other)


async def test_a_standby_s_response_leads_the_client_to_another_connection() -> None:
    """What was sent before the client knew is answered; the connection closes after it."""
    released = asyncio.Event()

    async def bind() -> Response:
        await released.wait()
        return Response(200, b"bound")

    peer = Peer(lambda request: bind() if request.path == "/bind" else Response(503, b"standby", close=True))
    peer.send("/bind")
    refused = peer.send("/filter")
    peer.exchange()
    assert peer.body(refused) == b"standby"
    assert peer.goodbye == ErrorCode.NO_ERROR
    assert not peer.closed
    released.set()
    await asyncio.gather(*peer.connection.tasks)
    assert b"bound" in peer.written
    async with asyncio.timeout(LIMIT_S):
        await peer.connection.closed


async def test_a_request_that_crosses_goaway_spoils_no_other() -> None:
    """The client sent it before it knew, and repeats it elsewhere; a bind under way still gets its response."""
    released = asyncio.Event()

    async def bind() -> Response:
        await released.wait()
        return Response(200, b"bound")

    peer = Peer(lambda _: bind())
    waiting = peer.send("/bind")
    peer.exchange()
    peer.connection.close_when_idle()
    peer.send("/late", b"a body")
    peer.connection.data_received(peer.client.data_to_send())
    peer.connection.data_received(http2_frames.window_update(3, 5) + http2_frames.reset(3, ErrorCode.NO_ERROR))
    assert not peer.closed
    released.set()
    await asyncio.gather(*peer.connection.tasks)
    assert http2_frames.frame(http2_frames.DATA, http2_frames.END_STREAM, waiting, b"bound") in peer.written
    assert b"late" not in peer.written


async def test_after_goaway_the_client_may_close_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the server closed at once, a request that is on its way would fail."""
    monkeypatch.setattr(http2_connection, "GOODBYE_S", 0.01)
    peer = Peer()
    peer.exchange()
    peer.connection.close_when_idle()
    assert not peer.closed
    async with asyncio.timeout(LIMIT_S):
        await peer.connection.closed
    assert not peer.connections


async def test_a_response_that_the_client_no_longer_wants_does_not_count_as_unread() -> None:
    peer = Peer(lambda _: Response(200, b"x" * 100_000))
    stream = peer.send()
    peer.exchange()
    assert peer.has_unread()
    peer.client.reset_stream(stream)
    peer.exchange()
    assert not peer.has_unread()
    assert peer.connection.held_bytes == 0


async def test_a_refusal_that_must_wait_for_the_client_is_sent_whole() -> None:
    peer = Peer()
    peer.client.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 10})
    stream = peer.send(body=b"x" * (MAX_BODY_BYTES + 30_000))
    peer.exchange()
    assert len(peer.body(stream)) == 10
    peer.client.increment_flow_control_window(5000, stream_id=stream)
    peer.exchange()
    assert str(MAX_BODY_BYTES).encode() in peer.body(stream)
    assert peer.connection.held_bytes == 0


async def test_stopping_finishes_what_was_read_and_gives_back_what_was_not() -> None:
    peer = Peer()
    stream = peer.client.get_next_available_stream_id()
    head = [(":method", "POST"), (":path", "/"), (":scheme", "https"), (":authority", "x")]
    peer.client.send_headers(stream, head)
    peer.client.send_data(stream, b"half")
    peer.exchange()
    peer.connection.close_when_idle()
    assert peer.written.endswith(http2_frames.reset(stream, ErrorCode.REFUSED_STREAM))
    assert peer.connection.held_bytes == 0


async def test_pings_are_answered_while_a_bind_waits() -> None:
    released = asyncio.Event()

    async def wait() -> Response:
        await released.wait()
        return Response(200, b"")

    peer = Peer(lambda _: wait())
    peer.send()
    peer.client.ping(b"12345678")
    peer.exchange()
    (answer,) = [event for event in peer.events if isinstance(event, h2.events.PingAckReceived)]
    assert answer.ping_data == b"12345678"
    released.set()
    await asyncio.gather(*peer.connection.tasks)


async def test_equal_heads_mean_the_same_until_the_table_changes() -> None:
    """They are decoded once; another header in the table changes what the same bytes mean."""
    seen: list[str] = []

    def handle(request: HttpRequest) -> Response:
        seen.append(f"{request.path} {request.headers.get('x-one')} {request.headers.get('x-two')}")
        return Response(200, b"")

    peer = Peer(handle)
    for number in range(3):
        for _ in range(3):
            peer.send("/filter", headers={"x-one": "1"})
            peer.send("/bind", headers={"x-two": "2"})
        peer.send("/filter", headers={f"x-new-{number}": "3"})
    peer.exchange()
    assert seen == [*["/filter 1 None", "/bind None 2"] * 3, "/filter None None"] * 3


def request_frame(peer: Peer, stream: int, *, ends: bool = True) -> bytes:
    flags = http2_frames.END_HEADERS | (http2_frames.END_STREAM if ends else 0)
    return http2_frames.frame(
        http2_frames.HEADERS, flags, stream, peer.client.encoder.encode([(":method", "POST"), (":path", "/")])
    )


async def test_what_a_client_does_not_read_is_bounded_and_counted() -> None:
    """Also if its requests came all at once: after the first 64 kB the transport is asked."""
    peer = Peer(lambda _: Response(200, b"x" * 10_000))
    peer.client.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 2**31 - 1})
    peer.client.increment_flow_control_window(2**30)
    peer.exchange()

    def write(data: bytes) -> None:
        peer.written.extend(data)
        peer.connection.pause_writing()

    peer.transport.write = write
    peer.connection.data_received(b"".join(request_frame(peer, 1 + 2 * number) for number in range(50)))
    assert len(peer.written) < 100_000
    assert peer.connection.held_bytes > 400_000
    assert peer.has_unread()


async def test_a_client_that_stops_reading_after_the_last_piece_counts_as_not_reading() -> None:
    async def later() -> Response:
        return Response(200, b"x" * 40_000)

    peer = Peer(lambda _: later())
    peer.exchange()

    def write(data: bytes) -> None:
        peer.written.extend(data)
        if len(peer.written) > 40_000:
            peer.connection.pause_writing()

    peer.transport.write = write
    peer.send()
    peer.connection.data_received(peer.client.data_to_send())
    await asyncio.gather(*peer.connection.tasks)
    assert len(peer.written) > 40_000
    assert peer.has_unread()


async def test_requests_count_until_they_are_handled() -> None:
    """Heads and bodies, also while a handler that waits may still need them."""
    released = asyncio.Event()

    async def wait() -> Response:
        await released.wait()
        return Response(200, b"")

    peer = Peer(lambda _: wait())
    peer.exchange()
    peer.connection.data_received(request_frame(peer, 1, ends=False))
    head = peer.connection.held_bytes
    assert head > 0
    peer.connection.data_received(http2_frames.frame(http2_frames.DATA, 0, 1, b"x" * 30_000))
    assert peer.connection.held_bytes == head + 30_000
    peer.connection.data_received(http2_frames.frame(http2_frames.DATA, http2_frames.END_STREAM, 1, b"x" * 30_000))
    assert peer.connection.held_bytes == 60_000
    released.set()
    await asyncio.gather(*peer.connection.tasks)
    await asyncio.sleep(0)
    assert peer.connection.held_bytes == 0


async def test_padding_is_not_kept() -> None:
    peer = Peer()
    peer.exchange()
    peer.connection.data_received(request_frame(peer, 1, ends=False))
    before = peer.connection.held_bytes
    padded = http2_frames.frame(http2_frames.DATA, http2_frames.PADDED, 1, b"\x05abc" + b"0" * 5)
    peer.connection.data_received(padded * 100)
    assert peer.connection.held_bytes == before + 300
    assert len(peer.connection._streams[1].body) == 300


async def test_nothing_stays_counted_after_a_broken_protocol() -> None:
    peer = Peer()
    peer.exchange()
    peer.transport.close = lambda: None  # the client does not answer the shutdown
    peer.connection.data_received(request_frame(peer, 1, ends=False) + http2_frames.frame(http2_frames.DATA, 0, 1, b"x" * 50_000))
    peer.connection.data_received(http2_frames.frame(http2_frames.PUSH_PROMISE, 0, 1))
    assert peer.connection.held_bytes == 0


async def test_a_client_with_a_smaller_table_can_read_the_responses() -> None:
    peer = Peer()
    peer.client.update_settings({h2.settings.SettingCodes.HEADER_TABLE_SIZE: 0})
    peer.exchange()
    streams = [peer.send(), peer.send()]
    peer.exchange()
    assert all(peer.ended(stream) for stream in streams)


async def test_trailers_of_a_refused_body_spoil_no_other_request() -> None:
    released = asyncio.Event()

    async def bind() -> Response:
        await released.wait()
        return Response(200, b"bound")

    peer = Peer(lambda _: bind())
    peer.send("/bind")
    peer.exchange()
    head = [(":method", "POST"), (":path", "/"), (":scheme", "https"), (":authority", "x"), ("content-length", "200000")]
    peer.client.send_headers(3, head)
    trailers = http2_frames.frame(http2_frames.HEADERS, 5, 3, peer.client.encoder.encode([("x-sum", "1")]))
    peer.connection.data_received(peer.client.data_to_send() + http2_frames.frame(http2_frames.DATA, 0, 3, b"x") + trailers)
    released.set()
    await asyncio.gather(*peer.connection.tasks)
    assert not peer.closed
    assert b"bound" in peer.written


async def test_trailers_end_a_request() -> None:
    peer = Peer()
    stream = peer.client.get_next_available_stream_id()
    head = [(":method", "POST"), (":path", "/"), (":scheme", "https"), (":authority", "x")]
    peer.client.send_headers(stream, head)
    peer.client.send_data(stream, b"body", pad_length=7)
    peer.client.send_headers(stream, [("x-trailer", "y")], end_stream=True)
    peer.exchange()
    assert peer.body(stream) == b"POST / 4"


async def test_a_long_head_may_come_in_several_frames() -> None:
    peer = Peer()
    peer.exchange()
    encoder = peer.client.encoder
    block = encoder.encode([(":method", "POST"), (":path", "/" + "p" * 1000)])
    peer.connection.data_received(http2_frames.frame(http2_frames.HEADERS, http2_frames.END_STREAM, 1, block[:5]))
    peer.connection.data_received(http2_frames.frame(http2_frames.CONTINUATION, 0, 1, block[5:9]))
    peer.connection.data_received(http2_frames.frame(http2_frames.CONTINUATION, http2_frames.END_HEADERS, 1, block[9:]))
    assert b"POST /ppp" in peer.written


def _breaks() -> Iterator[Any]:
    f = http2_frames
    yield pytest.param([(f.DATA, 0, 1, b"x")], ErrorCode.PROTOCOL_ERROR, id="data without a request")
    yield pytest.param([(f.HEADERS, f.END_HEADERS, 2, b"")], ErrorCode.PROTOCOL_ERROR, id="even stream")
    yield pytest.param([(f.HEADERS, f.END_HEADERS, 0, b"")], ErrorCode.PROTOCOL_ERROR, id="stream 0")
    yield pytest.param([(f.HEADERS, f.END_HEADERS, 1, b"\xff\xff\xff\xff")], ErrorCode.COMPRESSION_ERROR, id="not HPACK")
    yield pytest.param([(f.HEADERS, f.END_HEADERS | f.PADDED, 1, b"\x09x")], ErrorCode.PROTOCOL_ERROR, id="padding")
    yield pytest.param([(f.HEADERS, 0, 1, b"\x83"), (f.PING, 0, 0, b"8" * 8)], ErrorCode.PROTOCOL_ERROR, id="head cut off")
    yield pytest.param([(f.CONTINUATION, 0, 1, b"")], ErrorCode.PROTOCOL_ERROR, id="continuation of nothing")
    yield pytest.param([(f.HEADERS, 0, 1, b"x" * 5000)], ErrorCode.ENHANCE_YOUR_CALM, id="long head")
    yield pytest.param(
        [(f.HEADERS, 0, 1, b""), *[(f.CONTINUATION, 0, 1, b"x" * 500)] * 9], ErrorCode.ENHANCE_YOUR_CALM, id="endless head"
    )
    bomb = b"\x40\x01x" + b"\x7f\xa1\x1e" + b"v" * 4000 + b"\xbe" * 50
    yield pytest.param([(f.HEADERS, f.END_HEADERS, 1, bomb)], ErrorCode.ENHANCE_YOUR_CALM, id="head of repeated values")
    yield pytest.param([(f.SETTINGS, 0, 0, b"x")], ErrorCode.FRAME_SIZE_ERROR, id="settings cut off")
    yield pytest.param([(f.SETTINGS, 0, 1, b"")], ErrorCode.PROTOCOL_ERROR, id="settings of a stream")
    yield pytest.param([(f.SETTINGS, 0, 0, b"\x00\x04\xff\xff\xff\xff")], ErrorCode.FLOW_CONTROL_ERROR, id="window setting")
    yield pytest.param([(f.SETTINGS, 0, 0, b"\x00\x05\x00\x00\x00\x01")], ErrorCode.PROTOCOL_ERROR, id="frame setting")
    yield pytest.param([(f.PING, 0, 0, b"short")], ErrorCode.FRAME_SIZE_ERROR, id="ping")
    yield pytest.param([(f.PUSH_PROMISE, 0, 1, b"")], ErrorCode.PROTOCOL_ERROR, id="push")
    yield pytest.param([(f.WINDOW_UPDATE, 0, 0, b"\x00" * 4)], ErrorCode.PROTOCOL_ERROR, id="window of 0")
    yield pytest.param([(f.WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff")], ErrorCode.FLOW_CONTROL_ERROR, id="window too large")
    yield pytest.param([(f.WINDOW_UPDATE, 0, 5, b"\x00\x00\x00\x01")], ErrorCode.PROTOCOL_ERROR, id="window of no stream")
    yield pytest.param([(f.RST_STREAM, 0, 1, b"\x00" * 4)], ErrorCode.PROTOCOL_ERROR, id="reset of no stream")
    yield pytest.param([(f.RST_STREAM, 0, 1, b"")], ErrorCode.FRAME_SIZE_ERROR, id="reset cut off")
    yield pytest.param([(f.DATA, 0, 1, b"x" * 70_000)], ErrorCode.FRAME_SIZE_ERROR, id="frame too long")
    yield pytest.param([(f.PRIORITY, 0, 1, b"")] * 1001, ErrorCode.ENHANCE_YOUR_CALM, id="empty frames")


@pytest.mark.parametrize(("sent", "code"), list(_breaks()))
async def test_a_client_that_breaks_the_protocol_is_told_so_and_closed(
    sent: list[tuple[int, int, int, bytes]], code: ErrorCode
) -> None:
    peer = Peer()
    peer.exchange()
    for each in sent:
        if not peer.closed:
            peer.connection.data_received(http2_frames.frame(*each))
    peer.events += peer.client.receive_data(bytes(peer.written))
    assert peer.goodbye == code
    assert peer.closed
    assert not peer.connections


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", http2_frames.PREFACE + b"\x00" * 9])
async def test_a_client_that_does_not_begin_with_http2_is_closed(first: bytes) -> None:
    peer = Peer()
    peer.connection.data_received(first)
    assert peer.closed
    assert not peer.connections


async def test_unknown_frames_are_ignored() -> None:
    peer = Peer()
    peer.raw(0x7F, 0xFF, 77, b"grease")
    stream = peer.send()
    peer.exchange()
    assert peer.ended(stream)


@settings(max_examples=300, deadline=None)
@given(
    sent=st.lists(
        st.tuples(st.integers(0, 11), st.sampled_from([0, 1, 4, 5, 8, 0x20, 0xFF]), st.integers(0, 7), st.binary(max_size=40)),
        max_size=15,
    ),
    noise=st.binary(max_size=30),
)
def test_no_bytes_end_in_a_failure(sent: list[tuple[int, int, int, bytes]], noise: bytes) -> None:
    """Whatever a client sends, the connection goes on or is closed, and nothing stays counted for it."""

    async def main() -> None:
        peer = Peer()
        start = peer.client.data_to_send()
        data = start + b"".join(http2_frames.frame(*each) for each in sent) + noise
        for at in range(0, len(data), 13):
            if not peer.closed:
                peer.connection.data_received(data[at : at + 13])
        peer.transport.abort()
        assert peer.connection.held_bytes == 0
        assert not peer.connections

    asyncio.run(main())


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_over_tls_the_client_chooses_the_protocol(loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path) -> None:
    server, trusting = contexts(tmp_path)
    server.set_alpn_protocols(["h2", "http/1.1"])

    async def main() -> None:
        listening = listen("127.0.0.1", 0)
        async with Server(mirror, listening, max_body_bytes=1000, tls=lambda: server):
            open_connection = partial(asyncio.open_connection, *listening.getsockname(), ssl=trusting)
            async with asyncio.timeout(LIMIT_S):
                trusting.set_alpn_protocols(["h2"])
                reader, writer = await open_connection()
                tls = writer.get_extra_info("ssl_object")
                assert isinstance(tls, ssl.SSLObject)
                assert tls.selected_alpn_protocol() == "h2"
                client = h2.connection.H2Connection()
                client.initiate_connection()
                client.send_headers(1, [(":method", "GET"), (":path", "/x"), (":scheme", "https"), (":authority", "x")], True)
                writer.write(client.data_to_send())
                events: list[h2.events.Event] = []
                while not any(isinstance(event, h2.events.StreamEnded) for event in events):
                    events += client.receive_data(await reader.read(65_536))
                assert [event.data for event in events if isinstance(event, h2.events.DataReceived)] == [b"GET /x 0"]
                writer.close()
                trusting.set_alpn_protocols(["http/1.1"])
                reader, writer = await open_connection()
                writer.write(b"GET /y HTTP/1.1\r\nconnection: close\r\n\r\n")
                assert (await reader.read()).endswith(b"GET /y 0")
                writer.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


def test_more_requests_are_allowed_than_kube_scheduler_binds_at_once() -> None:
    """POSTS_AT_ONCE of the binder is smaller: what waits there must not be refused here."""
    from accelshare.extender.binder import POSTS_AT_ONCE

    assert http2_connection.MAX_STREAMS > POSTS_AT_ONCE
