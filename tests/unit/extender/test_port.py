"""The port, spoken to byte by byte: in order, within limits, and finished with before it ends."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop

from accelshare.extender import port as port_module
from accelshare.extender.port import Port
from accelshare.extender.routes import Answer

LIMIT_S = 60.0


class Caller:
    """One connection to the port."""

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
async def open_port(handle: Callable[..., object]) -> AsyncIterator[Callable[[], contextlib.AbstractAsyncContextManager[Caller]]]:
    async def answered(method: str, path: str, body: bytes) -> Answer:
        said = handle(method, path, body)
        return await said if asyncio.iscoroutine(said) else said  # type: ignore[return-value]

    listening = socket.create_server(("127.0.0.1", 0))

    @contextlib.asynccontextmanager
    async def call() -> AsyncIterator[Caller]:
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        try:
            yield Caller(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async with Port(answered, listening, largest_body=1000):
        yield call


def echo(method: str, path: str, body: bytes) -> Answer:
    return Answer(200, f"{method} {path} {body.decode()}".encode(), "text/plain")


async def test_requests_of_one_connection_are_answered_in_their_order() -> None:
    """Also when they come in one piece, and the first takes longest."""
    released = asyncio.Event()

    async def slow_first(method: str, path: str, body: bytes) -> Answer:
        if path == "/0":
            await released.wait()
        return echo(method, path, body)

    async with open_port(slow_first) as call, call() as caller:
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
    async with Port(lambda _method, _path, _body: Answer(200, large, "text/plain"), listening, largest_body=1000):
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        caller = Caller(reader, writer)
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

    def handle(_method: str, path: str, _body: bytes) -> Answer:
        turns.append(path)
        return Answer(200, b"start", more=pieces) if path == "/large" else Answer(200, b"small")

    async with open_port(handle) as call, call() as one, call() as other:
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
    async with open_port(echo) as call, call() as caller:
        for place in range(len(request)):
            caller.writer.write(request[place : place + 1])
            await asyncio.sleep(0)
        assert (await caller.answer())[2] == b"POST /a b abcde"


async def test_a_head_has_a_date_and_no_body_if_only_it_was_asked_for() -> None:
    async with open_port(echo) as call, call() as caller:
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
    async with open_port(echo) as call:
        async with call() as caller:
            caller.writer.write(b"GET /first HTTP/1.1\r\n\r\n" + request_)
            assert (await caller.answer())[2] == b"GET /first "
            code, headers, body = await caller.answer()
            assert (code, headers["connection"], words in body) == (status, "close", True)
            assert await caller.rest() == b""
        async with call() as caller:
            caller.writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert (await caller.answer())[0] == 200


async def test_who_waits_for_our_word_gets_it() -> None:
    async with open_port(echo) as call, call() as caller:
        caller.writer.write(b"POST / HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert (await caller.answer())[0] == 100
        caller.writer.write(b"ok")
        assert (await caller.answer())[2] == b"POST / ok"


@pytest.mark.parametrize("head", [b"GET / HTTP/1.0\r\n\r\n", b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"])
async def test_who_speaks_another_protocol_is_answered_once_in_ours(head: bytes) -> None:
    async with open_port(echo) as call, call() as caller:
        caller.writer.write(head)
        assert (await caller.rest()).endswith(b"connection: close\r\n\r\nGET / ")


async def test_a_failure_is_told_and_the_connection_goes_on() -> None:
    def fails_once(method: str, path: str, body: bytes) -> Answer:
        if path == "/bad":
            raise RuntimeError("surprise")
        return echo(method, path, body)

    async with open_port(fails_once) as call, call() as caller:
        caller.writer.write(b"GET /bad HTTP/1.1\r\n\r\nGET /good HTTP/1.1\r\n\r\n")
        status, _, body = await caller.answer()
        assert (status, b"surprise" in body) == (500, False)
        assert (await caller.answer())[2] == b"GET /good "


async def test_a_caller_that_does_not_read_is_not_answered_further() -> None:
    """Its answers would pile up in our memory."""
    handled: list[str] = []

    def large(method: str, path: str, body: bytes) -> Answer:
        handled.append(path)
        return Answer(200, b"x" * 4_000_000)

    async with open_port(large) as call, call() as caller:
        caller.writer.write(b"".join(b"GET /%d HTTP/1.1\r\n\r\n" % n for n in range(9)))
        before = -1
        while len(handled) > before:  # until it is stuck
            before = len(handled)
            await asyncio.sleep(0.2)
        assert len(handled) < 9
        assert [len((await caller.answer())[2]) for _ in range(9)] == [4_000_000] * 9


async def test_a_silent_caller_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has begun a request and does not end it, too."""
    monkeypatch.setattr(port_module, "KEEP_ALIVE_S", 0.1)
    monkeypatch.setattr(port_module, "LOOK_EVERY_S", 0.05)
    async with open_port(echo) as call, call() as idle, call() as slow:
        slow.writer.write(b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nx")
        assert await idle.rest() == b""
        assert await slow.rest() == b""


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_at_the_end_what_is_in_flight_is_finished(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    begun, released = asyncio.Event(), asyncio.Event()

    async def slow(method: str, path: str, body: bytes) -> Answer:
        begun.set()
        await released.wait()
        return echo(method, path, body)

    async def main() -> None:
        async with contextlib.AsyncExitStack() as callers:
            async with open_port(slow) as call:
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
    monkeypatch.setattr(port_module, "GOODBYE_S", 0.1)

    def large(method: str, path: str, body: bytes) -> Answer:
        return Answer(200, b"x" * 50_000_000)

    async with contextlib.AsyncExitStack() as callers:
        async with open_port(large) as call:
            caller = await callers.enter_async_context(call())
            caller.writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await caller.reader.readexactly(1000)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await caller.reader.readexactly(49_000_000)
