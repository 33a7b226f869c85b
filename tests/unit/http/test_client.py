"""The HTTP client against scripted servers: which connections are kept, and how the server is reached."""

import asyncio
import contextlib
import gc
import ssl
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import uvloop
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from accelshare.http.client import KEEP_ALIVE_S, ClientConnection, ClientResponse, Lines, LineTooLongError
from accelshare.kube.config import Cluster
from accelshare.kube.errors import ApiError, BadAnswer, Unreachable
from accelshare.kube.tls import Pem, Tls
from tests.unit.kube.pki import Authority
from tests.unit.kube.support import client_of, serving

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@contextlib.asynccontextmanager
async def speaking(talk: Talk, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A server that runs this handler for each connection; yields its host and port."""
    talks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await talk(reader, writer)
                await writer.drain()
            writer.close()
            await writer.wait_closed()
        finally:
            writer.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.add(asyncio.ensure_future(serve(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in talks:
            task.cancel()
        await asyncio.gather(*talks, return_exceptions=True)
        await asyncio.sleep(0)


def scripted(*answers: bytes) -> tuple[Talk, list[int]]:
    """Sends these responses, one to each request on any connection, and counts the connections."""
    left = iter(answers)
    connections: list[int] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer := next(left))
            if b"close" in answer or b"Content-Length" not in answer:
                return

    return talk, connections


async def test_connections_that_a_rush_has_left_are_closed_when_they_are_old() -> None:
    """A few are enough again, and those are used over and over: the others would stay as long as the server keeps them."""
    came, rush, closed = asyncio.Semaphore(0), asyncio.Event(), asyncio.Semaphore(0)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                came.release()
                await rush.wait()
                writer.write(OK)
        finally:
            closed.release()

    async with speaking(talk) as place, client_of(Cluster(f"http://{place}")) as client, asyncio.timeout(5):
        requests = [asyncio.ensure_future(client.request("GET", "/")) for _ in range(5)]
        for _ in requests:
            await came.acquire()
        rush.set()
        assert await asyncio.gather(*requests) == [b"ok"] * 5
        *unused, used = client._connections._idle
        for connection in unused:
            connection.idle_since -= KEEP_ALIVE_S
        assert await client.request("GET", "/") == b"ok"
        for _ in unused:
            await closed.acquire()
        assert client._connections._idle == [used]


@pytest.mark.parametrize(
    ("first", "connections"),
    [
        (OK, 1),
        (b"HTTP/1.1 100 Continue\r\nX: 1\r\n\r\n" + OK, 1),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length-Not: 1\r\n\r\n2\r\nok\r\n0\r\n\r\n", 1),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok", 2),
        (b"HTTP/1.1 200 OK\r\n\r\nok", 2),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 2),
    ],
)
async def test_the_response_decides_whether_its_connection_is_kept(first: bytes, connections: int) -> None:
    talk, made = scripted(first, OK)
    async with speaking(talk) as place, client_of(Cluster(f"http://{place}")) as client:
        assert await client.request("POST", "/", body=b"") == b"ok"
        assert await client.request("POST", "/", body=b"") == b"ok"
    assert len(made) == connections


async def test_bytes_after_the_response_close_the_connection() -> None:
    """They would be taken for the response to the next request."""
    talk, made = scripted(OK + b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", OK)
    async with speaking(talk) as place, client_of(Cluster(f"http://{place}")) as client:
        assert await client.request("POST", "/", body=b"") == b"ok"
        assert await client.request("POST", "/", body=b"") == b"ok"
    assert len(made) == 2


async def test_a_connection_that_was_closed_meanwhile_is_not_used() -> None:
    closed = asyncio.Event()

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        closed.set()

    async with speaking(once) as place, client_of(Cluster(f"http://{place}")) as client:
        for _ in range(2):
            assert await client.request("POST", "/", body=b"") == b"ok"
            await closed.wait()
            await asyncio.sleep(0.05)  # until the end has come through


async def test_a_connection_whose_request_timed_out_is_freed_at_once() -> None:
    """A TLS connection has a quarter of a megabyte of buffers, and the extender's garbage collector seldom runs."""

    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    gc.collect()
    gc.disable()
    try:
        async with speaking(silent) as place, client_of(Cluster(f"http://{place}")) as client:
            for _ in range(5):
                with pytest.raises(Unreachable):
                    await client.request("POST", "/", body=b"{}", timeout_s=0.02)
            await asyncio.sleep(0)
            kept = [type(each).__name__ for each in gc.get_objects() if isinstance(each, ClientConnection | ClientResponse)]
        assert kept == []
    finally:
        gc.enable()


@pytest.mark.parametrize("status", ["404 Not Found", "409 Conflict", "500 Internal Server Error"])
async def test_the_error_of_a_refused_request_is_freed_at_once(status: str) -> None:
    """With its traceback it has the request and the response in memory."""
    talk, _ = scripted(f"HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nno".encode())
    errors: list[weakref.ref[ApiError]] = []
    gc.disable()
    try:
        async with speaking(talk) as place, client_of(Cluster(f"http://{place}")) as client:
            try:
                await client.request("POST", "/", body=b"{}")
            except ApiError as error:
                errors.append(weakref.ref(error))
        assert [error() for error in errors] == [None]
    finally:
        gc.enable()


async def test_what_is_no_http_may_have_carried_it_out() -> None:
    talk, _ = scripted(b"SSH-2.0-OpenSSH_9.9\r\n")
    async with speaking(talk) as place, client_of(Cluster(f"http://{place}")) as client:
        with pytest.raises(Unreachable, match="not an HTTP response") as caught:
            await client.request("POST", "/", body=b"")
    assert caught.value.sent


async def test_an_unrequested_content_encoding_is_a_bad_answer() -> None:
    strange = b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\nok"
    broken = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok"
    talk, _ = scripted(strange, broken)
    async with speaking(talk) as place, client_of(Cluster(f"http://{place}")) as client:
        with pytest.raises(BadAnswer, match="it must be gzip"):
            await client.request("POST", "/", body=b"")
        with pytest.raises(BadAnswer, match="gzip"):
            await client.request("POST", "/", body=b"")


async def test_a_watcher_that_falls_behind_lets_the_server_wait() -> None:
    """Only a bounded part of the body is held in memory."""
    sent = 0
    event = b'{"type":"ADDED","object":{"padding":"' + b"x" * 65_000 + b'"}}\n'

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(1000):
            writer.write(event)
            await writer.drain()
            sent += 1

    async with speaking(flood) as place, client_of(Cluster(f"http://{place}")) as client:
        watch = client.watch("/x", resource_version="5")
        await anext(watch)
        before = -1
        while sent > before:  # until it is stuck
            before = sent
            await asyncio.sleep(0.2)
        assert sent < 1000
        assert len([each async for each in watch]) == 999


# Through proxies


def tunnelling(heads: list[str]) -> Talk:
    """A proxy that requires a password."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        heads.append(head)
        if "Proxy-Authorization: Basic dTpwIDE=\r\n" not in head:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            return
        back, forth = await asyncio.open_connection("127.0.0.1", int(head.split()[1].rpartition(":")[2]))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

        async def pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                sink.write(data)
            sink.close()

        try:
            await asyncio.gather(pipe(reader, forth), pipe(back, writer))
        finally:
            forth.transport.abort()

    return talk


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_may_want_a_password_and_speak_tls_itself(
    tmp_path: Path, scheme: str, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """On asyncio's event loop and on uvloop, which the product uses."""

    async def ok(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text="through")

    async def main() -> None:
        ca, heads = Authority(), list[str]()
        outer = ca.server(tmp_path, "127.0.0.1") if scheme == "https" else None
        tls = Tls(ca=Pem("ca", inline=ca.pem))
        async with serving(ok, tls=ca.server(tmp_path, "127.0.0.1")) as url, speaking(tunnelling(heads), tls=outer) as proxy:
            async with client_of(Cluster(url, tls=tls, proxy_url=f"{scheme}://u:p%201@{proxy}")) as client:
                assert await client.request("GET", "/") == b"through"
            async with client_of(Cluster(url, tls=tls, proxy_url=f"{scheme}://u:wrong@{proxy}")) as client:
                with pytest.raises(Unreachable, match=r"the proxy .* 407") as caught:
                    await client.request("POST", "/", body=b"")
        assert not caught.value.sent
        assert heads[0].startswith(f"CONNECT {url.removeprefix('https://')} HTTP/1.1\r\n")

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


@given(chunks=st.lists(st.text(alphabet="ab \n", max_size=8).map(str.encode), max_size=12))
def test_where_the_chunks_end_makes_no_difference(chunks: list[bytes]) -> None:
    lines = Lines(max_bytes=1000)
    came = [line for chunk in chunks for line in lines.feed(chunk)]
    *whole, last = b"".join(chunks).split(b"\n")
    assert came == [line for line in whole if line.strip()]
    assert lines.rest() == last.strip()


def test_a_line_without_end_is_refused() -> None:
    lines = Lines(max_bytes=10)
    lines.feed(b"aaaaaa")
    with pytest.raises(LineTooLongError, match="more than 10 bytes"):
        lines.feed(b"aaaaaa")
