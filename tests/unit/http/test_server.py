"""The HTTP server, byte by byte: responses in order, limits, and requests in flight at its end; and where it listens."""

import asyncio
import contextlib
import gc
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import uvloop

from accelshare.http import open_connections
from accelshare.http import server as server_module
from accelshare.http.idle_connections import IdleConnections
from accelshare.http.messages import AbortConnection, HttpRequest, Response
from accelshare.http.open_connections import OpenConnections
from accelshare.http.server import ListenError, Server, listen
from accelshare.http.server_connection import ServerConnection
from accelshare.install.certificates import x509

LIMIT_S = 60.0


class Client:
    """One connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def response(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the next response."""
        async with asyncio.timeout(LIMIT_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            status, *lines = head.strip().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines)
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return int(status.split()[1]), headers, body

    async def rest(self) -> bytes:
        """Everything until the server closes the connection."""
        async with asyncio.timeout(LIMIT_S):
            return await self.reader.read()


@contextlib.asynccontextmanager
async def open_server(
    handle: Callable[..., object], *, client: ssl.SSLContext | None = None, **limits: Any
) -> AsyncIterator[Callable[..., contextlib.AbstractAsyncContextManager[Client]]]:
    async def respond(request: HttpRequest) -> Response:
        response = handle(request.method, request.path, request.body)
        return await response if asyncio.iscoroutine(response) else response  # type: ignore[return-value]

    listening = socket.create_server(("127.0.0.1", 0))
    address = listening.getsockname()

    @contextlib.asynccontextmanager
    async def call(*, tls: bool = True) -> AsyncIterator[Client]:
        reader, writer = await asyncio.open_connection(*address, ssl=client if tls else None)
        try:
            yield Client(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async with Server(respond, listening, max_body_bytes=1000, **limits):
        yield call


def contexts(directory: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For a server, and for a client that trusts it."""
    now, life = datetime.now(UTC), timedelta(hours=1)
    authority = x509.authority("ours", now=now, life=2 * life)
    leaf = x509.leaf(authority, "server", "extender", names={"127.0.0.1"}, now=now, life=life)
    (directory / "server.pem").write_text(leaf.certificate + leaf.key)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(directory / "server.pem")
    return server, ssl.create_default_context(cadata=authority.certificate)


def mirror(method: str, path: str, body: bytes) -> Response:
    return Response(200, f"{method} {path} {body.decode()}".encode(), "text/plain")


async def test_responses_have_the_order_of_their_requests() -> None:
    """Also if they arrive together and the first takes longest."""
    released = asyncio.Event()

    async def slow_first(method: str, path: str, body: bytes) -> Response:
        if path == "/0":
            await released.wait()
        return mirror(method, path, body)

    async with open_server(slow_first) as call, call() as connection:
        connection.writer.write(b"".join(b"POST /%d HTTP/1.1\r\nContent-Length: 1\r\n\r\n%d" % (n, n) for n in range(5)))
        await asyncio.sleep(0.05)
        released.set()
        assert [(await connection.response())[2] for _ in range(5)] == [b"POST /%d %d" % (n, n) for n in range(5)]
        connection.writer.write(b"GET /again HTTP/1.1\r\n\r\n")
        assert (await connection.response())[2] == b"GET /again "


async def test_a_client_that_sends_before_it_reads_gets_every_response() -> None:
    """The server reads no further requests while it cannot write responses."""
    large, times = b"x" * 500_000, 20
    listening = socket.create_server(("127.0.0.1", 0))
    async with Server(lambda _: Response(200, large, "text/plain"), listening, max_body_bytes=1000):
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        connection = Client(reader, writer)
        for _ in range(times):
            writer.write(b"GET /more HTTP/1.1\r\n\r\n")
            await asyncio.sleep(0.005)
        assert [len((await connection.response())[2]) for _ in range(times)] == [len(large)] * times
        writer.write(b"GET /again HTTP/1.1\r\n\r\n")
        assert (await connection.response())[0] == 200
        writer.close()


async def test_other_connections_are_served_between_the_pieces_of_a_large_response() -> None:
    """The response is complete and precedes the next one of its connection; other connections do not wait for it."""
    pieces = [bytes([number % 256]) * 1000 for number in range(3000)]
    turns = []

    def handle(_method: str, path: str, _body: bytes) -> Response:
        turns.append(path)
        return Response(200, b"start", more=pieces) if path == "/large" else Response(200, b"small")

    async with open_server(handle) as call, call() as one, call() as other:
        one.writer.write(
            b"GET /large HTTP/1.1\r\nhost: x\r\n\r\nHEAD /large HTTP/1.1\r\nhost: x\r\n\r\nGET /next HTTP/1.1\r\nhost: x\r\n\r\n"
        )
        while not turns:
            await asyncio.sleep(0)
        other.writer.write(b"GET /small HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await other.response())[2] == b"small"
        assert turns == ["/large", "/small"], "the next one of its own connection comes after it"
        assert (await one.response())[2] == b"start" + b"".join(pieces)
        head = (await one.reader.readuntil(b"\r\n\r\n")).decode()
        assert "content-length: 3000005\r\n" in head
        assert (await one.response())[2] == b"small"


async def test_a_request_may_be_cut_anywhere() -> None:
    request = b"POST /a%20b?x=1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    async with open_server(mirror) as call, call() as connection:
        for place in range(len(request)):
            connection.writer.write(request[place : place + 1])
            await asyncio.sleep(0)
        assert (await connection.response())[2] == b"POST /a b abcde"


async def test_the_response_to_head_has_a_date_and_no_body() -> None:
    async with open_server(mirror) as call, call() as connection:
        connection.writer.write(b"HEAD /x HTTP/1.1\r\n\r\nGET /y HTTP/1.1\r\nConnection: close\r\n\r\n")
        came = await connection.rest()
    head, other = came.split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert b"content-length: 8\r\n" in head
    assert b"date: " in head
    assert head.endswith(b"\r\n\r\n")
    assert other.endswith(b"connection: close\r\n\r\nGET /y ")


@pytest.mark.parametrize(
    ("request_", "status", "words"),
    [
        (b"hello\r\n\r\n", 400, b"not HTTP/1.1"),
        (b"GET / HTTP/1.1\r\nX: " + b"y" * 70_000 + b"\r\n\r\n", 431, b"longer than 65536"),
        (b"GET /" + b"y" * 70_000 + b" HTTP/1.1\r\n\r\n", 431, b"longer than 65536"),
        (b"POST / HTTP/1.1\r\nContent-Length: 1001\r\n\r\n", 413, b"--max-body-mib"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" + b"x" * 1001, 413, b"--max-body-mib"),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", 400, b"not HTTP/1.1"),
    ],
)
async def test_what_cannot_be_read_is_refused_after_what_could(request_: bytes, status: int, words: bytes) -> None:
    """The response before it is sent, the connection is closed, and the server serves other connections."""
    async with open_server(mirror) as call:
        async with call() as connection:
            connection.writer.write(b"GET /first HTTP/1.1\r\n\r\n" + request_)
            assert (await connection.response())[2] == b"GET /first "
            code, headers, body = await connection.response()
            assert (code, headers["connection"], words in body) == (status, "close", True)
            assert await connection.rest() == b""
        async with call() as connection:
            connection.writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert (await connection.response())[0] == 200


@pytest.mark.parametrize(
    "before",
    [
        b"GET / HTTP/1.1\r\nX: ",
        b"GET / HTTP/1.1\r\n" + b"X",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nTrailer: ",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;extension=",
    ],
    ids=["value", "name", "trailer", "extension"],
)
async def test_an_endless_header_is_refused_while_it_arrives(before: bytes) -> None:
    """The parser keeps it until it is complete, at a cost that grows with each piece, so incomplete headers count."""
    async with open_server(mirror) as call, call() as connection:
        connection.writer.write(before)
        response = asyncio.ensure_future(connection.response())
        with contextlib.suppress(ConnectionError):
            for _ in range(200):  # 6.4 MB
                connection.writer.write(b"y" * 32_000)
                await connection.writer.drain()
                if response.done():
                    break
        assert (await response)[0] == 431


@pytest.mark.parametrize("blank", [b"\r\n" * 16_000])
async def test_blank_lines_before_a_request_are_counted_too(blank: bytes) -> None:
    async with open_server(mirror) as call, call() as connection:
        response = asyncio.ensure_future(connection.response())
        with contextlib.suppress(ConnectionError):
            while not response.done():
                connection.writer.write(blank)
                await connection.writer.drain()
                await asyncio.sleep(0)
        assert (await response)[0] == 431


async def test_a_port_may_have_a_shorter_head() -> None:
    async with open_server(mirror, max_head_bytes=100) as call, call() as connection:
        connection.writer.write(b"GET / HTTP/1.1\r\nX: " + b"y" * 100 + b"\r\n\r\n")
        assert (await connection.response())[0] == 431


async def test_100_continue_is_sent_after_the_responses_before_it() -> None:
    """The first request is still being handled when the head of the second expects 100 Continue."""
    begun, released = asyncio.Event(), asyncio.Event()

    async def slow_first(method: str, path: str, body: bytes) -> Response:
        if path == "/first":
            begun.set()
            await released.wait()
        return mirror(method, path, body)

    async with open_server(slow_first) as call, call() as connection:
        head = b"POST /second HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
        connection.writer.write(b"GET /first HTTP/1.1\r\n\r\n" + head)
        await begun.wait()
        await asyncio.sleep(0)
        released.set()
        assert (await connection.response())[2] == b"GET /first "
        assert (await connection.response())[0] == 100
        connection.writer.write(b"ok")
        assert (await connection.response())[2] == b"POST /second ok"


async def test_a_client_that_does_not_wait_gets_no_100_continue() -> None:
    """HTTP/1.0 has no 100 Continue, and a body that has arrived needs none."""
    async with open_server(mirror) as call:
        async with call() as connection:
            connection.writer.write(b"POST / HTTP/1.0\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nok")
            assert (await connection.response())[2] == b"POST / ok"
        async with call() as connection:
            first = b"GET /metrics HTTP/1.1\r\n\r\n"
            connection.writer.write(first + b"POST / HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nok")
            assert (await connection.response())[2] == b"GET /metrics "
            assert (await connection.response())[2] == b"POST / ok"


@pytest.mark.parametrize("paths", [["/a"], ["/a", "/b"]], ids=["one", "two"])
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_client_that_closes_its_half_gets_its_response(loop: Callable[[], asyncio.AbstractEventLoop], paths: list[str]) -> None:
    """A bind that is carried out gets its response, also if the client has closed its half of the connection."""
    carried_out: list[str] = []

    async def bind(method: str, path: str, body: bytes) -> Response:
        await asyncio.sleep(0.05)
        carried_out.append(path)
        return mirror(method, path, body)

    async def main() -> None:
        async with open_server(bind) as call, call() as connection:
            for path in paths:
                connection.writer.write(b"POST %s HTTP/1.1\r\nContent-Length: 0\r\n\r\n" % path.encode())
            connection.writer.write_eof()
            came = await connection.rest()
        assert carried_out == paths
        assert came.count(b"HTTP/1.1 200 OK") == len(paths)
        assert came.endswith(f"POST {paths[-1]} ".encode())

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


async def test_a_request_of_a_client_that_has_disconnected_is_not_handled() -> None:
    """No client waits for it, and its handler has not begun."""
    carried_out: list[str] = []

    async def bind() -> Response:
        carried_out.append("bind")
        return Response(200, b"")

    connection = ServerConnection(
        lambda _: bind(), OpenConnections(max_bytes=1000), address="x", max_body_bytes=1000, max_head_bytes=1000
    )
    transport = Mock(asyncio.Transport, is_closing=Mock(return_value=False))
    connection.connection_made(transport)
    connection.data_received(b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
    transport.is_closing.return_value = True
    assert connection.responding is not None
    await connection.responding
    assert carried_out == []


async def test_connections_above_the_limit_are_dropped() -> None:
    """The one that was idle longest is dropped for each new one."""
    async with open_server(mirror, max_connections=3) as call, contextlib.AsyncExitStack() as connections:
        everybody = [await connections.enter_async_context(call()) for _ in range(3)]
        for connection in everybody:
            connection.writer.write(b"GET /first HTTP/1.1\r\n\r\n")
            await connection.response()
        everybody[0].writer.write(b"GET /again HTTP/1.1\r\n\r\n")
        await everybody[0].response()
        late = await connections.enter_async_context(call())
        late.writer.write(b"GET /late HTTP/1.1\r\n\r\n")
        assert (await late.response())[2] == b"GET /late "
        with contextlib.suppress(ConnectionError):
            assert await everybody[1].rest() == b""
        for connection in (everybody[0], everybody[2]):
            connection.writer.write(b"GET /still HTTP/1.1\r\n\r\n")
            assert (await connection.response())[2] == b"GET /still "


async def test_a_connection_whose_request_is_being_handled_is_not_dropped() -> None:
    """A new connection is closed instead."""
    released = asyncio.Event()

    async def slow(method: str, path: str, body: bytes) -> Response:
        await released.wait()
        return mirror(method, path, body)

    async with open_server(slow, max_connections=2) as call, call() as one, call() as other:
        for connection in (one, other):
            connection.writer.write(b"POST /bind HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
        await asyncio.sleep(0.1)
        async with call() as late:
            with contextlib.suppress(ConnectionError):
                assert await late.rest() == b""
        released.set()
        assert [(await connection.response())[2] for connection in (one, other)] == [b"POST /bind "] * 2


async def test_many_connections_of_one_address_do_not_displace_another_address() -> None:
    """The dropped one is of the address with most connections, even if others were idle for longer."""
    connections = OpenConnections(max_bytes=1000)

    def handle(request: HttpRequest) -> Response:
        return mirror(request.method, request.path, request.body)

    def come(address: str, idle_since: float) -> ServerConnection:
        connection = ServerConnection(handle, connections, address=address, max_body_bytes=1000, max_head_bytes=1000)
        connection.connection_made(Mock(asyncio.Transport, is_closing=lambda: False))
        connection.idle_since = idle_since
        connections.add(connection)
        return connection

    scheduler = come("10.0.0.1", 1.0)
    crowd = [come("10.0.0.66", 100.0 + number) for number in range(5)]
    for _ in range(4):
        assert connections.drop_one()
    assert connections == {scheduler, crowd[4]}


@pytest.mark.parametrize("over_tls", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_client_that_reads_nothing_of_its_response_is_aborted(
    loop: Callable[[], asyncio.AbstractEventLoop], over_tls: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "UNREAD_S", 0.1)
    monkeypatch.setattr(server_module, "CHECK_EVERY_S", 0.05)
    pieces = [b"x" * 100_000] * 300
    server, client = contexts(tmp_path) if over_tls else (None, None)

    async def main() -> None:
        limits = {"tls": lambda: server} if server is not None else {}
        async with open_server(lambda *_: Response(200, b"", more=pieces), client=client, **limits) as call, call() as connection:
            connection.writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await connection.reader.readexactly(1000)
            connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
            async with asyncio.timeout(LIMIT_S):
                while not connection.writer.is_closing():
                    connection.writer.write(b"\r\n")  # only a write notices an aborted connection
                    await asyncio.sleep(0.05)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_unfinished_handshakes_count_as_connections(loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path) -> None:
    """They are dropped first, so clients with a certificate stay and new ones are accepted."""
    server, client = contexts(tmp_path)

    async def main() -> None:
        async with (
            open_server(mirror, client=client, tls=lambda: server, max_connections=3) as call,
            contextlib.AsyncExitStack() as connections,
        ):
            early = await connections.enter_async_context(call())
            silent = [await connections.enter_async_context(call(tls=False)) for _ in range(5)]
            late = await connections.enter_async_context(call())
            for connection in (early, late):
                connection.writer.write(b"GET / HTTP/1.1\r\n\r\n")
                assert (await connection.response())[0] == 200
            for connection in silent[:4]:
                with contextlib.suppress(ConnectionError):
                    assert await connection.rest() == b""

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


async def test_unread_responses_of_all_clients_together_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty clients request a page and do not read it: memory stays below the limit, and a client that reads is served."""
    monkeypatch.setattr(server_module, "MAX_UNREAD_BYTES", 12_000_000)
    asked: list[str] = []

    def page(_method: str, path: str, _body: bytes) -> Response:
        asked.append(path)
        return Response(200, b"", more=[b"x" * 100_000 for _ in range(40)])  # 4 MB, made anew for each

    async with open_server(page) as call, contextlib.AsyncExitStack() as connections:
        silent = [await connections.enter_async_context(call()) for _ in range(60)]
        for connection in silent:
            connection.reader._transport.pause_reading()  # type: ignore[attr-defined]
            connection.writer.write(b"GET / HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(LIMIT_S):
            while len(asked) < 60 or sum(not connection.writer.is_closing() for connection in silent) > 3:
                for connection in silent:
                    connection.writer.write(b"\r\n")  # only a write notices an aborted connection
                await asyncio.sleep(0.05)
        reader = await connections.enter_async_context(call())
        reader.writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert len((await reader.response())[2]) == 4_000_000


async def test_incomplete_bodies_together_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is aborted, so that a body that arrives at once is read."""
    monkeypatch.setattr(server_module, "MAX_UNREAD_BYTES", 1000)
    async with open_server(mirror) as call, contextlib.AsyncExitStack() as connections:
        slow = [await connections.enter_async_context(call()) for _ in range(5)]
        for connection in slow:
            connection.writer.write(b"POST / HTTP/1.1\r\nContent-Length: 1000\r\n\r\n" + b"x" * 900)
            await asyncio.sleep(0.05)
        quick = await connections.enter_async_context(call())
        quick.writer.write(b"POST / HTTP/1.1\r\nContent-Length: 1000\r\n\r\n" + b"y" * 1000)
        assert (await quick.response())[0] == 200
        with contextlib.suppress(ConnectionError):
            assert await slow[0].rest() == b""


async def test_a_client_that_waits_for_100_continue_gets_it() -> None:
    async with open_server(mirror) as call, call() as connection:
        connection.writer.write(b"POST / HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert (await connection.response())[0] == 100
        connection.writer.write(b"ok")
        assert (await connection.response())[2] == b"POST / ok"


@pytest.mark.parametrize("head", [b"GET / HTTP/1.0\r\n\r\n", b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"])
async def test_a_protocol_upgrade_gets_an_http_1_1_response_and_a_close(head: bytes) -> None:
    async with open_server(mirror) as call, call() as connection:
        connection.writer.write(head)
        assert (await connection.rest()).endswith(b"connection: close\r\n\r\nGET / ")


async def test_a_handler_that_fails_is_a_500_and_the_connection_stays() -> None:
    def fails_once(method: str, path: str, body: bytes) -> Response:
        if path == "/bad":
            raise RuntimeError("surprise")
        return mirror(method, path, body)

    async with open_server(fails_once) as call, call() as connection:
        connection.writer.write(b"GET /bad HTTP/1.1\r\n\r\nGET /good HTTP/1.1\r\n\r\n")
        status, _, body = await connection.response()
        assert (status, b"surprise" in body) == (500, False)
        assert (await connection.response())[2] == b"GET /good "


async def test_a_client_that_does_not_read_gets_no_further_responses() -> None:
    """They would accumulate in memory."""
    handled: list[str] = []

    def large(method: str, path: str, body: bytes) -> Response:
        handled.append(path)
        return Response(200, b"x" * 4_000_000)

    async with open_server(large) as call, call() as connection:
        connection.writer.write(b"".join(b"GET /%d HTTP/1.1\r\n\r\n" % n for n in range(9)))
        before = -1
        while len(handled) > before:  # until it is stuck
            before = len(handled)
            await asyncio.sleep(0.2)
        assert len(handled) < 9
        assert [len((await connection.response())[2]) for _ in range(9)] == [4_000_000] * 9


async def test_a_response_that_can_wait_comes_when_the_client_keeps_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client keeps two idle connections. The third response waits until a request takes one of them."""
    monkeypatch.setattr(open_connections, "IdleConnections", partial(IdleConnections, longest_delay_s=LIMIT_S))
    held = asyncio.Event()
    handled = asyncio.Queue[str]()

    async def handle(method: str, path: str, body: bytes) -> Response:
        if path == "/held":
            await held.wait()
        handled.put_nowait(path)
        return Response(200, path.encode(), can_wait=True)

    async with open_server(handle) as call, call() as first, call() as second, call() as third:
        for client in (first, second, third):
            client.writer.write(b"POST /now HTTP/1.1\r\n\r\n")
            await handled.get()
        assert [(await client.response())[2] for client in (first, second)] == [b"/now", b"/now"]
        waiting = asyncio.create_task(third.response())
        first.writer.write(b"POST /held HTTP/1.1\r\n\r\n")
        assert (await waiting)[2] == b"/now"
        held.set()
        second.writer.write(b"POST /now HTTP/1.1\r\n\r\n")  # makes room for the response to the first
        assert (await first.response())[2] == b"/held"


async def test_an_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one with an incomplete request."""
    monkeypatch.setattr(server_module, "KEEP_ALIVE_S", 0.1)
    monkeypatch.setattr(server_module, "CHECK_EVERY_S", 0.05)
    async with open_server(mirror) as call, call() as idle, call() as slow:
        slow.writer.write(b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nx")
        assert await idle.rest() == b""
        assert await slow.rest() == b""


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_at_the_end_what_is_in_flight_is_finished(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    begun, released = asyncio.Event(), asyncio.Event()

    async def slow(method: str, path: str, body: bytes) -> Response:
        begun.set()
        await released.wait()
        return mirror(method, path, body)

    async def main() -> None:
        async with contextlib.AsyncExitStack() as connections:
            async with open_server(slow) as call:
                busy, idle = await connections.enter_async_context(call()), await connections.enter_async_context(call())
                busy.writer.write(b"GET / HTTP/1.1\r\n\r\n")
                await begun.wait()
                asyncio.get_running_loop().call_later(0.2, released.set)
            assert await idle.rest() == b""
            assert (await busy.rest()).endswith(b"connection: close\r\n\r\nGET / ")

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


async def test_stop_does_not_wait_for_a_client_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that does not read its response cannot keep the process running."""
    monkeypatch.setattr(server_module, "CLOSE_S", 0.1)

    def large(method: str, path: str, body: bytes) -> Response:
        return Response(200, b"x" * 50_000_000)

    async with contextlib.AsyncExitStack() as connections:
        async with open_server(large) as call:
            connection = await connections.enter_async_context(call())
            connection.writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await connection.reader.readexactly(1000)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await connection.reader.readexactly(49_000_000)


class Ticks:
    """A stream that never ends; it records whether it was closed."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        number = 0
        while True:
            yield b"%d" % (number := number + 1)
            await asyncio.sleep(0.001)

    async def aclose(self) -> None:
        self.closed.set()


async def test_a_stream_is_sent_in_chunks_until_its_end() -> None:
    class Short(Ticks):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield b"a"
            yield b"bc"

    stream = Short()
    async with open_server(lambda *_: Response(200, b"", stream=stream)) as call, call() as connection:
        connection.writer.write(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
        head, _, body = (await connection.rest()).partition(b"\r\n\r\n")
        assert b"transfer-encoding: chunked" in head
        assert body == b"1\r\na\r\n2\r\nbc\r\n0\r\n\r\n"
        await stream.closed.wait()


async def test_a_stream_is_closed_when_its_client_disconnects() -> None:
    stream = Ticks()
    async with open_server(lambda *_: Response(200, b"", stream=stream)) as call:
        async with call() as connection:
            connection.writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await connection.reader.readuntil(b"1\r\n3")
        async with asyncio.timeout(LIMIT_S):
            await stream.closed.wait()


async def test_a_handler_can_close_the_connection_without_a_response() -> None:
    def abort(*_: object) -> Response:
        raise AbortConnection

    async with open_server(abort) as call, call() as connection:
        connection.writer.write(b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            assert await connection.rest() == b""


needs_ipv6 = pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="the kernel has no IPv6")


def reached(port: int, *addresses: str) -> list[str]:
    """Those of these addresses that accept connections."""
    found = []
    for address in addresses:
        try:
            socket.create_connection((address, port), timeout=10).close()
        except OSError:
            continue
        found.append(address)
    return found


@needs_ipv6
def test_without_a_host_it_listens_on_ipv6_and_ipv4() -> None:
    with listen("", 0) as listening:
        listening.listen()
        assert reached(listening.getsockname()[1], "127.0.0.1", "::1") == ["127.0.0.1", "::1"]


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::1", marks=needs_ipv6)])
def test_with_a_host_only_there(host: str) -> None:
    with listen(host, 0) as listening:
        listening.listen()
        assert reached(listening.getsockname()[1], "127.0.0.1", "::1") == [host]


def test_without_ipv6_it_listens_on_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with listen("", 0) as listening:
        listening.listen()
        assert reached(listening.getsockname()[1], "127.0.0.1") == ["127.0.0.1"]


def test_a_port_that_is_taken_is_named() -> None:
    with listen("127.0.0.1", 0) as first:
        first.listen()
        port = first.getsockname()[1]
        with pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
            listen("127.0.0.1", port)


@pytest.mark.parametrize("turns", range(6))
async def test_a_connection_that_is_accepted_when_the_server_stops_is_closed(turns: int) -> None:
    """However far the event loop has come with it, the client sees the end of its connection, and no socket is left open."""
    listening = listen("127.0.0.1", 0)
    server = Server(Mock(), listening, max_body_bytes=1000)
    server.start()
    await asyncio.sleep(0)  # it listens
    with socket.create_connection(listening.getsockname()) as client:
        client.settimeout(LIMIT_S)
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.stop()
        try:
            assert await asyncio.to_thread(client.recv, 1) == b""
        except ConnectionResetError:
            pass  # it was not accepted
    gc.collect()  # a socket that nobody closed is a warning, and so an error
