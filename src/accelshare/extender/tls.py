"""TLS for the extender's port: certificates from files that are reloaded when they change, and required client certificates.

Belongs here: making contexts from files. Never: making certificates.
"""

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path

from accelshare.http.server import HTTP_2

log = logging.getLogger(__name__)


class TlsError(Exception):
    """The TLS files are not usable; the message has the file and the cause."""


@dataclass(frozen=True, slots=True)
class ServerTlsFiles:
    certificate: Path
    key: Path
    client_ca: Path | None = None
    http2: bool = False  # offered beside HTTP/1.1

    def stamps(self) -> tuple[tuple[int, int], ...]:
        """Changes when any of the files does."""
        stats = [path.stat() for path in (self.certificate, self.key, self.client_ca) if path is not None]
        return tuple((stat.st_mtime_ns, stat.st_ino) for stat in stats)

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # No session resumption: every client is verified against the current client CA.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        try:
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise TlsError(f"certificate {self.certificate} with key {self.key} cannot be used: {error}") from error
        if self.client_ca is not None:
            try:
                context.load_verify_locations(self.client_ca)
            except (OSError, ssl.SSLError) as error:
                raise TlsError(f"client CA {self.client_ca} cannot be used: {error}") from error
            context.verify_mode = ssl.CERT_REQUIRED
        if self.http2:
            context.set_alpn_protocols([HTTP_2, "http/1.1"])
        return context


class TlsReloader:
    """The context for each new connection, made from the newest files.

    Files that cannot be used yet (half of a pair is written) leave the old ones in place and are tried again. A context has its
    own sessions, so none outlives the files that it was made from, not even one that OpenSSL keeps by its id (TLS 1.2).
    """

    def __init__(self, files: ServerTlsFiles) -> None:
        self._files = files
        self._stamps = files.stamps() if files.certificate.exists() and files.key.exists() else ()
        self._newest = files.context()
        self.problem = ""

    def context(self) -> ssl.SSLContext:
        try:
            stamps = self._files.stamps()
            if stamps != self._stamps:
                self._newest = self._files.context()
                self._stamps = stamps
            self.problem = ""
        except (OSError, TlsError) as error:
            if str(error) != self.problem:
                log.warning("tls outcome=old-files-kept error=%r", str(error))
            self.problem = str(error)
        return self._newest
