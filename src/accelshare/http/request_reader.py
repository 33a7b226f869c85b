"""Parses the bytes of one connection into complete requests, and refuses those that are too large or not HTTP/1.1.

Belongs here: the grammar of requests (llhttp's, through httptools), limits of heads and bodies. Never: a connection, a response
to a complete request.
"""

from collections.abc import Callable
from typing import Final

import msgspec
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from accelshare.http.messages import HttpRequest, Response, error_response

_HEADER_SEPARATORS: Final = len(": \r\n")


class PendingRequest(msgspec.Struct, frozen=True):
    """A request that waits for its turn, or the response to one that was refused before it was complete."""

    request: HttpRequest
    last: bool  # the connection closes after this response
    refusal: Response | None = None


class RequestReader:
    def __init__(
        self,
        on_request: Callable[[PendingRequest], None],
        on_head: Callable[[], None],
        *,
        max_body_bytes: int,
        max_head_bytes: int,
    ) -> None:
        """`on_head` is called when a request's head is complete, `on_request` when the request is complete or refused."""
        self._on_request = on_request
        self._on_head = on_head
        self._max_body_bytes = max_body_bytes
        self._max_head_bytes = max_head_bytes
        self._parser = HttpRequestParser(self)
        self._parser_events = 0
        self._unparsed_bytes = 0  # since the last event: of a header, trailer or chunk extension that has not ended
        self._headers: list[tuple[bytes, bytes]] = []
        self._parts: list[bytes] = []
        self._begin()
        self.refused = False  # everything else that the client sends is ignored
        self.expects_continue = False  # the client waits for 100 Continue before it sends the body
        self.upgrade = False  # the client would switch protocols after its last request

    @property
    def body_bytes(self) -> int:
        """Of the request that is not complete yet."""
        return self._size

    def feed(self, data: bytes) -> None:
        events = self._parser_events
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self.upgrade = True
        except HttpParserError as error:
            self._refuse(400, f"this is not HTTP/1.1: {error}")
        # The parser keeps a header until it is complete, at a cost that grows with the square of its length.
        self._unparsed_bytes = self._unparsed_bytes + len(data) if events == self._parser_events else 0
        if self._unparsed_bytes > self._max_head_bytes:
            self._refuse_head()

    # Called by the parser.

    def on_message_begin(self) -> None:
        self._parser_events += 1
        self._begin()

    def on_url(self, url: bytes) -> None:
        self._parser_events += 1
        self._url += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._parser_events += 1
        self._count_head(len(name) + len(value) + _HEADER_SEPARATORS)
        self._headers.append((name, value))
        match name.lower():
            case b"content-length" if value.isdigit() and int(value) > self._max_body_bytes:
                self._refuse_body()
            case b"expect" if value.lower() == b"100-continue":
                self.expects_continue = self._parser.get_http_version() == "1.1"

    def on_headers_complete(self) -> None:
        self._parser_events += 1
        self._on_head()

    def on_body(self, data: bytes) -> None:
        self._parser_events += 1
        self.expects_continue = False  # the client did not wait
        self._parts.append(data)
        self._size += len(data)
        if self._size > self._max_body_bytes:
            self._refuse_body()

    def on_message_complete(self) -> None:
        self._parser_events += 1
        self.expects_continue = False
        if self.refused:
            return
        method = self._parser.get_method().decode("ascii")
        request = HttpRequest(method, self._url.decode("latin-1"), b"".join(self._parts), self._headers)
        self._parts = []
        self._size = 0
        self._on_request(PendingRequest(request, last=not self._parser.should_keep_alive()))

    def _begin(self) -> None:
        self._url = b""
        self._headers = []
        self._parts = []
        self._size = 0
        self._head_size = 0

    def _count_head(self, size: int) -> None:
        self._head_size += size
        if self._head_size > self._max_head_bytes:
            self._refuse_head()

    def _refuse_head(self) -> None:
        self._refuse(431, f"the request's head is longer than {self._max_head_bytes} bytes")

    def _refuse_body(self) -> None:
        self._refuse(413, f"the request's body is larger than {self._max_body_bytes} bytes, the limit set by --max-body-mib")

    def _refuse(self, status: int, error: str) -> None:
        """Ignore the rest of what the client sends; the refusal is written after the responses that are due before it."""
        if not self.refused:
            self.refused = True
            self._parts.clear()
            self._size = 0
            self._on_request(PendingRequest(HttpRequest("", ""), last=True, refusal=error_response(status, error)))
