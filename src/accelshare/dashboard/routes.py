"""The dashboard's HTTP paths: the page, the snapshot, the stream of changes, the explanation of a pod. GET only.

Belongs here: the table of paths, and the headers of every response. Never: sockets (http/), what a snapshot has.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from importlib.resources import files
from typing import Final
from urllib.parse import parse_qs

import msgspec

from accelshare.dashboard.access import Authenticator, HostNames, UncheckedError
from accelshare.dashboard.event_stream import EventStream
from accelshare.dashboard.explanations import MOST_NODES, Explanations, TooManyError
from accelshare.dashboard.updates import Updates
from accelshare.http.messages import JSON, HttpRequest, Response
from accelshare.kube.errors import KubeError
from accelshare.report.explain import Explanation
from accelshare.terminal import visible

PAGES: Final[Mapping[str, tuple[str, str]]] = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/dashboard.js": ("dashboard.js", "text/javascript; charset=utf-8"),
    "/dashboard.css": ("dashboard.css", "text/css; charset=utf-8"),
}
SECURITY: Final = (
    "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options: nosniff",
    "x-frame-options: DENY",
    "referrer-policy: no-referrer",
    "cross-origin-opener-policy: same-origin",
    "cross-origin-resource-policy: same-origin",
)
FRESH: Final = "cache-control: no-cache"  # after an upgrade the browser must not show the old page
PRIVATE: Final = "cache-control: no-store"
MOST_READERS: Final = 32
LONGEST_QUERY: Final = 1024


class DashboardRoutes:
    def __init__(self, updates: Updates, explanations: Explanations, hosts: HostNames, authenticator: Authenticator) -> None:
        self._updates = updates
        self._explanations = explanations
        self._hosts = hosts
        self._authenticator = authenticator
        self._pages = {path: _page(*named) for path, named in PAGES.items()}
        self._streams: set[EventStream] = set()
        self._ended = asyncio.Event()
        self.reader_came = asyncio.Event()

    @property
    def readers(self) -> int:
        """Open streams."""
        return len(self._streams)

    def end_streams(self) -> None:
        """The server stops."""
        self._ended.set()

    def handle(self, request: HttpRequest) -> Response | Awaitable[Response]:
        headers = request.headers
        if not self._hosts.allows(headers.get("host", "")):
            return _problem(421, "the Host header has a name that this dashboard does not know; its flag for names adds one")
        if request.method not in ("GET", "HEAD"):
            return _problem(405, f"{request.method[:20]} is not possible: the dashboard only reads", "allow: GET, HEAD")
        page = self._pages.get(request.path)
        return page if page is not None else self._api(request, headers)

    async def _api(self, request: HttpRequest, headers: Mapping[str, str]) -> Response:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        token = given.strip() if scheme.lower() == "bearer" else ""
        try:
            if not await self._authenticator.allows(token):
                return _problem(401, "a token is needed", "www-authenticate: Bearer")
        except UncheckedError:  # not 401, at which the page asks its reader for another token
            return _problem(503, "the API server cannot check the token at the moment", "retry-after: 2")
        match request.path:
            case "/api/events":
                return self._events(request.method, headers.get("last-event-id", ""), token)
            case "/api/snapshot":
                return self._snapshot()
            case "/api/explain":
                return await self._explain(request.query)
        return _problem(404, f"nothing at {visible(request.path)[:200]}")

    def _snapshot(self) -> Response:
        if not self._updates.number:
            return _problem(503, "nodes and pods are not listed yet", "retry-after: 1")
        return Response(200, self._updates.message(0).data, headers=(*SECURITY, PRIVATE))

    def _events(self, method: str, last_event_id: str, token: str) -> Response:
        if method == "HEAD":
            return Response(200, b"", "text/event-stream", headers=(*SECURITY, PRIVATE))
        if len(self._streams) >= MOST_READERS:
            return _problem(503, f"{MOST_READERS} readers are connected already", "retry-after: 5")
        stream = EventStream(
            self._updates, last_event_id, self._ended, self._streams.discard, allowed=lambda: self._still_allows(token)
        )
        self._streams.add(stream)
        self.reader_came.set()
        return Response(200, b"", "text/event-stream", stream=stream, headers=(*SECURITY, PRIVATE))

    async def _still_allows(self, token: str) -> bool:
        """A token may expire or be withdrawn while its reader watches. One that cannot be checked now counts as good."""
        try:
            return await self._authenticator.allows(token)
        except UncheckedError:
            return True

    async def _explain(self, query: str) -> Response:
        try:
            names = parse_qs(query[:LONGEST_QUERY], max_num_fields=4)
        except ValueError:  # more fields than that
            names = {}
        namespace, name = (names.get(key, [""])[0] for key in ("namespace", "name"))
        if not namespace or not name:
            return _problem(400, "explain needs the parameters namespace and name")
        try:
            explanation = await self._explanations.explain(namespace, name)
        except TooManyError:
            return _problem(503, "too many explanations are being made", "retry-after: 2")
        except KubeError as error:
            return _problem(502, f"the API server does not answer as needed: {visible(str(error))[:500]}")
        if explanation is None:
            return _problem(404, f"there is no pod {visible(f'{namespace}/{name}')[:300]} any more")
        return Response(200, _json(explanation), headers=(*SECURITY, PRIVATE))


def _json(explanation: Explanation) -> bytes:
    shown = msgspec.to_builtins(explanation)
    shown["nodes"], shown["more"] = shown["nodes"][:MOST_NODES], max(0, len(explanation.nodes) - MOST_NODES)
    return msgspec.json.encode(_visible(shown))


def _visible(value: object) -> object:
    """Every text of it, as people may see it."""
    match value:
        case str():
            return visible(value)
        case list() | tuple():
            return [_visible(each) for each in value]
        case dict():
            return {key: _visible(each) for key, each in value.items()}
    return value


def _page(name: str, content_type: str) -> Response:
    content = files("accelshare.dashboard").joinpath("page", name).read_bytes()
    return Response(200, content, content_type, headers=(*SECURITY, FRESH))


def _problem(status: int, error: str, *headers: str) -> Response:
    return Response(status, msgspec.json.encode({"error": error}), JSON, headers=(*SECURITY, PRIVATE, *headers))
