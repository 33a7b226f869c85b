"""The HTTP door of the in-memory API server, as a plain ASGI application.

Belongs here: reading requests, choosing the verb, writing answers, meeting faults. Never: what a verb does.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

import orjson

from accelshare.kube.memory.errors import CODES, ApiError, Object, bad_request, quoted
from accelshare.kube.memory.faults import Drop, Fault, Faults
from accelshare.kube.memory.routing import Target, target
from accelshare.kube.memory.store import Store
from accelshare.kube.memory.streaming import LONGEST_S, Streams, Terms

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# Under this name the server puts a way to break the connection into a request's scope.
ABORT: Final = "accelshare.abort"
VERSION: Final = {"major": "1", "minor": "36", "gitVersion": "v1.36.4+accelshare-memory", "platform": "memory"}
HEALTH: Final = frozenset({"/readyz", "/livez", "/healthz"})
TRUE: Final = frozenset({"1", "true", "True"})
# What a client must not believe to have got.
NOT_DONE: Final = frozenset({"dryRun", "resourceVersionMatch"})


@dataclass(frozen=True, slots=True)
class Request:
    """One request, read completely."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    raw_body: bytes

    @property
    def line(self) -> str:
        """Path and query, for those who look for a request."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    def body(self) -> Any:
        try:
            return orjson.loads(self.raw_body)
        except orjson.JSONDecodeError as error:
            raise bad_request(f"the object provided is unrecognized: {error}") from error

    def number(self, key: str) -> int | None:
        """A query parameter that must be a whole number, if it is there."""
        text = self.query.get(key, "")
        if not text:
            return None
        try:
            return int(text)
        except ValueError as error:
            raise bad_request(f"strconv.ParseInt: parsing {quoted(text)}: invalid syntax") from error


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer, ready for the wire."""

    code: int
    content: bytes
    content_type: str = "application/json"
    retry_after_s: int = 0


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
        found = target(request.path)
        if found is None:
            return Answer(404, b"404 page not found\n", "text/plain; charset=utf-8")
        if request.method == "GET" and not found.name and request.query.get("watch") in TRUE:
            await self._watch(found, request, receive, send)
            return None
        for key in NOT_DONE & request.query.keys():
            raise bad_request(f"the in-memory API server does not do {key}={request.query[key]}")
        verb = _VERBS.get((request.method, "one" if found.name else "all", found.subresource))
        if verb is None:
            raise ApiError("MethodNotAllowed", "the server does not allow this method on the requested resource")
        return verb(self.store, found, request)

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
            revision=None if initial in TRUE else _revision(request),
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


def _create(store: Store, found: Target, request: Request) -> Answer:
    return Answer(201, store.create(found.resource.plural, request.body(), namespace=found.namespace).json)


def _get(store: Store, found: Target, request: Request) -> Answer:
    return Answer(200, store.get(found.resource.plural, found.name, namespace=found.namespace).json)


def _list(store: Store, found: Target, request: Request) -> Answer:
    token, limit = request.query.get("continue", ""), request.number("limit") or 0
    revision = request.query.get("resourceVersion", "")
    if token and revision not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")
    wanted = _revision(request) or 0
    if wanted > store.revision:
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        told = f"Timeout: Too large resource version: {wanted}, current: {store.revision}"
        raise ApiError("Timeout", told, details={"causes": [cause], "retryAfterSeconds": 1})
    page = store.list(
        found.resource.plural,
        namespace=found.namespace,
        labels=request.query.get("labelSelector", ""),
        fields=request.query.get("fieldSelector", ""),
        limit=0 if revision == "0" else limit,  # a list of "whatever you have" comes from the cache, whole
        token=token,
    )
    return Answer(200, page.json)


def _update(store: Store, found: Target, request: Request) -> Answer:
    written = store.update(
        found.resource.plural, found.name, request.body(), namespace=found.namespace, subresource=found.subresource
    )
    return Answer(201 if written.created else 200, written.version.json)


def _patch(store: Store, found: Target, request: Request) -> Answer:
    version = store.patch(
        found.resource.plural,
        found.name,
        request.body(),
        namespace=found.namespace,
        content_type=request.headers.get("content-type", ""),
        subresource=found.subresource,
    )
    return Answer(200, version.json)


def _bind(store: Store, found: Target, request: Request) -> Answer:
    body = request.body()
    name = found.name or (body.get("metadata", {}).get("name", "") if isinstance(body, dict) else "")
    store.bind(name, body, namespace=found.namespace)
    return Answer(201, orjson.dumps(_success(code=201)))


def _delete(store: Store, found: Target, request: Request) -> Answer:
    resource = found.resource
    deleted = store.delete(resource.plural, found.name, namespace=found.namespace, options=_delete_options(request))
    if resource.answers_deleted or not deleted.gone:
        return Answer(200, deleted.version.json)
    about = {"name": found.name, "group": resource.group, "kind": resource.plural}
    about["uid"] = deleted.version.object["metadata"]["uid"]
    return Answer(200, orjson.dumps(_success(details={key: value for key, value in about.items() if value})))


def _delete_all(store: Store, found: Target, request: Request) -> Answer:
    page = store.list(
        found.resource.plural,
        namespace=found.namespace,
        labels=request.query.get("labelSelector", ""),
        fields=request.query.get("fieldSelector", ""),
    )
    for version in page.versions:
        meta = version.object["metadata"]
        namespace = meta.get("namespace", "")
        store.delete(found.resource.plural, meta["name"], namespace=namespace, options=_delete_options(request))
    return Answer(200, page.json)


# method, one object or all, subresource
_VERBS: Final[Mapping[tuple[str, str, str], Callable[[Store, Target, Request], Answer]]] = {
    ("GET", "all", ""): _list,
    ("POST", "all", ""): _create,
    ("DELETE", "all", ""): _delete_all,
    ("GET", "one", ""): _get,
    ("PUT", "one", ""): _update,
    ("PATCH", "one", ""): _patch,
    ("DELETE", "one", ""): _delete,
    ("GET", "one", "status"): _get,
    ("PUT", "one", "status"): _update,
    ("PATCH", "one", "status"): _patch,
    ("POST", "one", "binding"): _bind,
    ("POST", "all", "binding"): _bind,
}


def _success(*, code: int | None = None, details: Object | None = None) -> Object:
    body: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return body | ({"details": details} if details else {}) | ({"code": code} if code else {})


def _delete_options(request: Request) -> Object:
    if request.raw_body.strip():
        body = request.body()
        if not isinstance(body, dict):
            raise bad_request("decoded object cannot be converted to DeleteOptions")
        return body
    grace_s = request.number("gracePeriodSeconds")
    return {} if grace_s is None else {"gracePeriodSeconds": grace_s}


def _revision(request: Request) -> int | None:
    text = request.query.get("resourceVersion", "")
    try:
        return int(text) if text else None
    except ValueError as error:
        told = f"strconv.ParseUint: parsing {quoted(text)}: invalid syntax"
        raise ApiError("", f"resourceVersion: Invalid value: {quoted(text)}: {told}") from error


def _failed(fault: Fault | None) -> Answer | None:
    if fault is None or not fault.code:
        return None
    reason = next((reason for reason, code in CODES.items() if code == fault.code and reason), "InternalError")
    details = {"retryAfterSeconds": fault.retry_after_s} if fault.retry_after_s else None
    error = ApiError(reason, "a fault on order", details=details, code=fault.code)
    return Answer(fault.code, orjson.dumps(error.status()), retry_after_s=fault.retry_after_s)


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
