"""A small port for probes and Prometheus.

Belongs here: three paths. Never: anything that changes something.
"""

import asyncio
from collections.abc import Callable, Mapping

Page = Callable[[], tuple[int, bytes]]


async def serve(host: str | None, port: int, pages: Mapping[str, Page]) -> asyncio.Server:
    """Answer GET on these paths, one request a connection; without a host at every address of the machine."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await asyncio.wait_for(reader.readline(), 5)
            while (await asyncio.wait_for(reader.readline(), 5)).strip():
                pass
            path = line.split(b" ")[1].decode(errors="replace") if line.count(b" ") >= 2 else ""
            page = pages.get(path.partition("?")[0])
            status, body = page() if page is not None else (404, f"there is {', '.join(pages)}".encode())
            head = f"HTTP/1.1 {status} {'OK' if status == 200 else 'Not OK'}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
            await writer.drain()
        except (OSError, TimeoutError, ValueError):
            pass
        finally:
            writer.close()

    return await asyncio.start_server(answer, host, port, limit=16 * 1024)
