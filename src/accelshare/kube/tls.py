"""Builds the client's ssl.SSLContext from certificates in files or inline; it trusts what Go's clients trust.

Belongs here: reading PEM and building the context. Never: deciding which certificates belong to which cluster.
"""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from accelshare.kube.credentials import Certificate
from accelshare.kube.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Pem:
    """PEM text that was written inline, or a file that is read each time it is needed because files get rotated."""

    label: str
    inline: bytes | None = None
    path: Path | None = None

    def read(self) -> bytes:
        if self.inline is not None:
            return self.inline
        assert self.path is not None
        try:
            return self.path.read_bytes()
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self.label}: {error}; it must be a readable PEM file") from error


@dataclass(frozen=True, slots=True)
class Tls:
    """How to trust the server, and which certificate to show it."""

    ca: Pem | None = None
    verify: bool = True
    certificate: Pem | None = None
    key: Pem | None = None
    server_name: str | None = None

    def context(self, shown: Certificate | None = None) -> ssl.SSLContext:
        """A new context; reads files. A certificate `shown` by the credentials wins over the configured one."""
        # Not ssl.create_default_context: since Python 3.13 it sets VERIFY_X509_STRICT, which refuses CAs that Kubernetes
        # installers have been making for years (no key identifiers). Go does not require them either.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # As Go: any certificate in the CA file is an anchor, also one that is not self-signed.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif self.ca is None:
            context.load_default_certs()
        else:
            _trust(context, self.ca)
        if shown is not None:
            _show(context, shown, "the exec plugin's client certificate")
        elif self.certificate is not None and self.key is not None:
            pair = Certificate(self.certificate.read(), self.key.read())
            _show(context, pair, f"{self.certificate.label} with {self.key.label}")
        return context


def _trust(context: ssl.SSLContext, ca: Pem) -> None:
    text = ca.read().decode("ascii", "ignore")  # comments between certificates may be in any language
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"{ca.label}: {error}; it must hold PEM certificates (BEGIN CERTIFICATE)") from error


def _show(context: ssl.SSLContext, pair: Certificate, label: str) -> None:
    with _as_file(pair.chain_pem.rstrip() + b"\n" + pair.key_pem) as path:
        try:
            context.load_cert_chain(path, password=_no_password)
        except (ssl.SSLError, ValueError, OSError) as error:
            raise ConfigError(
                f"{label}: {error}; it must be a PEM certificate and its own key, the key without a password"
            ) from error


def _no_password() -> str:
    """Without it OpenSSL would prompt on the terminal, and a daemon would wait for ever."""
    return ""


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """A path for ssl, which loads certificates only from files. In memory if possible: a container's disk may be read-only."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("accelshare-client-certificate")
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        yield file.name
