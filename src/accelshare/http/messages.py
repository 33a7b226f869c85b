"""The server's requests and responses, and how a response is written.

Belongs here: values and their spelling on the wire. Never: a connection.
"""

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from email.utils import formatdate
from http import HTTPStatus
from typing import Final, Protocol, TypeAlias
from urllib.parse import unquote

import msgspec

log = logging.getLogger(__name__)
JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
_STATUS_LINES: Final = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}


class AbortConnection(Exception):  # noqa: N818 – an instruction of a handler, not an error
    """Raised by a handler to close the connection without a response."""


class HttpRequest(msgspec.Struct, frozen=True):
    """A complete request."""

    method: str
    target: str  # path and query as they were sent, with their escapes
    body: bytes = b""
    raw_headers: Sequence[tuple[bytes, bytes]] = ()

    @property
    def raw_path(self) -> str:
        """The path with its escapes. A target with scheme and host is split by hand: urlsplit raises for some hosts."""
        path = self.target.partition("?")[0]
        if path.startswith("/") or "://" not in path:
            return path
        _, slash, rest = path.partition("://")[2].partition("/")
        return slash + rest

    @property
    def path(self) -> str:
        path = self.raw_path
        return unquote(path) if "%" in path else path

    @property
    def query(self) -> str:
        return self.target.partition("?")[2]

    @property
    def headers(self) -> dict[str, str]:
        """Names in lower case."""
        return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self.raw_headers}


class Stream(Protocol):
    """A body of unknown length. The server closes it, also when it has not read any of it."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def aclose(self) -> None: ...


class Response(msgspec.Struct, frozen=True):
    """`more` is the rest of a large body: the server sends it piece by piece and serves other connections in between.

    `stream` is the rest of a body of unknown length; it is sent in chunks until it ends or the client disconnects.
    `can_wait`: nobody minds if it comes a moment later, so that the client keeps the connection (idle_connections.py) or, over
    HTTP/2, so that it is written together with another.
    """

    status: int
    body: bytes
    content_type: str = JSON
    more: Sequence[bytes] = ()
    stream: Stream | None = None
    headers: tuple[str, ...] = ()
    close: bool = False  # the connection, after this response
    can_wait: bool = False

    @property
    def size(self) -> int:
        return len(self.body) + sum(map(len, self.more)) if self.more else len(self.body)

    def head(self, *, last: bool) -> bytes:
        """Everything before the body."""
        length = f"content-length: {self.size}" if self.stream is None else "transfer-encoding: chunked"
        close = "connection: close\r\n" if last else ""
        extra = "".join(f"{header}\r\n" for header in self.headers)
        about = f"date: {date()}\r\ncontent-type: {self.content_type}\r\n{length}\r\n{extra}{close}\r\n"
        return (_STATUS_LINES[self.status] + about).encode("latin-1")


def error_response(status: int, error: str) -> Response:
    return Response(status, msgspec.json.encode({"error": error}))


def failure(request: HttpRequest) -> Response:
    """A request that fails must not end the process that every other pod needs; the log has the traceback."""
    log.exception("request outcome=failed path=%s", request.path)
    return error_response(500, "accelshare failed on this request; its log has the cause")


HttpHandler: TypeAlias = Callable[[HttpRequest], Response | Awaitable[Response]]


def chunk(data: bytes) -> bytes:
    """One piece of a body of unknown length. An empty one ends the body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class _Date:
    """The Date header, formatted once a second."""

    def __init__(self) -> None:
        self._second = 0
        self._text = ""

    def __call__(self) -> str:
        second = int(time.time())
        if second != self._second:
            self._second, self._text = second, formatdate(second, usegmt=True)
        return self._text


date: Final = _Date()
