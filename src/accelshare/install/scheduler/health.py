"""Whether a new kube-scheduler is healthy, and leads or is ready to lead; and the end of its log if not.

Belongs here: querying one kube-scheduler on this host, and waiting. Never: rolling back (`apply.py`).
"""

import contextlib
import hashlib
import http.client
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

from accelshare.install.scheduler.leadership import LeaseObserver

_ASK_LIMIT_S: Final = 3.0
_EVERY_S: Final = 0.2
_STEADY_S: Final = 2.0
_LOG_LINES: Final = 5
_ANSWER_LIMIT: Final = 400


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """One health check. The certificate is the serving one, which kube-scheduler usually creates at each start."""

    healthy: bool
    message: str
    certificate: str | None = None
    gone: bool = False  # nothing listens on the port, which is more than a timeout


class Scheduler(Protocol):
    """A kube-scheduler whose health can be checked."""

    def check_health(self) -> HealthCheck:
        """The present health; never raises."""

    def not_ready(self) -> str | None:
        """Why it is not ready, such as caches that are not synced; None if it is, or if it does not answer that question."""

    def last_log_lines(self) -> str:
        """The end of its log, or an empty text."""


class HttpsScheduler:
    """kube-scheduler's health, over its own HTTPS port."""

    def __init__(self, url: str, logs: Path | None = None) -> None:
        self._url = url
        self._logs = logs

    def check_health(self) -> HealthCheck:
        try:
            status, words, certificate = self._get(urlsplit(self._url).path or "/healthz")
        except (OSError, http.client.HTTPException) as error:
            return HealthCheck(False, f"{self._url}: {error}", gone=isinstance(error, ConnectionError))
        return HealthCheck(status == 200, f"{self._url}: {status} {words}", hashlib.sha256(certificate).hexdigest())

    def not_ready(self) -> str | None:
        try:
            status, words, _ = self._get("/readyz")
        except (OSError, http.client.HTTPException) as error:
            return f"/readyz: {error}"
        # Before 1.31 there is no such path (404), or only some callers may ask (401, 403).
        return None if status in (200, 401, 403, 404) else f"/readyz: {status} {words}"

    def _get(self, path: str) -> tuple[int, str, bytes]:
        """Status, the beginning of the answer, and the serving certificate."""
        address = urlsplit(self._url)
        context = ssl.create_default_context()
        # The certificate is self-signed. No secret is sent, and the answer is used for health only.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(
            address.hostname or "", address.port or 443, timeout=_ASK_LIMIT_S, context=context
        )
        try:
            connection.request("GET", path)
            certificate = connection.sock.getpeercert(binary_form=True) or b""
            answer = connection.getresponse()
            return answer.status, answer.read(_ANSWER_LIMIT).decode("utf-8", errors="replace").strip(), certificate
        finally:
            connection.close()

    def last_log_lines(self) -> str:
        if self._logs is None:
            return ""
        # The last two logs, because a crash loop may just have begun a new, empty one.
        # kubelet removes logs at any moment; a log that cannot be read is skipped.
        written: list[tuple[float, Path]] = []
        with contextlib.suppress(OSError):
            for file in self._logs.glob("kube-system_kube-scheduler-*/*/*.log"):
                if file.is_file() and (status := file.stat()).st_size > 0:
                    written.append((status.st_mtime, file))
        ends: list[str] = []
        for _, file in sorted(written)[-2:]:
            with contextlib.suppress(OSError):
                lines = file.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:]
                ends += [f"the end of {file}:", *lines]
        return "\n".join(ends)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait, and with which clock."""

    limit_s: float = 120.0
    steady_s: float = _STEADY_S
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def wait_for_new(
    scheduler: Scheduler,
    before: HealthCheck,
    patience: Patience,
    *,
    restarted: bool = False,
    lease: LeaseObserver | None = None,
) -> str | None:
    """None once a new kube-scheduler is and stays healthy; else the reason why not.

    Until kubelet has replaced it, the former kube-scheduler answers. The new one is known by another certificate, or by a moment
    in which nothing listened. `restarted`: it has already been replaced.

    `lease`: it must be renewed while the new kube-scheduler is healthy, because kube-scheduler is healthy before it can schedule.
    If another host renews it, this one's kube-scheduler must be ready, as far as it answers that.
    """
    deadline = patience.clock() + patience.limit_s
    new, former, since = restarted or before.gone, before.certificate, None
    not_ready: str | None = None
    while True:
        look = scheduler.check_health()
        now = patience.clock()
        former = former or look.certificate  # the former one did not answer before, and has not ended
        new = new or look.gone or (look.certificate is not None and look.certificate != former)
        since = None if not (new and look.healthy) else since if since is not None else now
        if since is not None and lease is not None:
            lease.observe()
            not_ready = scheduler.not_ready() if lease.renewed and lease.shows_readiness else None
        renewed = lease is None or lease.renewed
        if since is not None and renewed and not_ready is None and now - since >= patience.steady_s:
            return None
        if now >= deadline and since is not None and not renewed:
            return f"does not schedule: {look.message}, but the leader's Lease was not renewed within {patience.limit_s:g} s"
        if now >= deadline and since is not None and not_ready is not None:
            return f"is not ready: {look.message}, but {not_ready} after {patience.limit_s:g} s"
        if now >= deadline:
            what = look.message if new else f"kubelet has not replaced the former one ({look.message})"
            return f"was not healthy within {patience.limit_s:g} s: {what}"
        patience.sleep(_EVERY_S)
