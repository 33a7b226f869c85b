"""The agent's HTTP port, and its limits for clients."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest

from accelshare.agent import status
from accelshare.http import server
from cluster.https import free_port

TCP_CLOSED = 7  # the first byte of TCP_INFO


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="the kernel has no IPv6")
async def test_the_port_serves_ipv6_and_ipv4() -> None:
    port = free_port()
    served = status.serve(None, port, {"/readyz": lambda: (200, b"ready")})
    async with aiohttp.ClientSession() as session:
        for host in ("127.0.0.1", "[::1]"):
            async with session.get(f"http://{host}:{port}/readyz") as answer:
                assert (answer.status, await answer.text()) == (200, "ready")
    await served.stop()


@pytest.fixture
async def port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    monkeypatch.setattr(server, "CHECK_EVERY_S", 0.1)
    pages = {"/readyz": lambda: (200, b"ready"), "/large": lambda: (200, b"x" * 2**26)}
    port = free_port()
    served = status.serve("127.0.0.1", port, pages, limit_s=1.0)
    yield port
    await served.stop()


async def ask(port: int) -> int:
    timeout = aiohttp.ClientTimeout(30)
    async with aiohttp.ClientSession(timeout=timeout) as session, session.get(f"http://127.0.0.1:{port}/readyz") as answer:
        return answer.status


async def test_idle_connections_keep_no_probe_away(port: int) -> None:
    """However many connections are opened and left idle, few are kept, and a probe is answered."""
    with contextlib.ExitStack() as idle:
        callers = [idle.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(status.MAX_CONNECTIONS + 16)]
        assert await ask(port) == 200
        callers[0].settimeout(30)
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.to_thread(callers[0].recv, 1) == b""
    assert await ask(port) == 200


@pytest.mark.parametrize("line", [b"a: b\r\n", b"a: " + b"b" * 8000 + b"\r\n", b"x" * 100_000])
async def test_headers_without_end_are_refused(port: int, line: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /readyz HTTP/1.1\r\n")
    sent = 0

    async def send() -> None:
        nonlocal sent
        while True:
            writer.write(line)
            sent += len(line)
            await writer.drain()

    sending = asyncio.create_task(send())
    try:
        answer = await asyncio.wait_for(reader.read(), 60)
    except ConnectionError:
        answer = b"HTTP/1.1 431"  # the rest of what was sent met a closed connection, which may overtake the answer
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    assert answer.startswith(b"HTTP/1.1 431")
    assert sent < 16 * 2**20
    writer.close()
    assert await ask(port) == 200


async def test_a_client_that_sends_its_header_too_slowly_is_cut_off(port: int) -> None:
    """A byte now and then does not extend the time limit."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /readyz HTTP/1.1\r\n")
    ended = asyncio.create_task(reader.read())
    async with asyncio.timeout(30):
        while not ended.done():
            writer.write(b"a: b\r\n")
            await asyncio.wait([ended], timeout=0.1)
    assert isinstance(ended.exception(), ConnectionError) or ended.result() == b""
    writer.close()


async def test_a_client_that_does_not_read_is_cut_off(port: int) -> None:
    """A response that the client does not read is dropped after the time limit."""
    caller = socket.create_connection(("127.0.0.1", port))
    with caller:
        caller.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        deadline = asyncio.get_running_loop().time() + 60
        while caller.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != TCP_CLOSED:
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.05)
