"""A small port for probes and Prometheus.

Belongs here: a few paths, and bounds on what a caller may cost: connections, bytes and time. Never: anything that changes
something.
"""

import asyncio
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Final

Page = Callable[[], tuple[int, bytes]]
MOST_CALLERS: Final = 64  # when one more comes, the one that has been connected longest is cut off
LONGEST_HEAD: Final = 16 * 1024  # bytes of a request's first line and headers together
MOST_HEADERS: Final = 64
LIMIT_S: Final = 10.0  # for a whole exchange, however slowly the caller sends or reads
_NO_LINGER: Final = struct.pack("ii", 1, 0)


class HeadTooLargeError(Exception):
    """A request's head has more headers or bytes than any probe sends."""


async def serve(host: str | None, port: int, pages: Mapping[str, Page], *, limit_s: float = LIMIT_S) -> asyncio.Server:
    """Answer GET on these paths, one request a connection; without a host at every address of the machine."""
    callers: dict[asyncio.StreamWriter, None] = {}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        callers[writer] = None
        if len(callers) > MOST_CALLERS:
            _cut_off(next(iter(callers)))
        try:
            async with asyncio.timeout(limit_s):
                writer.write(_response(*await _asked(reader, pages)))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            _cut_off(writer)
        finally:
            del callers[writer]

    return await asyncio.start_server(answer, host, port, limit=LONGEST_HEAD)


async def _asked(reader: asyncio.StreamReader, pages: Mapping[str, Page]) -> tuple[int, bytes]:
    try:
        first = await _head(reader)
    except HeadTooLargeError as error:
        return 431, str(error).encode()
    path = first.split(b" ")[1].decode(errors="replace") if first.count(b" ") >= 2 else ""
    page = pages.get(path.partition("?")[0])
    return page() if page is not None else (404, f"there is {', '.join(pages)}".encode())


async def _head(reader: asyncio.StreamReader) -> bytes:
    """The first line of a request whose headers have been read to their end."""
    first, size = b"", 0
    for number in range(MOST_HEADERS + 2):
        try:
            line = await reader.readuntil(b"\n")
        except asyncio.LimitOverrunError:
            break
        size += len(line)
        if size > LONGEST_HEAD:
            break
        if number == 0:
            first = line
        elif not line.strip():
            return first
    raise HeadTooLargeError(f"a request has at most {MOST_HEADERS} headers and {LONGEST_HEAD} bytes before its body")


def _response(status: int, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status} {'OK' if status == 200 else 'Not OK'}\r\nContent-Type: text/plain; charset=utf-8\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


def _cut_off(writer: asyncio.StreamWriter) -> None:
    """End the connection now; what the caller has not read is not kept, by the kernel neither."""
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    writer.transport.abort()
