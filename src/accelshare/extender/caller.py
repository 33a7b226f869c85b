"""One caller's connection: whole requests in, whole answers out, one after the other, and nothing larger than agreed.

Belongs here: HTTP/1.1 as callers speak it (llhttp's grammar, through httptools). Never: what the paths mean (routes.py), who may
call (tls.py).
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from email.utils import formatdate
from http import HTTPStatus
from typing import Final, TypeAlias, cast
from urllib.parse import unquote, urlsplit

import msgspec
import orjson
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from accelshare.extender.callers import Callers
from accelshare.extender.routes import JSON, Answer

log = logging.getLogger(__name__)
Handle: TypeAlias = Callable[[str, str, bytes], Answer | Awaitable[Answer]]
LONGEST_HEAD_BYTES: Final = 64 << 10
_STATUS_LINES: Final = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}


class _Asked(msgspec.Struct, frozen=True):
    """A request that is complete, or one that was refused before it was."""

    method: str
    path: str
    body: bytes
    last: bool  # the caller, or the refusal, wants no more on this connection
    refusal: Answer | None = None


class Caller(asyncio.Protocol):
    def __init__(self, handle: Handle, everybody: Callers, *, address: str, largest_body: int, longest_head: int) -> None:
        """`everybody` has each caller until its connection has ended and nothing is being decided for it."""
        self._handle = handle
        self._everybody = everybody
        self._largest_body = largest_body
        self._longest_head = longest_head
        self._parser = HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[_Asked] = deque()
        self._leaving = False  # nothing that has not been read yet is answered
        self._refused = False  # what the caller still sends is not looked at
        self._owes_continue = False  # the caller waits for our word before it sends its body
        self._parts: list[bytes] = []
        self._parsed = 0  # how often the parser has told us something
        self._unparsed_bytes = 0  # fed since then: a header, a trailer or a chunk's extension that does not end
        self._writable = asyncio.Event()
        self._writable.set()
        self._written_bytes = 0  # of the last answer
        self._unread_bytes = 0  # of it, what the caller has not taken, at most
        self._begin()
        self._loop = asyncio.get_running_loop()
        self.address = address
        self.connecting: asyncio.Task[None] | None = None
        self.answering: asyncio.Task[None] | None = None
        self.deciding: asyncio.Future[None] | None = None  # until the answer is known, though not yet taken
        self.idle_since = self._loop.time()
        self.unread_since: float | None = None  # since when nothing of an answer is taken
        self.kept_bytes = 0
        self.kept_since = 0.0
        self.closed: asyncio.Future[None] = self._loop.create_future()

    @property
    def connected(self) -> bool:
        """Has it had a connection, over TLS one with a finished handshake?"""
        return self._transport is not None

    def leave(self) -> None:
        """Answer what has been asked, then close."""
        self._leaving = True
        if self.answering is None and self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close without a goodbye."""
        if self._transport is not None:
            self._transport.abort()
        elif self.connecting is not None:
            self.connecting.cancel()

    # Called by the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._leaving:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set_result(None)
        self._waiting.clear()
        self._writable.set()
        self.unread_since = None
        self._everybody.keep(self, 0)
        if self.answering is None:
            self._everybody.forget(self)

    def data_received(self, data: bytes) -> None:
        if self._refused or self._leaving:
            return
        parsed = self._parsed
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self._leaving = True  # it would speak something else from here on; its request is answered as it is
        except HttpParserError as error:
            self._refuse(400, f"this is not HTTP/1.1: {error}")
        # The parser keeps a header until it has all of it, at a cost that grows with the square of its length.
        self._unparsed_bytes = self._unparsed_bytes + len(data) if parsed == self._parsed else 0
        if self._unparsed_bytes > self._longest_head:
            self._refuse_head()
        self._count_kept()

    def eof_received(self) -> bool:
        """The caller sends no more, and may well read on: what it has asked is answered. TLS has no such half of a connection."""
        self._leaving = True
        over_tls = self._transport is not None and self._transport.get_extra_info("sslcontext") is not None
        return not over_tls and (self.answering is not None or bool(self._waiting))

    def pause_writing(self) -> None:
        self._writable.clear()
        self.unread_since = self._loop.time()
        self._unread_bytes = self._written_bytes
        self._count_kept()

    def resume_writing(self) -> None:
        self._writable.set()
        self.unread_since = None
        if self.answering is None:
            self._taken()
        self._next()
        self._read_on()

    # Called by the parser.

    def on_message_begin(self) -> None:
        self._parsed += 1
        self._begin()

    def on_url(self, url: bytes) -> None:
        self._parsed += 1
        self._url += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._parsed += 1
        self._count_head(len(name) + len(value))
        match name.lower():
            case b"content-length" if value.isdigit() and int(value) > self._largest_body:
                self._refuse_body()
            case b"expect" if value.lower() == b"100-continue":
                self._owes_continue = self._parser.get_http_version() == "1.1"

    def on_headers_complete(self) -> None:
        self._parsed += 1
        self._say_continue()

    def on_body(self, data: bytes) -> None:
        self._parsed += 1
        self._owes_continue = False  # it has not waited
        self._parts.append(data)
        self._size += len(data)
        if self._size > self._largest_body:
            self._refuse_body()

    def on_message_complete(self) -> None:
        self._parsed += 1
        self._owes_continue = False
        if self._refused:
            return
        method = self._parser.get_method().decode("ascii")
        body = b"".join(self._parts)
        self._parts = []
        self._size = 0
        self._put(_Asked(method, _path(self._url), body, last=not self._parser.should_keep_alive()))

    def _begin(self) -> None:
        self._url = b""
        self._parts = []
        self._size = 0
        self._head_size = 0

    def _count_head(self, size: int) -> None:
        self._head_size += size
        if self._head_size > self._longest_head:
            self._refuse_head()

    def _refuse_head(self) -> None:
        self._refuse(431, f"the request's head is longer than {self._longest_head} bytes")

    def _refuse_body(self) -> None:
        self._refuse(413, f"the body is larger than {self._largest_body} bytes, the most that is read here (--max-body-mib)")

    def _refuse(self, status: int, error: str) -> None:
        """The rest of what the caller sends is not read; it is told so in its turn."""
        if not self._refused:
            self._refused = True
            self._parts.clear()
            self._size = 0
            self._put(_Asked("", "", b"", last=True, refusal=Answer(status, orjson.dumps({"error": error}))))

    # Answering.

    @property
    def _open(self) -> asyncio.Transport | None:
        """The connection, while something can be written on it."""
        return self._transport if self._transport is not None and not self._transport.is_closing() else None

    def _count_kept(self) -> None:
        size = self._size + self._unread_bytes
        if self._waiting:
            size += sum(len(asked.body) for asked in self._waiting)
        if size != self.kept_bytes and self in self._everybody:
            self._everybody.keep(self, size)

    def _taken(self) -> None:
        """The caller has taken the last answer, as far as we know."""
        self._unread_bytes = 0
        self._count_kept()

    def _say_continue(self) -> None:
        """In its turn: what was asked before is answered first."""
        if self._owes_continue and not self._refused and self.answering is None and not self._waiting and self._open is not None:
            self._owes_continue = False
            self._open.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _put(self, asked: _Asked) -> None:
        self._waiting.append(asked)
        self._next()
        if self._waiting and self._open is not None:
            self._open.pause_reading()

    def _next(self) -> None:
        """Answer who waits: at once what is known at once, the rest as a task of its own, which nobody's hanging up ends."""
        while self._waiting and self.answering is None and self.unread_since is None and self._open is not None:
            asked = self._waiting.popleft()
            try:
                answer = asked.refusal or self._handle(asked.method, asked.path, asked.body)
            except Exception:
                answer = _failed(asked)
            if isinstance(answer, Answer) and not answer.more:
                self._write(asked, answer)
            else:
                self.deciding = self._loop.create_future()
                self.answering = self._loop.create_task(self._answer(asked, answer))

    async def _answer(self, asked: _Asked, coming: Answer | Awaitable[Answer]) -> None:
        answer = await self._decide(asked, coming)
        if self.deciding is not None:
            self.deciding.set_result(None)
            self.deciding = None
        if answer is not None:
            await self._write_all(asked, answer)
        self.answering = None
        if self.closed.done():
            self._everybody.forget(self)
        elif self._writable.is_set():
            self._taken()
        self._next()
        self._read_on()

    async def _decide(self, asked: _Asked, coming: Answer | Awaitable[Answer]) -> Answer | None:
        """The answer, or nothing if the caller has hung up before anything was done for it."""
        if isinstance(coming, Answer):
            return coming
        if self._open is None and isinstance(coming, Coroutine):
            coming.close()
            return None
        try:
            return await coming
        except Exception:
            return _failed(asked)

    async def _write_all(self, asked: _Asked, answer: Answer) -> None:
        """As fast as the caller takes it. It is aborted from outside if it takes nothing for too long."""
        last = self._write(asked, answer, more=bool(answer.more))
        for piece in answer.more if asked.method != "HEAD" else ():
            await asyncio.sleep(0)
            await self._writable.wait()
            if self._open is None:
                return
            self._open.write(piece)
        if last and answer.more and self._open is not None:
            self._open.close()

    def _read_on(self) -> None:
        """Whoever waits is answered before more is read."""
        if not self._waiting and self.answering is None and self._open is not None:
            self._say_continue()
            self._open.resume_reading()

    def _write(self, asked: _Asked, answer: Answer, *, more: bool = False) -> bool:
        """In one write: the peer is woken once, and has all of it. Says whether the conversation ends with it."""
        last = asked.last or (self._leaving and not self._waiting)
        self.idle_since = self._loop.time()
        transport = self._open
        if transport is not None:
            self._written_bytes = _size(answer)
            self._unread_bytes = self._written_bytes if more else 0
            transport.write(_head(answer, last=last) + (b"" if asked.method == "HEAD" else answer.body))
            self._count_kept()
            if last and not more:
                transport.close()
        return last


def _failed(asked: _Asked) -> Answer:
    """One bad request must not end the process that every other pod waits for; the log has what is needed to mend it."""
    log.exception("failed path=%s", asked.path)
    return Answer(500, orjson.dumps({"error": "accelshare failed on this request; its log says why"}), JSON)


def _size(answer: Answer) -> int:
    return len(answer.body) + sum(map(len, answer.more)) if answer.more else len(answer.body)


def _head(answer: Answer, *, last: bool) -> bytes:
    close = "connection: close\r\n" if last else ""
    about = f"date: {_now()}\r\ncontent-type: {answer.content_type}\r\ncontent-length: {_size(answer)}\r\n{close}\r\n"
    return (_STATUS_LINES[answer.status] + about).encode("latin-1")


def _path(url: bytes) -> str:
    """What is between the host and the question mark, without its escapes."""
    text = url.decode("latin-1")
    path = text.partition("?")[0] if text.startswith("/") else urlsplit(text).path
    return unquote(path) if "%" in path else path


class _Date:
    """The Date header, written once a second."""

    def __init__(self) -> None:
        self._second = 0
        self._text = ""

    def __call__(self) -> str:
        second = int(time.time())
        if second != self._second:
            self._second, self._text = second, formatdate(second, usegmt=True)
        return self._text


_now: Final = _Date()
