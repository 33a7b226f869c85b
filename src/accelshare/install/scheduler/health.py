"""Whether kube-scheduler answers, whether it is the new one, and what its log says if it is not.

Belongs here: asking one scheduler on this host. Never: what to do about the answer.
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

_ASK_LIMIT_S: Final = 3.0
_EVERY_S: Final = 0.2
_STEADY_S: Final = 2.0
_LOG_LINES: Final = 5


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the scheduler. The certificate is the one it serves with, which it usually makes anew at each start."""

    healthy: bool
    says: str
    certificate: str | None = None
    gone: bool = False  # nobody listens, which is more than no answer in time


class Scheduler(Protocol):
    """Something that can be looked at."""

    def look(self) -> Look:
        """How it is now; never raises."""

    def last_words(self) -> str:
        """What its log said last, or nothing."""


class HttpsScheduler:
    """kube-scheduler's health, asked over its own port."""

    def __init__(self, url: str, logs: Path | None = None) -> None:
        self._url = url
        self._logs = logs

    def look(self) -> Look:
        address = urlsplit(self._url)
        context = ssl.create_default_context()
        # It signs a certificate for itself. Nothing is sent, and an answer is believed only as far as health goes.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(
            address.hostname or "", address.port or 443, timeout=_ASK_LIMIT_S, context=context
        )
        try:
            connection.request("GET", address.path or "/healthz")
            certificate = connection.sock.getpeercert(binary_form=True) or b""
            answer = connection.getresponse()
            words = answer.read(200).decode("utf-8", errors="replace").strip()
        except (OSError, http.client.HTTPException) as error:
            return Look(False, f"{self._url}: {error}", gone=isinstance(error, ConnectionError))
        finally:
            connection.close()
        seen = hashlib.sha256(certificate).hexdigest()
        return Look(answer.status == 200, f"{self._url}: {answer.status} {words}", seen)

    def last_words(self) -> str:
        if self._logs is None:
            return ""
        # One that crashes again and again may just have begun a new log, with little or nothing in it: so the last two.
        # kubelet removes logs at any moment, and whoever asks has a scheduler to put back: what is gone has no words.
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
    before: Look,
    patience: Patience,
    *,
    restarted: bool = False,
    renewed: Callable[[], str] | None = None,
) -> str | None:
    """None once a scheduler other than the one before is healthy and stays so; else why not, in words.

    kubelet takes its time, and until then the old one answers. The new one is known by its own certificate, or by the moment in
    which nobody listened. `restarted`: somebody has already seen to that.

    `renewed`: when the leader's Lease was last renewed, or nothing if that is not known now. It must change while the new one
    is healthy: kube-scheduler is healthy before it can schedule, and the former one is gone and renews nothing.
    """
    deadline = patience.clock() + patience.limit_s
    new, former, since = restarted or before.gone, before.certificate, None
    stamp, leads = "", renewed is None
    while True:
        look = scheduler.look()
        now = patience.clock()
        former = former or look.certificate  # whoever was too busy to show its own before, and never went
        new = new or look.gone or (look.certificate is not None and look.certificate != former)
        since = None if not (new and look.healthy) else since if since is not None else now
        if since is not None and renewed is not None and not leads and (seen := renewed()):
            leads, stamp = bool(stamp) and seen != stamp, stamp or seen
        if since is not None and leads and now - since >= patience.steady_s:
            return None
        if now >= deadline and since is not None and not leads:
            return f"schedules nothing: {look.says}, but its leader's Lease was not renewed within {patience.limit_s:g} s"
        if now >= deadline:
            what = look.says if new else f"the former kube-scheduler still answers ({look.says}): kubelet has not replaced it"
            return f"was not healthy within {patience.limit_s:g} s: {what}"
        patience.sleep(_EVERY_S)
