"""One HTTP answer as it arrives: its head, then its body piece by piece.

Belongs here: the grammar of answers (llhttp's, through httptools), and waiting for what has not come yet.
Never: a socket (`connection`), or what an answer means (`client`).
"""

import asyncio
from collections.abc import Callable
from typing import Final

from httptools import HttpParserError, HttpResponseParser

# A watcher that falls so far behind lets the API server wait, rather than keep everything in memory.
MOST_BUFFERED_BYTES: Final = 1 << 20


class BrokenOffError(ConnectionError):
    """The connection ended before the answer did, or what came is no HTTP."""


class Answer:
    """`feed`, `ended` and `fail` bring it in; `head`, `piece` and `read` wait for it, one reader at a time."""

    def __init__(self, resume: Callable[[], None]) -> None:
        """`resume` is called when the reader has caught up after `is_full`."""
        self.status = 0
        self.headers: dict[str, str] = {}  # names in lower case
        self.begun = False  # something of it has come
        self.complete = False
        self.keeps_connection = False
        self._resume = resume
        self._parser = HttpResponseParser(self)
        self._head_complete = False
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._failure: Exception | None = None
        self._news: asyncio.Future[None] | None = None

    @property
    def is_full(self) -> bool:
        return self._buffered > MOST_BUFFERED_BYTES

    # What comes in.

    def feed(self, data: bytes) -> None:
        self.begun = True
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            self.keeps_connection = False
            self.fail(BrokenOffError(f"not an HTTP answer: {error}"))
        self._tell()

    def ended(self, error: Exception | None) -> None:
        """The connection is closed. A body without a length ends so; any other is broken off."""
        if self._head_complete and error is None and self.headers.keys().isdisjoint(("content-length", "transfer-encoding")):
            self.complete = True
            self._tell()
        elif error is not None:
            self.fail(error)
        else:
            self.fail(BrokenOffError("the answer broke off" if self.begun else "the connection was closed without an answer"))

    def fail(self, error: Exception) -> None:
        """Nothing more will come, and this is why. What came before can still be read."""
        if not self.complete and self._failure is None:
            self._failure = error
            self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, None
        if news is not None and not news.done():
            news.set_result(None)

    # Called by the parser.

    def on_message_begin(self) -> None:
        if self.complete:
            raise BrokenOffError("another answer, to no question")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._head_complete = self.status >= 200  # 100 Continue and its like come before the answer

    def on_body(self, data: bytes) -> None:
        self._chunks.append(data)
        self._buffered += len(data)

    def on_message_complete(self) -> None:
        if self._head_complete:
            self.complete = True
            self.keeps_connection = self._parser.should_keep_alive()
        else:
            self.headers.clear()

    # What is waited for.

    async def head(self) -> None:
        """Until `status` and `headers` are known."""
        while not self._head_complete:
            if self._failure is not None:
                raise self._failure
            await self._more()

    async def piece(self, *, silence_s: float | None = None) -> bytes:
        """What has come of the body since the last piece, or comes next; empty at its end.

        Raises TimeoutError if nothing comes for `silence_s`.
        """
        while not self._chunks:
            if self.complete:
                return b""
            if self._failure is not None:
                raise self._failure
            if silence_s is None:
                await self._more()
            else:
                await asyncio.wait_for(self._more(), silence_s)
        taken = b"".join(self._chunks)
        self._chunks.clear()
        was_full, self._buffered = self.is_full, 0
        if was_full:
            self._resume()
        return taken

    async def read(self) -> bytes:
        """The whole body."""
        pieces: list[bytes] = []
        while piece := await self.piece():
            pieces.append(piece)
        return b"".join(pieces)

    async def _more(self) -> None:
        self._news = asyncio.get_running_loop().create_future()
        await self._news
