"""Credentials for the API server: the Authorization header and the client certificate.

Belongs here: the protocol of all kinds of credentials, and the kinds that are a value or a file.
Never: an event loop, a transport, running a program (exec_plugin.py).
"""

import base64
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from accelshare.kube.errors import ConfigError

# kubelet replaces a service account token at 80 % of its life; client-go reads the file once a minute.
TOKEN_FILE_REREAD_S = 60.0


@dataclass(frozen=True, slots=True)
class Certificate:
    """A client certificate with its key, both PEM."""

    chain_pem: bytes
    key_pem: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Presented:
    """The credentials of one request. A certificate here wins over the kubeconfig's."""

    authorization: str | None = field(default=None, repr=False)
    certificate: Certificate | None = None


NOTHING = Presented()


class Credentials(Protocol):
    """Synchronous on purpose: a command calls it directly, async code in a thread unless `at_hand`."""

    @property
    def at_hand(self) -> bool:
        """`present` reads no file and runs no program."""

    def present(self) -> Presented:
        """The current credentials. Raises ConfigError."""

    def refused(self, presented: Presented) -> None:
        """The API server responded with 401 to these: do not use them again if new ones can be had."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Credentials that never change: none at all, a token, or a name and a password."""

    presented: Presented = NOTHING

    @property
    def at_hand(self) -> bool:
        return True

    def present(self) -> Presented:
        return self.presented

    def refused(self, presented: Presented) -> None:
        """They cannot be renewed."""


def anonymous() -> Fixed:
    """No Authorization header: plain HTTP, or a client certificate is enough."""
    return Fixed()


def static_token(token: str) -> Fixed:
    return Fixed(bearer(token))


def basic(username: str, password: str) -> Fixed:
    pair = base64.b64encode(f"{username}:{password}".encode()).decode("ascii")
    return Fixed(Presented(f"Basic {pair}"))


def bearer(token: str) -> Presented:
    """The Authorization header of a token. Raises ConfigError for a token that would break the header."""
    if not token.isascii() or any(character.isspace() or not character.isprintable() for character in token):
        raise ConfigError("the bearer token has spaces, line breaks or characters outside ASCII; it must be one token")
    return Presented(f"Bearer {token}")


class TokenFile:
    """A token in a file that kubelet rotates: read again after a minute, or after a 401."""

    def __init__(self, path: Path, *, fallback: str | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._presented = bearer(fallback) if fallback else None
        self._read_at: float | None = None

    @property
    def at_hand(self) -> bool:
        return self._read_at is not None and self._clock() - self._read_at < TOKEN_FILE_REREAD_S

    def present(self) -> Presented:
        """The file's token; while the file is unreadable, the last one that was read."""
        if self.at_hand and self._presented is not None:
            return self._presented
        try:
            self._presented = self._read()
        except ConfigError:
            if self._presented is None:
                raise
        self._read_at = self._clock()
        return self._presented

    def refused(self, presented: Presented) -> None:
        if presented == self._presented:
            self._read_at = None

    def _read(self) -> Presented:
        try:
            token = self._path.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:  # not UTF-8, or a path with a zero byte
            raise ConfigError(f"token file {self._path}: {error}; it must be a readable file with one token") from error
        if not token:
            raise ConfigError(f"token file {self._path}: it is empty; it must hold one token")
        try:
            return bearer(token)
        except ConfigError as error:
            raise ConfigError(f"token file {self._path}: {error}") from error
