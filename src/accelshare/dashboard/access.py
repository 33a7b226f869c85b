"""Who may read the dashboard: names under which it may be addressed, a token from a file, or the API server's own users.

Belongs here: allowing and refusing a request. Never: what a request gets.

The token comes in the Authorization header and in no cookie, so another site's page cannot make a browser send it.
"""

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from accelshare.kube.client import Client
from accelshare.kube.errors import KubeError
from accelshare.wire.decoding import Decoder, UnreadableError

log = logging.getLogger(__name__)
SHORTEST_TOKEN: Final = 16  # characters
LONGEST_TOKEN: Final = 16 << 10
TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 – a path
ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
ANSWER_S: Final = 60.0  # how long an answer of the API server is used again
REFUSAL_S: Final = 10.0
MOST_ANSWERS: Final = 256
MOST_REVIEWS: Final = 4  # at once


class AccessError(Exception):
    """The dashboard cannot be served like this; the message says what would be right."""


class UncheckedError(Exception):
    """Whether a token is accepted cannot be found out at the moment; it may be a good one."""


def is_loopback(host: str) -> bool:
    """Whether only processes of this machine reach a port on this host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class HostNames:
    """The names under which a browser may address the dashboard.

    A page of another site can point its own name at our address (DNS rebinding) and is then allowed to read our answers. Such a
    request has the site's name in its Host header; addresses in numbers and `localhost` cannot be pointed elsewhere.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = frozenset(name.lower() for name in names) | {"localhost"}

    def allows(self, header: str) -> bool:
        host = header.strip().lower()
        host = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if host in self._names:
            return True
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return True


class Authenticator(Protocol):
    async def allows(self, token: str) -> bool:
        """Raises UncheckedError."""
        ...


class Everyone:
    """Without a token: who reaches the port may read. Only for loopback."""

    async def allows(self, token: str) -> bool:
        return True


class SharedToken:
    """One token for everyone, from a file that is read again when it changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] = (0, 0, 0)
        self._token = b""
        self._read()

    async def allows(self, token: str) -> bool:
        try:
            self._read()
        except AccessError as error:
            log.warning("dashboard token outcome=old-one-kept problem=%r", str(error))
        return hmac.compare_digest(token.encode(), self._token)

    def _read(self) -> None:
        try:
            stat = self._path.stat()
            stamp = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
            if stamp == self._stamp:
                return
            token = self._path.read_bytes()[: LONGEST_TOKEN + 1].strip()
        except OSError as error:
            raise AccessError(f"token file {self._path} cannot be read: {error.strerror}") from error
        if not SHORTEST_TOKEN <= len(token) <= LONGEST_TOKEN or not token.isascii() or b"\n" in token:
            raise AccessError(
                f"token file {self._path} has {len(token)} bytes; it must be one line of {SHORTEST_TOKEN} to {LONGEST_TOKEN} "
                "ASCII characters, such as `openssl rand -hex 32` prints"
            )
        self._stamp, self._token = stamp, token


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: _User | None = None


class _TokenReview(msgspec.Struct):
    status: _TokenStatus | None = None


class _AccessStatus(msgspec.Struct):
    allowed: bool = False


class _AccessReview(msgspec.Struct):
    status: _AccessStatus | None = None


_token_review: Final = Decoder(_TokenReview)
_access_review: Final = Decoder(_AccessReview)


class ApiServerUsers:
    """The API server's users: a token that it accepts, of a user that may list nodes and the pods of every namespace."""

    def __init__(self, client: Client, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._answers: dict[bytes, tuple[bool, float]] = {}  # hash of the token → the answer, and until when it is used
        self._turn = asyncio.Semaphore(MOST_REVIEWS)  # the port's connections bound how many wait

    async def allows(self, token: str) -> bool:
        if not token or len(token) > LONGEST_TOKEN:
            return False
        key = hashlib.sha256(token.encode()).digest()
        known = self._known(key)
        if known is not None:
            return known
        async with self._turn:
            known = self._known(key)  # another request with the same token was reviewed meanwhile
            return await self._reviewed(token, key) if known is None else known

    def _known(self, key: bytes) -> bool | None:
        answer, until = self._answers.get(key, (False, 0.0))
        return answer if self._clock() < until else None

    async def _reviewed(self, token: str, key: bytes) -> bool:
        try:
            answer = await self._review(token)
        except (KubeError, UnreadableError) as error:
            log.warning("dashboard review outcome=failed problem=%r", str(error))
            raise UncheckedError(str(error)) from error
        self._answers.pop(key, None)
        while len(self._answers) >= MOST_ANSWERS:
            del self._answers[next(iter(self._answers))]
        self._answers[key] = answer, self._clock() + (ANSWER_S if answer else REFUSAL_S)
        return answer

    async def _review(self, token: str) -> bool:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = _token_review.decode(await self._post(TOKEN_REVIEWS, body)).status
        if status is None or not status.authenticated or status.user is None:
            return False
        return await self._may_list("nodes", status.user) and await self._may_list("pods", status.user)

    async def _may_list(self, resource: str, user: _User) -> bool:
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups or [],
            "extra": user.extra or {},
            "resourceAttributes": {"verb": "list", "version": "v1", "resource": resource},
        }
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        status = _access_review.decode(await self._post(ACCESS_REVIEWS, body)).status
        return status is not None and status.allowed

    async def _post(self, path: str, body: dict[str, Any]) -> bytes:
        return await self._client.request("POST", path, body=msgspec.json.encode(body))
