"""The HTTP verbs: from a path and a request to a call of the store, and from its result to a response.

Belongs here: the shape of Kubernetes' paths, query parameters, status codes, bodies. Never: sockets, what a verb does (store.py).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlencode

import orjson

from accelshare.testing.api_server.deletion import check_preconditions, read_options
from accelshare.testing.api_server.errors import Object, RequestError, bad_request, quoted
from accelshare.testing.api_server.resources import RESOURCES, ApiResource
from accelshare.testing.api_server.store import Store


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """The resource that a path names: one object, or without a name a collection, and the subresource."""

    resource: ApiResource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def request_target(path: str) -> RequestTarget | None:
    """The target of a path; None if this server does not serve it."""
    match [unquote(part) for part in path.strip("/").split("/")]:
        case ["api", "v1", *rest]:
            return _within("", rest)
        case ["apis", group, "v1", *rest] if group:
            return _within(group, rest)
        case _:
            return None


def _within(group: str, parts: list[str]) -> RequestTarget | None:
    namespace = ""
    if len(parts) > 2 and parts[0] == "namespaces":
        _, namespace, *parts = parts
    match parts:
        case ["bindings"] if namespace and not group:  # the older path of the same subresource
            return RequestTarget(RESOURCES["pods"], namespace, subresource="binding")
        case [plural, *rest] if len(rest) <= 2:
            resource = RESOURCES.get(plural)
            name, subresource = (*rest, "", "")[:2]
        case _:
            return None
    if resource is None or resource.group != group or (namespace and not resource.namespaced):
        return None
    if name and resource.namespaced and not namespace:
        return None
    is_pod = resource.plural == "pods"
    known = {"binding": is_pod, "eviction": is_pod, "status": resource.on_status_update is not None, "": True}
    return RequestTarget(resource, namespace, name, subresource) if known.get(subresource, False) else None


# Refused, because a client must not believe that they had an effect.
NOT_DONE: Final = frozenset({"dryRun", "resourceVersionMatch"})


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request, read completely."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    raw_body: bytes

    @property
    def line(self) -> str:
        """Path and query."""
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
class ApiResponse:
    """An HTTP response."""

    code: int
    content: bytes
    content_type: str = "application/json"
    retry_after_s: int = 0


def answer(store: Store, target: RequestTarget, request: ApiRequest) -> ApiResponse:
    """Handle a request other than a watch. RequestError if it is refused."""
    for key in (NOT_DONE - ({"dryRun"} if target.subresource == "eviction" else set())) & request.query.keys():
        raise bad_request(f"the fake API server does not support {key}={request.query[key]}")
    verb = VERBS.get((request.method, "one" if target.name else "all", target.subresource))
    if verb is None:
        raise RequestError("MethodNotAllowed", "the server does not allow this method on the requested resource")
    return verb(store, target, request)


def _create(store: Store, target: RequestTarget, request: ApiRequest) -> ApiResponse:
    return ApiResponse(201, store.create(target.resource.plural, request.body(), namespace=target.namespace).json)


def _get(store: Store, target: RequestTarget, request: ApiRequest) -> ApiResponse:
    return ApiResponse(200, store.get(target.resource.plural, target.name, namespace=target.namespace).json)


def _list(store: Store, target: RequestTarget, request: ApiRequest) -> ApiResponse:
    token, limit = request.query.get("continue", ""), request.number("limit") or 0
    wanted = revision(request)
    if token and wanted:
        raise bad_request("specifying resource version is not allowed when using continue")
    if wanted is not None and wanted > store.revision:
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        message = f"Timeout: Too large resource version: {wanted}, current: {store.revision}"
        raise RequestError("Timeout", message, details={"causes": [cause], "retryAfterSeconds": 1})
    page = store.list(
        target.resource.plural,
        namespace=target.namespace,
        labels=request.query.get("labelSelector", ""),
        fields=request.query.get("fieldSelector", ""),
        limit=0 if wanted == 0 else limit,  # a list at revision 0 comes from the cache, without pages
        token=token,
    )
    return ApiResponse(200, page.json)


def _update(store: Store, target: RequestTarget, request: ApiRequest) -> ApiResponse:
    written = store.update(
        target.resource.plural, target.name, request.body(), namespace=target.namespace, subresource=target.subresource
    )
    return ApiResponse(201 if written.created else 200, written.version.json)


def _patch(store: Store, target: RequestTarget, request: ApiRequest) -> ApiResponse:
    version = store.patch(
        target.resource.plural,
        target.name,
        request.body(),
        namespace=target.namespace,
        content_type=request.headers.get("content-type", ""),
        subresource=target.subresource,
    )
    return ApiResponse(200, version.json)


def _bind(store: Store, target: RequestTarget, request: ApiRequest) -> ApiResponse:
    body = request.body()
    name = target.name or (body.get("metadata", {}).get("name", "") if isinstance(body, dict) else "")
    store.bind(name, body, namespace=target.namespace)
    return ApiResponse(201, orjson.dumps(_success(code=201)))


def _evict(store: Store, target: RequestTarget, request: ApiRequest) -> ApiResponse:
    """There are no disruption budgets here: every eviction is allowed."""
    body = request.body()
    if not isinstance(body, dict) or body.get("kind") != "Eviction":
        raise bad_request("the object provided is unrecognized: it is no Eviction")
    if body.get("metadata", {}).get("name", target.name) != target.name:
        raise bad_request("name in URL does not match name in Eviction object")
    options = body.get("deleteOptions") or {}
    if request.query.get("dryRun") == "All":
        pod = store.get(target.resource.plural, target.name, namespace=target.namespace).object
        check_preconditions(target.resource, pod, read_options(options))
    else:
        store.delete(target.resource.plural, target.name, namespace=target.namespace, options=options)
    return ApiResponse(201, orjson.dumps(_success(code=201)))


def _delete(store: Store, target: RequestTarget, request: ApiRequest) -> ApiResponse:
    resource = target.resource
    deleted = store.delete(resource.plural, target.name, namespace=target.namespace, options=_delete_options(request))
    if resource.answers_deleted or not deleted.gone:
        return ApiResponse(200, deleted.version.json)
    about = {"name": target.name, "group": resource.group, "kind": resource.plural}
    about["uid"] = deleted.version.object["metadata"]["uid"]
    return ApiResponse(200, orjson.dumps(_success(details={key: value for key, value in about.items() if value})))


def _delete_all(store: Store, target: RequestTarget, request: ApiRequest) -> ApiResponse:
    page = store.list(
        target.resource.plural,
        namespace=target.namespace,
        labels=request.query.get("labelSelector", ""),
        fields=request.query.get("fieldSelector", ""),
    )
    for version in page.versions:
        meta = version.object["metadata"]
        namespace = meta.get("namespace", "")
        store.delete(target.resource.plural, meta["name"], namespace=namespace, options=_delete_options(request))
    return ApiResponse(200, page.json)


# method, one object or all, subresource
VERBS: Final[Mapping[tuple[str, str, str], Callable[[Store, RequestTarget, ApiRequest], ApiResponse]]] = {
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
    ("POST", "one", "eviction"): _evict,
}


def _success(*, code: int | None = None, details: Object | None = None) -> Object:
    body: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return body | ({"details": details} if details else {}) | ({"code": code} if code else {})


def _delete_options(request: ApiRequest) -> Object:
    if request.raw_body.strip():
        body = request.body()
        if not isinstance(body, dict):
            raise bad_request("decoded object cannot be converted to DeleteOptions")
        return body
    grace_s = request.number("gracePeriodSeconds")
    return {} if grace_s is None else {"gracePeriodSeconds": grace_s}


def revision(request: ApiRequest) -> int | None:
    text = request.query.get("resourceVersion", "")
    try:
        return int(text) if text else None
    except ValueError as error:
        problem = f"strconv.ParseUint: parsing {quoted(text)}: invalid syntax"
        raise RequestError("", f"resourceVersion: Invalid value: {quoted(text)}: {problem}") from error
