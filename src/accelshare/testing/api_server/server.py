"""FakeApiServer: serves the store on a loopback port, in the running event loop.

Belongs here: starting and stopping, authentication, watches, injected faults, the kubeconfig for it. Never: the other verbs.
"""

import asyncio
import hmac
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import parse_qsl

import orjson
import yaml

from accelshare.http import messages
from accelshare.http.messages import TEXT, AbortConnection, Response
from accelshare.http.server import Server, listen
from accelshare.testing.api_server import pod_proxy, verbs
from accelshare.testing.api_server.errors import CODES, RequestError, bad_request
from accelshare.testing.api_server.faults import Drop, Fault, Faults
from accelshare.testing.api_server.store import Store
from accelshare.testing.api_server.streaming import MAX_WATCH_S, WatchOptions, WatchStream
from accelshare.testing.api_server.verbs import ApiRequest, ApiResponse, RequestTarget, request_target

VERSION: Final = {"major": "1", "minor": "36", "gitVersion": "v1.36.4+accelshare-memory", "platform": "memory"}
HEALTH: Final = frozenset({"/readyz", "/livez", "/healthz"})
REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
TRUE: Final = frozenset({"1", "true", "True"})
MAX_BODY_BYTES: Final = 64 << 20


class FakeApiServer:
    """`async with FakeApiServer() as api:` serves `api.store` at `api.url`, with the faults of `api.faults`."""

    def __init__(self, store: Store | None = None, *, token: str = "", port: int = 0) -> None:
        self.store = Store() if store is None else store
        self.faults = Faults()
        self.token = token
        self.url = ""
        self._port = port
        self._watches: set[WatchStream] = set()
        self._stopping = asyncio.Event()
        self._server: Server | None = None

    async def __aenter__(self) -> Self:
        listening = listen("127.0.0.1", self._port)
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self._server = Server(self._handle, listening, max_body_bytes=MAX_BODY_BYTES)
        self._server.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._server is not None
        self._stopping.set()
        self.end_watches()
        await self._server.stop()

    @property
    def open_watches(self) -> int:
        return len(self._watches)

    def end_watches(self) -> None:
        """End every open watch, as a server does that restarts."""
        for stream in tuple(self._watches):
            stream.end()

    def write_kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig for this server."""
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "memory", "cluster": {"server": self.url}}],
            "users": [{"name": "memory", "user": {"token": self.token} if self.token else {}}],
            "contexts": [{"name": "memory", "context": {"cluster": "memory", "user": "memory"}}],
            "current-context": "memory",
        }
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return path

    async def _handle(self, received: messages.HttpRequest) -> Response:
        request = ApiRequest(
            method=received.method,
            path=received.raw_path,
            query=dict(parse_qsl(received.query, keep_blank_values=True)),
            headers=received.headers,
            raw_body=received.body,
        )
        fault = self.faults.meet(request.method, request.line)
        stopped = fault is not None and fault.delay_s and await self._stops_within(fault.delay_s)
        if stopped or (fault is not None and fault.drop is Drop.BEFORE):
            raise AbortConnection
        try:
            if fault is not None and fault.code:
                response = _response(_failed(fault))
            elif request.method == "GET" and (proxied := pod_proxy.proxy_target(request.path)) is not None:
                self._authenticate(request)
                response = await pod_proxy.get(self.store, proxied)
            else:
                response = self._answer(request)
        except RequestError as error:
            response = Response(error.code, orjson.dumps(error.status()))
        if fault is not None and fault.drop is Drop.AFTER:
            raise AbortConnection
        return response

    async def _stops_within(self, delay_s: float) -> bool:
        """Wait for this time, or until the server stops."""
        try:
            async with asyncio.timeout(delay_s):
                return await self._stopping.wait()
        except TimeoutError:
            return False

    def _authenticate(self, request: ApiRequest) -> None:
        authorization = request.headers.get("authorization", "").encode()
        if self.token and not hmac.compare_digest(authorization, f"Bearer {self.token}".encode()):
            raise RequestError("Unauthorized", "Unauthorized")

    def _answer(self, request: ApiRequest) -> Response:
        self._authenticate(request)
        if request.path in HEALTH:
            return Response(200, b"ok", TEXT)
        if request.path == "/version":
            return Response(200, orjson.dumps(VERSION))
        if request.path == REVIEWS and request.method == "POST":
            return _review(request)
        target = request_target(request.path)
        if target is None:
            return Response(404, b"404 page not found\n", TEXT)
        if request.method == "GET" and not target.name and request.query.get("watch") in TRUE:
            return self._watch(target, request)
        return _response(verbs.answer(self.store, target, request))

    def _watch(self, target: RequestTarget, request: ApiRequest) -> Response:
        initial = request.query.get("sendInitialEvents", "")
        watch = self.store.watch(
            target.resource.plural,
            namespace=target.namespace,
            labels=request.query.get("labelSelector", ""),
            fields=request.query.get("fieldSelector", ""),
            revision=None if initial in TRUE else verbs.revision(request),
        )
        bookmarks = request.query.get("allowWatchBookmarks") in TRUE
        timeout_s = request.number("timeoutSeconds") or MAX_WATCH_S
        options = WatchOptions(timeout_s=timeout_s, bookmarks=bookmarks, mark_end_of_initial=initial in TRUE and bookmarks)
        stream = WatchStream(watch, options, self._watches.discard)
        self._watches.add(stream)
        return Response(200, b"", stream=stream)


def _response(answer: ApiResponse) -> Response:
    retry_after = (f"retry-after: {answer.retry_after_s}",) if answer.retry_after_s else ()
    return Response(answer.code, answer.content, answer.content_type, headers=retry_after)


def _failed(fault: Fault) -> ApiResponse:
    reason = next((reason for reason, code in CODES.items() if code == fault.code and reason), "InternalError")
    details = {"retryAfterSeconds": fault.retry_after_s} if fault.retry_after_s else None
    error = RequestError(reason, "an injected fault", details=details, code=fault.code)
    return ApiResponse(fault.code, orjson.dumps(error.status()), retry_after_s=fault.retry_after_s)


def _review(request: ApiRequest) -> Response:
    """Every client with the token has every right."""
    body = request.body()
    if not isinstance(body, dict):
        raise bad_request("the object provided is unrecognized: it is no SelfSubjectAccessReview")
    return Response(201, orjson.dumps({**body, "metadata": {}, "status": {"allowed": True}}))
