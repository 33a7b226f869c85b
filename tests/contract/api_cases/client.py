"""A raw HTTP client for the cases: it sends requests and reads responses and watches."""

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from ssl import SSLContext
from typing import Any
from urllib.parse import urlencode, urlsplit

Body = dict[str, Any]

PATIENCE_S = 60.0
JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


@dataclass(frozen=True, slots=True)
class Reply:
    """A response: its code, its body as JSON or text, its content type."""

    code: int
    body: Any
    content_type: str

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))

    @property
    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.body["items"]]

    @property
    def version(self) -> str:
        return str(self.body["metadata"]["resourceVersion"])


class Stream:
    """An open watch; reads one event at a time."""

    def __init__(self, response: HTTPResponse) -> None:
        self.code = response.status
        self._response = response

    def next(self) -> tuple[str, Body]:
        """The next event's type and object; fails if the stream ends or no event comes for long."""
        line = self._response.readline()
        assert line, "the watch ended while another event was expected"
        event = json.loads(line)
        return event["type"], event["object"]

    def expect(self, kind: str, name: str) -> Body:
        got, item = self.next()
        assert (got, item["metadata"].get("name")) == (kind, name)
        return item

    def rest(self) -> list[tuple[str, Body]]:
        """All events until the server ends the stream."""
        lines = [json.loads(line) for line in self._response]
        return [(event["type"], event["object"]) for event in lines]

    def body(self) -> Body:
        content: Body = json.loads(self._response.read())
        return content


@dataclass
class Api:
    """One API server, real or fake."""

    url: str
    token: str = ""
    tls: SSLContext | None = None
    compact: Callable[[], object] = lambda: None
    _made: list[str] = field(default_factory=list)

    def request(self, method: str, path: str, body: Any = None, *, content_type: str = "application/json", **query: Any) -> Reply:
        with closing(self._connect()) as connection:
            response = self._send(connection, method, path, body, content_type, query)
            raw, answered = response.read(), response.headers.get("content-type", "")
            content = json.loads(raw) if answered.startswith("application/json") else raw.decode()
            return Reply(response.status, content, answered)

    def in_protobuf(self, path: str, **query: Any) -> bytes:
        """The body for a client that prefers protobuf."""
        with closing(self._connect()) as connection:
            headers = {"Accept": "application/vnd.kubernetes.protobuf, application/json", "Authorization": f"Bearer {self.token}"}
            connection.request("GET", f"{path}?{urlencode(query)}", None, headers)
            response = connection.getresponse()
            assert response.status == 200
            return response.read()

    def get(self, path: str, **query: Any) -> Reply:
        return self.request("GET", path, **query)

    def post(self, path: str, body: Any, **query: Any) -> Reply:
        return self.request("POST", path, body, **query)

    def put(self, path: str, body: Any) -> Reply:
        return self.request("PUT", path, body)

    def patch(self, path: str, body: Any, kind: str = STRATEGIC) -> Reply:
        return self.request("PATCH", path, body, content_type=kind)

    def delete(self, path: str, body: Any = None, **query: Any) -> Reply:
        return self.request("DELETE", path, body, **query)

    @contextmanager
    def watch(self, path: str, **query: Any) -> Iterator[Stream]:
        with closing(self._connect()) as connection:
            yield Stream(self._send(connection, "GET", path, None, "application/json", {"watch": "true", **query}))

    def make(self, path: str, body: Body) -> Body:
        """Create an object that a case needs; must succeed."""
        reply = self.post(path, body)
        assert reply.code == 201, reply.body
        made: Body = reply.body
        return made

    def namespace(self) -> str:
        """The path of a new namespace, removed after the case."""
        name = unique("ns")
        self.make("/api/v1/namespaces", {"metadata": {"name": name}})
        self._made.append(f"/api/v1/namespaces/{name}")
        return f"/api/v1/namespaces/{name}"

    def node(self, **content: Any) -> str:
        """The path of a new node, removed after the case."""
        name = unique("node")
        self.make("/api/v1/nodes", node(name, **content))
        self._made.append(f"/api/v1/nodes/{name}")
        return f"/api/v1/nodes/{name}"

    def clean(self) -> None:
        while self._made:
            self.delete(self._made.pop())

    def _connect(self) -> HTTPConnection:
        parts = urlsplit(self.url)
        if self.tls is not None:
            return HTTPSConnection(parts.netloc, context=self.tls, timeout=PATIENCE_S)
        return HTTPConnection(parts.netloc, timeout=PATIENCE_S)

    def _send(
        self, connection: HTTPConnection, method: str, path: str, body: Any, content_type: str, query: dict[str, Any]
    ) -> HTTPResponse:
        headers = {"Accept": "application/json", "Content-Type": content_type, "Authorization": f"Bearer {self.token}"}
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.request(method, f"{path}?{urlencode(query)}" if query else path, content, headers)
        return connection.getresponse()


def unique(word: str) -> str:
    return f"{word}-{uuid.uuid4().hex[:10]}"


def pod(name: str = "", *, limits: Body | None = None, labels: Body | None = None, **spec: Any) -> Body:
    container: Body = {"name": "main", "image": "registry.example/app:1"}
    if limits is not None:
        container["resources"] = {"limits": limits}
    metadata: Body = {"name": name} if name else {}
    if labels is not None:
        metadata["labels"] = labels
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


def node(name: str, *, capacity: Body | None = None, **spec: Any) -> Body:
    status = {} if capacity is None else {"capacity": capacity}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec, "status": status}


def config_map(name: str, labels: Body | None = None, **data: str) -> Body:
    metadata: Body = {"name": name} if labels is None else {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def lease(name: str, holder: str = "a") -> Body:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "2026-01-02T03:04:05.000006Z"},
    }


def binding(name: str, node_name: str = "n1", **metadata: Any) -> Body:
    target = {"apiVersion": "v1", "kind": "Node", "name": node_name}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **metadata}, "target": target}


def leases(namespace: str) -> str:
    """The path of a namespace's leases, which are in an API group of their own."""
    return namespace.replace("/api/v1", "/apis/coordination.k8s.io/v1") + "/leases"


def name_of(path: str) -> str:
    return path.rpartition("/")[2]
