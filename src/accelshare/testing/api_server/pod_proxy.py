"""The proxy subresource of pods: GET of a page of the pod at its address, as the API server does it for a client.

Belongs here: the path, and the request to the pod. Never: other methods, TLS.
"""

import asyncio
import re
from dataclasses import dataclass
from typing import Final

from accelshare.http.messages import TEXT, Response
from accelshare.testing.api_server.errors import RequestError
from accelshare.testing.api_server.store import Store

TIMEOUT_S: Final = 30.0
_PATH: Final = re.compile(r"/api/v1/namespaces/([^/]+)/pods/(?:http:)?([^/:]+):([0-9]{1,5})/proxy(/.*)")


@dataclass(frozen=True, slots=True)
class ProxyTarget:
    namespace: str
    pod: str
    port: int
    path: str


def proxy_target(path: str) -> ProxyTarget | None:
    """The target of a path; None if it is no such path."""
    found = _PATH.fullmatch(path)
    return ProxyTarget(found[1], found[2], int(found[3]), found[4]) if found else None


async def get(store: Store, target: ProxyTarget) -> Response:
    """The pod's own response; 503 if it cannot be reached."""
    pod = store.get("pods", target.pod, namespace=target.namespace).object
    address = pod["status"].get("podIP", "")
    if not address:
        raise RequestError("ServiceUnavailable", "address not allowed")
    try:
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection(address, target.port)
            writer.write(f"GET {target.path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            writer.close()
    except (OSError, TimeoutError) as error:
        raise RequestError("ServiceUnavailable", f"error trying to reach service: {error}") from error
    status = int(head.split(b" ", 2)[1])
    kind = re.search(rb"\r\ncontent-type: ([^\r\n]+)", head, re.IGNORECASE)
    return Response(status, body, kind[1].decode("latin-1") if kind else TEXT)
