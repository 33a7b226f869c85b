"""The HTTP door of the in-memory API server, as a plain ASGI application.

Belongs here: reading requests, who may ask, watches, writing answers, meeting faults. Never: the other verbs.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl

import orjson

from accelshare.testing.api_server import verbs
from accelshare.testing.api_server.errors import CODES, ApiError, bad_request
from accelshare.testing.api_server.faults import Drop, Fault, Faults
from accelshare.testing.api_server.store import Store
from accelshare.testing.api_server.streaming import LONGEST_S, Streams, Terms
from accelshare.testing.api_server.verbs import Answer, Request, Target, target

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# Under this name the server puts a way to break the connection into a request's scope.
ABORT: Final = "accelshare.abort"
VERSION: Final = {"major": "1", "minor": "36", "gitVersion": "v1.36.4+accelshare-memory", "platform": "memory"}
HEALTH: Final = frozenset({"/readyz", "/livez", "/healthz"})
REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
TRUE: Final = frozenset({"1", "true", "True"})


@dataclass(frozen=True, slots=True)
class App:
    """The store over HTTP."""

    store: Store
    faults: Faults
    streams: Streams
    stopping: asyncio.Event
    token: str = ""

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        request = await _read(scope, receive)
        fault = self.faults.meet(request.method, request.line)
        stopped = fault is not None and fault.delay_s and await self._stops_within(fault.delay_s)
        if stopped or (fault is not None and fault.drop is Drop.BEFORE):
            await _abort(scope, receive)
            return
        try:
            answer = _failed(fault) or await self._answer(request, receive, send)
        except ApiError as error:
            answer = Answer(error.code, orjson.dumps(error.status()))
        if fault is not None and fault.drop is Drop.AFTER:
            await _abort(scope, receive)
        elif answer is not None:
            await _write(answer, send)

    async def _answer(self, request: Request, receive: Receive, send: Send) -> Answer | None:
        """The answer, or None when a watch has already written it."""
        given = request.headers.get("authorization", "").encode()
        if self.token and not hmac.compare_digest(given, f"Bearer {self.token}".encode()):
            raise ApiError("Unauthorized", "Unauthorized")
        if request.path in HEALTH:
            return Answer(200, b"ok", "text/plain; charset=utf-8")
        if request.path == "/version":
            return Answer(200, orjson.dumps(VERSION))
        if request.path == REVIEWS and request.method == "POST":
            return _reviewed(request)
        found = target(request.path)
        if found is None:
            return Answer(404, b"404 page not found\n", "text/plain; charset=utf-8")
        if request.method == "GET" and not found.name and request.query.get("watch") in TRUE:
            await self._watch(found, request, receive, send)
            return None
        return verbs.answer(self.store, found, request)

    async def _stops_within(self, delay_s: float) -> bool:
        """Wait, though not for a server that stops meanwhile."""
        try:
            async with asyncio.timeout(delay_s):
                return await self.stopping.wait()
        except TimeoutError:
            return False

    async def _watch(self, found: Target, request: Request, receive: Receive, send: Send) -> None:
        initial = request.query.get("sendInitialEvents", "")
        watch = self.store.watch(
            found.resource.plural,
            namespace=found.namespace,
            labels=request.query.get("labelSelector", ""),
            fields=request.query.get("fieldSelector", ""),
            revision=None if initial in TRUE else verbs.revision(request),
        )
        bookmarks = request.query.get("allowWatchBookmarks") in TRUE
        timeout_s = request.number("timeoutSeconds") or LONGEST_S
        terms = Terms(timeout_s=timeout_s, bookmarks=bookmarks, mark_end_of_initial=initial in TRUE and bookmarks)
        await send(_start(200, "application/json"))
        # The real server shows that the watch stands before anything happens, and so must this one.
        await send({"type": "http.response.body", "body": b"", "more_body": True})

        async def write(chunk: bytes) -> None:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})

        await self.streams.serve(watch, terms, write, _disconnected(receive))
        await send({"type": "http.response.body", "body": b""})


def _failed(fault: Fault | None) -> Answer | None:
    if fault is None or not fault.code:
        return None
    reason = next((reason for reason, code in CODES.items() if code == fault.code and reason), "InternalError")
    details = {"retryAfterSeconds": fault.retry_after_s} if fault.retry_after_s else None
    error = ApiError(reason, "a fault on order", details=details, code=fault.code)
    return Answer(fault.code, orjson.dumps(error.status()), retry_after_s=fault.retry_after_s)


def _reviewed(request: Request) -> Answer:
    """Whoever has the token is an administrator."""
    body = request.body()
    if not isinstance(body, dict):
        raise bad_request("the object provided is unrecognized: it is no SelfSubjectAccessReview")
    return Answer(201, orjson.dumps({**body, "metadata": {}, "status": {"allowed": True}}))


async def _read(scope: MutableMapping[str, Any], receive: Receive) -> Request:
    chunks, more = [], True
    while more:
        message = await receive()
        chunks.append(message.get("body", b""))
        more = message.get("more_body", False)
    return Request(
        method=scope["method"],
        path=scope["raw_path"].decode("latin-1"),
        query=dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)),
        headers={name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]},
        raw_body=b"".join(chunks),
    )


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _abort(scope: MutableMapping[str, Any], receive: Receive) -> None:
    scope["extensions"][ABORT]["call"]()
    await _disconnected(receive)


def _start(code: int, content_type: str, *more: tuple[bytes, bytes]) -> Message:
    return {"type": "http.response.start", "status": code, "headers": [(b"content-type", content_type.encode()), *more]}


async def _write(answer: Answer, send: Send) -> None:
    retry = [(b"retry-after", str(answer.retry_after_s).encode())] if answer.retry_after_s else []
    length = (b"content-length", str(len(answer.content)).encode())
    await send(_start(answer.code, answer.content_type, length, *retry))
    await send({"type": "http.response.body", "body": answer.content})
