"""One caller's connection: whole requests in, whole answers out, one after the other, and nothing larger than agreed.

Belongs here: HTTP/1.1 as callers speak it (llhttp's grammar, through httptools). Never: what the paths mean (routes.py), who may
call (tls.py).
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Final, TypeAlias, cast
from urllib.parse import unquote, urlsplit

import msgspec
import orjson
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

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
    def __init__(self, handle: Handle, everybody: set["Caller"], *, largest_body: int) -> None:
        """`everybody` has each caller for as long as it is connected."""
        self._handle = handle
        self._everybody = everybody
        self._largest_body = largest_body
        self._parser = HttpRequestParser(self)
        self._waiting: deque[_Asked] = deque()
        self._leaving = False  # nothing that has not been read yet is answered
        self._refused = False  # what the caller still sends is not looked at
        self._can_write = True
        self._begin()
        self._loop = asyncio.get_running_loop()
        self.answering: asyncio.Task[None] | None = None
        self.idle_since = self._loop.time()
        self.closed: asyncio.Future[None] = self._loop.create_future()

    def leave(self) -> None:
        """Answer what has been asked, then close."""
        self._leaving = True
        if self.answering is None:
            self._transport.close()

    def abort(self) -> None:
        """Close without a goodbye."""
        self._transport.abort()

    # Called by the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._everybody.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._everybody.discard(self)
        self.closed.set_result(None)
        self._waiting.clear()

    def data_received(self, data: bytes) -> None:
        if self._refused or self._leaving:
            return
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self._leaving = True  # it would speak something else from here on; its request is answered as it is
        except HttpParserError as error:
            self._refuse(400, f"this is not HTTP/1.1: {error}")

    def pause_writing(self) -> None:
        self._can_write = False

    def resume_writing(self) -> None:
        self._can_write = True
        self._next()
        self._read_on()

    # Called by the parser.

    def on_message_begin(self) -> None:
        self._begin()

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value))
        match name.lower():
            case b"content-length" if value.isdigit() and int(value) > self._largest_body:
                self._refuse_body()
            case b"expect" if value.lower() == b"100-continue":
                self._waits_for_our_word = True

    def on_headers_complete(self) -> None:
        if self._waits_for_our_word and not self._refused:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size > self._largest_body:
            self._refuse_body()

    def on_message_complete(self) -> None:
        if self._refused:
            return
        method = self._parser.get_method().decode("ascii")
        body = b"".join(self._parts)
        self._put(_Asked(method, _path(self._url), body, last=not self._parser.should_keep_alive()))

    def _begin(self) -> None:
        self._url = b""
        self._parts: list[bytes] = []
        self._size = 0
        self._head_size = 0
        self._waits_for_our_word = False

    def _count_head(self, size: int) -> None:
        self._head_size += size
        if self._head_size > LONGEST_HEAD_BYTES:
            self._refuse(431, f"the request's head is longer than {LONGEST_HEAD_BYTES} bytes")

    def _refuse_body(self) -> None:
        self._refuse(413, f"the body is larger than {self._largest_body} bytes, the most that is read here (--max-body-mib)")

    def _refuse(self, status: int, error: str) -> None:
        """The rest of what the caller sends is not read; it is told so in its turn."""
        if not self._refused:
            self._refused = True
            self._parts.clear()
            self._put(_Asked("", "", b"", last=True, refusal=Answer(status, orjson.dumps({"error": error}))))

    # Answering.

    def _put(self, asked: _Asked) -> None:
        self._waiting.append(asked)
        self._next()
        if self._waiting and not self._transport.is_closing():
            self._transport.pause_reading()

    def _next(self) -> None:
        """Answer who waits: at once what is known at once, the rest as a task of its own, which nobody's hanging up ends."""
        while self._waiting and self.answering is None and self._can_write and not self._transport.is_closing():
            asked = self._waiting.popleft()
            try:
                answer = asked.refusal or self._handle(asked.method, asked.path, asked.body)
            except Exception:
                answer = _failed(asked)
            if isinstance(answer, Answer) and not answer.more:
                self._write(asked, answer)
            else:
                self.answering = self._loop.create_task(self._answer(asked, answer))

    async def _answer(self, asked: _Asked, coming: Answer | Awaitable[Answer]) -> None:
        try:
            answer = coming if isinstance(coming, Answer) else await coming
        except Exception:
            answer = _failed(asked)
        last = self._write(asked, answer, more=bool(answer.more))
        for piece in answer.more if asked.method != "HEAD" else ():
            await asyncio.sleep(0)
            if self._transport.is_closing():
                break
            self._transport.write(piece)
        self.answering = None
        if last and answer.more:
            self._transport.close()
        self._next()
        self._read_on()

    def _read_on(self) -> None:
        """Whoever waits is answered before more is read."""
        if not self._waiting and self.answering is None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _write(self, asked: _Asked, answer: Answer, *, more: bool = False) -> bool:
        """In one write: the peer is woken once, and has all of it. Says whether the conversation ends with it."""
        last = asked.last or (self._leaving and not self._waiting)
        self.idle_since = self._loop.time()
        if not self._transport.is_closing():
            self._transport.write(_head(answer, last=last) + (b"" if asked.method == "HEAD" else answer.body))
            if last and not more:
                self._transport.close()
        return last


def _failed(asked: _Asked) -> Answer:
    """One bad request must not end the process that every other pod waits for; the log has what is needed to mend it."""
    log.exception("failed path=%s", asked.path)
    return Answer(500, orjson.dumps({"error": "accelshare failed on this request; its log says why"}), JSON)


def _head(answer: Answer, *, last: bool) -> bytes:
    close = "connection: close\r\n" if last else ""
    length = len(answer.body) + sum(map(len, answer.more))
    about = f"date: {_now()}\r\ncontent-type: {answer.content_type}\r\ncontent-length: {length}\r\n{close}\r\n"
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
