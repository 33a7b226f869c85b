"""The HTTP server, byte by byte: responses in order, limits, and requests in flight at its end; and where it listens."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import uvloop

from accelshare.http import server as server_module
from accelshare.http.messages import AbortConnection, Request, Response
from accelshare.http.server import ListenError, Server, listen
from accelshare.http.server_connection import OpenConnections, ServerConnection
from accelshare.install.certificates import x509

LIMIT_S = 60.0


class Client:
    """One connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """The next answer: its status, headers and body."""
        async with asyncio.timeout(LIMIT_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            status, *lines = head.strip().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines)
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return int(status.split()[1]), headers, body

    async def rest(self) -> bytes:
        """Everything until the port hangs up."""
        async with asyncio.timeout(LIMIT_S):
            return await self.reader.read()


@contextlib.asynccontextmanager
async def open_server(
    handle: Callable[..., object], *, client: ssl.SSLContext | None = None, **limits: Any
) -> AsyncIterator[Callable[..., contextlib.AbstractAsyncContextManager[Client]]]:
    async def respond(request: Request) -> Response:
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


def echo(method: str, path: str, body: bytes) -> Response:
    return Response(200, f"{method} {path} {body.decode()}".encode(), "text/plain")


async def test_requests_of_one_connection_are_answered_in_their_order() -> None:
    """Also when they come in one piece, and the first takes longest."""
    released = asyncio.Event()

    async def slow_first(method: str, path: str, body: bytes) -> Response:
        if path == "/0":
            await released.wait()
        return echo(method, path, body)

    async with open_server(slow_first) as call, call() as caller:
        caller.writer.write(b"".join(b"POST /%d HTTP/1.1\r\nContent-Length: 1\r\n\r\n%d" % (n, n) for n in range(5)))
        await asyncio.sleep(0.05)
        released.set()
        assert [(await caller.answer())[2] for _ in range(5)] == [b"POST /%d %d" % (n, n) for n in range(5)]
        caller.writer.write(b"GET /again HTTP/1.1\r\n\r\n")
        assert (await caller.answer())[2] == b"GET /again "


async def test_a_caller_that_asks_on_before_it_reads_is_answered_to_the_end() -> None:
    """Reading stops while answers cannot be written, and goes on when they can."""
    large, times = b"x" * 500_000, 20
    listening = socket.create_server(("127.0.0.1", 0))
    async with Server(lambda _: Response(200, large, "text/plain"), listening, max_body_bytes=1000):
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        caller = Client(reader, writer)
        for _ in range(times):
            writer.write(b"GET /more HTTP/1.1\r\n\r\n")
            await asyncio.sleep(0.005)
        assert [len((await caller.answer())[2]) for _ in range(times)] == [len(large)] * times
        writer.write(b"GET /again HTTP/1.1\r\n\r\n")
        assert (await caller.answer())[0] == 200
        writer.close()


async def test_a_large_answer_comes_in_pieces_and_others_come_in_between() -> None:
    """Whole, in order, before the next answer of its connection; who calls on another one need not wait for it."""
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
        assert (await other.answer())[2] == b"small"
        assert turns == ["/large", "/small"], "the next one of its own connection comes after it"
        assert (await one.answer())[2] == b"start" + b"".join(pieces)
        head = (await one.reader.readuntil(b"\r\n\r\n")).decode()
        assert "content-length: 3000005\r\n" in head
        assert (await one.answer())[2] == b"small"


async def test_a_request_may_be_cut_anywhere() -> None:
    request = b"POST /a%20b?x=1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    async with open_server(echo) as call, call() as caller:
        for place in range(len(request)):
            caller.writer.write(request[place : place + 1])
            await asyncio.sleep(0)
        assert (await caller.answer())[2] == b"POST /a b abcde"


async def test_a_head_has_a_date_and_no_body_if_only_it_was_asked_for() -> None:
    async with open_server(echo) as call, call() as caller:
        caller.writer.write(b"HEAD /x HTTP/1.1\r\n\r\nGET /y HTTP/1.1\r\nConnection: close\r\n\r\n")
        came = await caller.rest()
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
    """The answer before it still comes, the connection ends, and the port goes on."""
    async with open_server(echo) as call:
        async with call() as caller:
            caller.writer.write(b"GET /first HTTP/1.1\r\n\r\n" + request_)
            assert (await caller.answer())[2] == b"GET /first "
            code, headers, body = await caller.answer()
            assert (code, headers["connection"], words in body) == (status, "close", True)
            assert await caller.rest() == b""
        async with call() as caller:
            caller.writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert (await caller.answer())[0] == 200


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
async def test_what_never_ends_is_refused_as_it_comes(before: bytes) -> None:
    """The parser keeps it until it is complete, and takes longer for each piece: it is counted before it is complete."""
    async with open_server(echo) as call, call() as caller:
        caller.writer.write(before)
        answered = asyncio.ensure_future(caller.answer())
        with contextlib.suppress(ConnectionError):
            for _ in range(200):  # 6.4 MB
                caller.writer.write(b"y" * 32_000)
                await caller.writer.drain()
                if answered.done():
                    break
        assert (await answered)[0] == 431


@pytest.mark.parametrize("blank", [b"\r\n" * 16_000])
async def test_blank_lines_before_a_request_are_counted_too(blank: bytes) -> None:
    async with open_server(echo) as call, call() as caller:
        answered = asyncio.ensure_future(caller.answer())
        with contextlib.suppress(ConnectionError):
            while not answered.done():
                caller.writer.write(blank)
                await caller.writer.drain()
                await asyncio.sleep(0)
        assert (await answered)[0] == 431


async def test_a_port_may_have_a_shorter_head() -> None:
    async with open_server(echo, max_head_bytes=100) as call, call() as caller:
        caller.writer.write(b"GET / HTTP/1.1\r\nX: " + b"y" * 100 + b"\r\n\r\n")
        assert (await caller.answer())[0] == 431


async def test_our_word_comes_after_the_answer_that_is_due_before_it() -> None:
    """The first request is still being answered when the head of the second asks whether it may go on."""
    begun, released = asyncio.Event(), asyncio.Event()

    async def slow_first(method: str, path: str, body: bytes) -> Response:
        if path == "/first":
            begun.set()
            await released.wait()
        return echo(method, path, body)

    async with open_server(slow_first) as call, call() as caller:
        head = b"POST /second HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
        caller.writer.write(b"GET /first HTTP/1.1\r\n\r\n" + head)
        await begun.wait()
        await asyncio.sleep(0)
        released.set()
        assert (await caller.answer())[2] == b"GET /first "
        assert (await caller.answer())[0] == 100
        caller.writer.write(b"ok")
        assert (await caller.answer())[2] == b"POST /second ok"


async def test_who_has_not_waited_for_our_word_gets_none() -> None:
    """An old protocol knows no such word, and a body that has come needs none."""
    async with open_server(echo) as call:
        async with call() as caller:
            caller.writer.write(b"POST / HTTP/1.0\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nok")
            assert (await caller.answer())[2] == b"POST / ok"
        async with call() as caller:
            first = b"GET /metrics HTTP/1.1\r\n\r\n"
            caller.writer.write(first + b"POST / HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nok")
            assert (await caller.answer())[2] == b"GET /metrics "
            assert (await caller.answer())[2] == b"POST / ok"


@pytest.mark.parametrize("paths", [["/a"], ["/a", "/b"]], ids=["one", "two"])
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_who_sends_no_more_is_answered_all_the_same(loop: Callable[[], asyncio.AbstractEventLoop], paths: list[str]) -> None:
    """A bind that is carried out is also answered, to a caller that has closed its half of the connection."""
    carried_out: list[str] = []

    async def bind(method: str, path: str, body: bytes) -> Response:
        await asyncio.sleep(0.05)
        carried_out.append(path)
        return echo(method, path, body)

    async def main() -> None:
        async with open_server(bind) as call, call() as caller:
            for path in paths:
                caller.writer.write(b"POST %s HTTP/1.1\r\nContent-Length: 0\r\n\r\n" % path.encode())
            caller.writer.write_eof()
            came = await caller.rest()
        assert carried_out == paths
        assert came.count(b"HTTP/1.1 200 OK") == len(paths)
        assert came.endswith(f"POST {paths[-1]} ".encode())

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


async def test_what_a_caller_asked_that_is_gone_already_is_not_carried_out() -> None:
    """There is nobody to answer, and nothing has been done yet."""
    carried_out: list[str] = []

    async def bind() -> Response:
        carried_out.append("bind")
        return Response(200, b"")

    caller = ServerConnection(
        lambda _: bind(), OpenConnections(max_bytes=1000), address="x", max_body_bytes=1000, max_head_bytes=1000
    )
    transport = Mock(asyncio.Transport, is_closing=Mock(return_value=False))
    caller.connection_made(transport)
    caller.data_received(b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
    transport.is_closing.return_value = True
    assert caller.responding is not None
    await caller.responding
    assert carried_out == []


async def test_more_callers_than_agreed_are_not_kept() -> None:
    """Who has been silent for longest goes, and each new one is answered."""
    async with open_server(echo, max_connections=3) as call, contextlib.AsyncExitStack() as callers:
        everybody = [await callers.enter_async_context(call()) for _ in range(3)]
        for caller in everybody:
            caller.writer.write(b"GET /first HTTP/1.1\r\n\r\n")
            await caller.answer()
        everybody[0].writer.write(b"GET /again HTTP/1.1\r\n\r\n")
        await everybody[0].answer()
        late = await callers.enter_async_context(call())
        late.writer.write(b"GET /late HTTP/1.1\r\n\r\n")
        assert (await late.answer())[2] == b"GET /late "
        with contextlib.suppress(ConnectionError):
            assert await everybody[1].rest() == b""
        for caller in (everybody[0], everybody[2]):
            caller.writer.write(b"GET /still HTTP/1.1\r\n\r\n")
            assert (await caller.answer())[2] == b"GET /still "


async def test_nobody_is_dropped_whose_bind_is_under_way() -> None:
    """Then a new caller is refused."""
    released = asyncio.Event()

    async def slow(method: str, path: str, body: bytes) -> Response:
        await released.wait()
        return echo(method, path, body)

    async with open_server(slow, max_connections=2) as call, call() as one, call() as other:
        for caller in (one, other):
            caller.writer.write(b"POST /bind HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
        await asyncio.sleep(0.1)
        async with call() as late:
            with contextlib.suppress(ConnectionError):
                assert await late.rest() == b""
        released.set()
        assert [(await caller.answer())[2] for caller in (one, other)] == [b"POST /bind "] * 2


async def test_a_crowd_from_one_address_does_not_drive_out_another() -> None:
    """Of many idle callers one goes whose address has most of them, though others have been idle for longer."""
    callers = OpenConnections(max_bytes=1000)

    def handle(request: Request) -> Response:
        return echo(request.method, request.path, request.body)

    def come(address: str, idle_since: float) -> ServerConnection:
        caller = ServerConnection(handle, callers, address=address, max_body_bytes=1000, max_head_bytes=1000)
        caller.connection_made(Mock(asyncio.Transport, is_closing=lambda: False))
        caller.idle_since = idle_since
        callers.add(caller)
        return caller

    scheduler = come("10.0.0.1", 1.0)
    crowd = [come("10.0.0.66", 100.0 + number) for number in range(5)]
    for _ in range(4):
        assert callers.drop_one()
    assert callers == {scheduler, crowd[4]}


@pytest.mark.parametrize("over_tls", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_who_takes_nothing_of_its_answer_is_aborted(
    loop: Callable[[], asyncio.AbstractEventLoop], over_tls: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "UNREAD_S", 0.1)
    monkeypatch.setattr(server_module, "CHECK_EVERY_S", 0.05)
    pieces = [b"x" * 100_000] * 300
    server, client = contexts(tmp_path) if over_tls else (None, None)

    async def main() -> None:
        limits = {"tls": lambda: server} if server is not None else {}
        async with open_server(lambda *_: Response(200, b"", more=pieces), client=client, **limits) as call, call() as caller:
            caller.writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await caller.reader.readexactly(1000)
            caller.writer.transport.pause_reading()  # type: ignore[attr-defined]
            async with asyncio.timeout(LIMIT_S):
                while not caller.writer.is_closing():
                    caller.writer.write(b"\r\n")  # an aborted connection is noticed by who writes
                    await asyncio.sleep(0.05)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_handshakes_that_do_not_end_are_callers_too(loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path) -> None:
    """They go first, so that somebody who has shown a certificate stays, and a new one comes through."""
    server, client = contexts(tmp_path)

    async def main() -> None:
        async with (
            open_server(echo, client=client, tls=lambda: server, max_connections=3) as call,
            contextlib.AsyncExitStack() as callers,
        ):
            early = await callers.enter_async_context(call())
            silent = [await callers.enter_async_context(call(tls=False)) for _ in range(5)]
            late = await callers.enter_async_context(call())
            for caller in (early, late):
                caller.writer.write(b"GET / HTTP/1.1\r\n\r\n")
                assert (await caller.answer())[0] == 200
            for caller in silent[:4]:
                with contextlib.suppress(ConnectionError):
                    assert await caller.rest() == b""

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


async def test_unread_answers_of_all_callers_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty callers ask for a page and do not read it: what is kept for them stays below the limit, and a reader is served."""
    monkeypatch.setattr(server_module, "MAX_UNREAD_BYTES", 12_000_000)
    asked: list[str] = []

    def page(_method: str, path: str, _body: bytes) -> Response:
        asked.append(path)
        return Response(200, b"", more=[b"x" * 100_000 for _ in range(40)])  # 4 MB, made anew for each

    async with open_server(page) as call, contextlib.AsyncExitStack() as callers:
        silent = [await callers.enter_async_context(call()) for _ in range(60)]
        for caller in silent:
            caller.reader._transport.pause_reading()  # type: ignore[attr-defined]
            caller.writer.write(b"GET / HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(LIMIT_S):
            while len(asked) < 60 or sum(not caller.writer.is_closing() for caller in silent) > 3:
                for caller in silent:
                    caller.writer.write(b"\r\n")  # an aborted connection is noticed by who writes
                await asyncio.sleep(0.05)
        reader = await callers.enter_async_context(call())
        reader.writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert len((await reader.answer())[2]) == 4_000_000


async def test_bodies_that_do_not_end_have_a_limit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who began first is aborted, so that a body that comes in one go is read."""
    monkeypatch.setattr(server_module, "MAX_UNREAD_BYTES", 1000)
    async with open_server(echo) as call, contextlib.AsyncExitStack() as callers:
        slow = [await callers.enter_async_context(call()) for _ in range(5)]
        for caller in slow:
            caller.writer.write(b"POST / HTTP/1.1\r\nContent-Length: 1000\r\n\r\n" + b"x" * 900)
            await asyncio.sleep(0.05)
        quick = await callers.enter_async_context(call())
        quick.writer.write(b"POST / HTTP/1.1\r\nContent-Length: 1000\r\n\r\n" + b"y" * 1000)
        assert (await quick.answer())[0] == 200
        with contextlib.suppress(ConnectionError):
            assert await slow[0].rest() == b""


async def test_who_waits_for_our_word_gets_it() -> None:
    async with open_server(echo) as call, call() as caller:
        caller.writer.write(b"POST / HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert (await caller.answer())[0] == 100
        caller.writer.write(b"ok")
        assert (await caller.answer())[2] == b"POST / ok"


@pytest.mark.parametrize("head", [b"GET / HTTP/1.0\r\n\r\n", b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"])
async def test_who_speaks_another_protocol_is_answered_once_in_ours(head: bytes) -> None:
    async with open_server(echo) as call, call() as caller:
        caller.writer.write(head)
        assert (await caller.rest()).endswith(b"connection: close\r\n\r\nGET / ")


async def test_a_failure_is_told_and_the_connection_goes_on() -> None:
    def fails_once(method: str, path: str, body: bytes) -> Response:
        if path == "/bad":
            raise RuntimeError("surprise")
        return echo(method, path, body)

    async with open_server(fails_once) as call, call() as caller:
        caller.writer.write(b"GET /bad HTTP/1.1\r\n\r\nGET /good HTTP/1.1\r\n\r\n")
        status, _, body = await caller.answer()
        assert (status, b"surprise" in body) == (500, False)
        assert (await caller.answer())[2] == b"GET /good "


async def test_a_caller_that_does_not_read_is_not_answered_further() -> None:
    """Its answers would pile up in our memory."""
    handled: list[str] = []

    def large(method: str, path: str, body: bytes) -> Response:
        handled.append(path)
        return Response(200, b"x" * 4_000_000)

    async with open_server(large) as call, call() as caller:
        caller.writer.write(b"".join(b"GET /%d HTTP/1.1\r\n\r\n" % n for n in range(9)))
        before = -1
        while len(handled) > before:  # until it is stuck
            before = len(handled)
            await asyncio.sleep(0.2)
        assert len(handled) < 9
        assert [len((await caller.answer())[2]) for _ in range(9)] == [4_000_000] * 9


async def test_a_silent_caller_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has begun a request and does not end it, too."""
    monkeypatch.setattr(server_module, "KEEP_ALIVE_S", 0.1)
    monkeypatch.setattr(server_module, "CHECK_EVERY_S", 0.05)
    async with open_server(echo) as call, call() as idle, call() as slow:
        slow.writer.write(b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nx")
        assert await idle.rest() == b""
        assert await slow.rest() == b""


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_at_the_end_what_is_in_flight_is_finished(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    begun, released = asyncio.Event(), asyncio.Event()

    async def slow(method: str, path: str, body: bytes) -> Response:
        begun.set()
        await released.wait()
        return echo(method, path, body)

    async def main() -> None:
        async with contextlib.AsyncExitStack() as callers:
            async with open_server(slow) as call:
                busy, idle = await callers.enter_async_context(call()), await callers.enter_async_context(call())
                busy.writer.write(b"GET / HTTP/1.1\r\n\r\n")
                await begun.wait()
                asyncio.get_running_loop().call_later(0.2, released.set)
            assert await idle.rest() == b""
            assert (await busy.rest()).endswith(b"connection: close\r\n\r\nGET / ")

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


async def test_at_the_end_who_does_not_say_goodbye_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that takes none of its answer cannot keep the process."""
    monkeypatch.setattr(server_module, "CLOSE_S", 0.1)

    def large(method: str, path: str, body: bytes) -> Response:
        return Response(200, b"x" * 50_000_000)

    async with contextlib.AsyncExitStack() as callers:
        async with open_server(large) as call:
            caller = await callers.enter_async_context(call())
            caller.writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await caller.reader.readexactly(1000)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await caller.reader.readexactly(49_000_000)


class Ticks:
    """A stream that never ends; it records how it was left."""

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
    async with open_server(lambda *_: Response(200, b"", stream=stream)) as call, call() as caller:
        caller.writer.write(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
        head, _, body = (await caller.rest()).partition(b"\r\n\r\n")
        assert b"transfer-encoding: chunked" in head
        assert body == b"1\r\na\r\n2\r\nbc\r\n0\r\n\r\n"
        await stream.closed.wait()


async def test_a_stream_is_closed_when_its_client_disconnects() -> None:
    stream = Ticks()
    async with open_server(lambda *_: Response(200, b"", stream=stream)) as call:
        async with call() as caller:
            caller.writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await caller.reader.readuntil(b"1\r\n3")
        async with asyncio.timeout(LIMIT_S):
            await stream.closed.wait()


async def test_a_handler_can_close_the_connection_without_a_response() -> None:
    def abort(*_: object) -> Response:
        raise AbortConnection

    async with open_server(abort) as call, call() as caller:
        caller.writer.write(b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            assert await caller.rest() == b""


needs_ipv6 = pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="the kernel has no IPv6")


def reached(port: int, *addresses: str) -> list[str]:
    """Those of these addresses at which somebody listens."""
    found = []
    for address in addresses:
        try:
            socket.create_connection((address, port), timeout=10).close()
        except OSError:
            continue
        found.append(address)
    return found


@needs_ipv6
def test_without_a_host_callers_come_by_ipv6_and_by_ipv4() -> None:
    with listen("", 0) as listening:
        listening.listen()
        assert reached(listening.getsockname()[1], "127.0.0.1", "::1") == ["127.0.0.1", "::1"]


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::1", marks=needs_ipv6)])
def test_with_a_host_only_there(host: str) -> None:
    with listen(host, 0) as listening:
        listening.listen()
        assert reached(listening.getsockname()[1], "127.0.0.1", "::1") == [host]


def test_where_there_is_no_ipv6_callers_come_by_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
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
