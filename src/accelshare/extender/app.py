"""The ASGI side of a port: a whole body in, a whole answer out, and nothing larger than agreed.

Belongs here: HTTP as uvicorn hands it over. Never: what the paths mean (routes.py).
"""

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

import orjson

from accelshare.extender.routes import JSON, Answer

log = logging.getLogger(__name__)
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Handle: TypeAlias = Callable[[str, str, bytes], Awaitable[Answer]]


class App:
    def __init__(self, handle: Handle, *, largest_body: int) -> None:
        self._handle = handle
        self._largest_body = largest_body

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = await self._body(scope, receive)
        if body is None:
            said = f"the body is larger than {self._largest_body} bytes, the most that is read here (--max-body-mib)"
            await _send(send, Answer(413, orjson.dumps({"error": said})), close=True)
            return
        try:
            answer = await self._handle(scope["method"], scope["path"], body)
        except Exception:
            # One bad request must not end the process that every other pod waits for; the log has what is needed to mend it.
            log.exception("failed path=%s", scope["path"])
            answer = Answer(500, orjson.dumps({"error": "accelshare failed on this request; its log says why"}), JSON)
        await _send(send, answer)

    async def _body(self, scope: Message, receive: Receive) -> bytes | None:
        """The whole body, or None as soon as it is known to be too large."""
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value) > self._largest_body:
                return None
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return b""
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._largest_body:
                return None
            if not message.get("more_body", False):
                return b"".join(parts) if len(parts) > 1 else parts[0]


async def _send(send: Send, answer: Answer, *, close: bool = False) -> None:
    headers = [(b"content-type", answer.content_type.encode()), (b"content-length", str(len(answer.body)).encode())]
    if close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
