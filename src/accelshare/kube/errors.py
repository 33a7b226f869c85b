"""The errors of requests to the API server.

    KubeError
    ├── ConfigError           kubeconfig, in-cluster files, credentials: what is wrong and what would be right
    ├── Unreachable           no response: the request may or may not have been carried out (`sent` is False: it was not)
    │   └── BadAnswer         a response, but not an API server's
    └── ApiError              the API server's own refusal
        ├── Unauthorized      401
        ├── Forbidden         403
        ├── NotFound          404
        ├── Conflict          409, also AlreadyExists
        ├── Expired           410, a resourceVersion or a continue token is too old
        ├── Invalid           422
        └── TooManyRequests   429

Belongs here: the tree, and the error that a Status body stands for. Never: a library's exception class.
"""

# ruff: noqa: N818 – the API server's own reasons; "Error" after each would only be noise

from collections.abc import Mapping
from http.client import responses
from typing import Final

import msgspec

from accelshare.terminal import visible
from accelshare.wire.decoding import Decoder


class KubeError(Exception):
    """A request to the API server failed."""


class ConfigError(KubeError):
    """The cluster's address or the credentials are not usable as configured."""


class Unreachable(KubeError):
    """No response came. Unless `sent` is False, the request may or may not have been carried out."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class BadAnswer(Unreachable):
    """The response is not an API server's: a proxy's login page, half a list, an unknown event."""


class ApiError(KubeError):
    """The API server refused the request, with a reason."""

    def __init__(self, status: int, reason: str, message: str, retry_after_s: float | None = None, *, request: str = "") -> None:
        super().__init__(status, reason, message, retry_after_s)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_s = retry_after_s
        self.request = request

    def __str__(self) -> str:
        request = f"{self.request}: " if self.request else ""
        # The message may quote an admission webhook, a proxy, or what a user wrote into an object.
        return visible(f"{request}{self.status} {self.reason}: {self.message}")


class Unauthorized(ApiError):
    """401: the API server does not accept our credentials."""


class Forbidden(ApiError):
    """403: our identity lacks a permission."""


class NotFound(ApiError):
    """404: no such object, or no such kind of object."""


class Conflict(ApiError):
    """409: the object is not in the state the request needs, or exists already."""


class Expired(ApiError):
    """410: the resourceVersion or the continue token is too old; only a new list helps."""


class Invalid(ApiError):
    """422: the object's content is invalid."""


class TooManyRequests(ApiError):
    """429: not carried out; retry later."""


BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: TooManyRequests,
}


class _Details(msgspec.Struct):
    retryAfterSeconds: float | None = None  # noqa: N815 – Kubernetes' spelling


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_statuses = Decoder(_Status)


def from_answer(status: int, body: bytes | msgspec.Raw, *, retry_after: str = "", request: str = "") -> ApiError:
    """The error that a refused request, or the Status object of a watch's ERROR event (status 0), stands for."""
    try:
        parsed = _statuses.decode(body)
    except ValueError:  # a proxy in between, or plain text of an old API server
        parsed = _Status(message=bytes(body)[:300].decode("utf-8", "replace").strip())
    code = status or parsed.code or 500
    wait_s = _seconds(retry_after)
    if wait_s is None and parsed.details is not None:
        wait_s = parsed.details.retryAfterSeconds
    reason = parsed.reason or responses.get(code, "unknown status")
    return BY_STATUS.get(code, ApiError)(code, reason, parsed.message or "no message", wait_s, request=request)


def _seconds(retry_after: str) -> float | None:
    """Kubernetes sends whole seconds; the HTTP date form is ignored."""
    return float(retry_after) if retry_after.isascii() and retry_after.isdigit() else None
