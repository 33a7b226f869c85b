"""kube-scheduler's client certificate on this host, readable by kube-scheduler only.

    ca-3f0c….crt             the CAs to trust. kube-scheduler reads it only at its start (up to 1.36), so another content gets
                             another name: the configuration changes, and kube-scheduler is restarted by an apply
    client -> client-91ab…   certificate and key. kube-scheduler reads them for each handshake, so a renewed pair takes effect
                             with one rename, without a restart

Belongs here: these files. Never: where they come from, and the configuration that names them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from accelshare.install.host_files.disk import Disk, sha256
from accelshare.install.scheduler.desired_config import TlsFiles

_LINK: Final = "client"
_CERTIFICATE: Final = "tls.crt"
_KEY: Final = "tls.key"
_DIGEST_LENGTH: Final = 16


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """The CAs that kube-scheduler trusts, and its client certificate with its key."""

    bundle: str
    certificate: str
    key: str

    def __repr__(self) -> str:
        return "ClientCertificate(…)"  # keep keys out of logs

    @property
    def ca_name(self) -> str:
        return f"ca-{sha256(self.bundle.encode())[:_DIGEST_LENGTH]}.crt"

    @property
    def pair_name(self) -> str:
        return f"{_LINK}-{sha256((self.certificate + self.key).encode())[:_DIGEST_LENGTH]}"


class ClientFiles:
    """The certificate files in one directory; other files there are ignored."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self._directory = directory
        self._disk = disk

    def paths(self, pem: ClientCertificate, server_name: str) -> TlsFiles:
        """The paths for kube-scheduler's configuration."""
        pair = self._directory / _LINK
        return TlsFiles(str(self._directory / pem.ca_name), str(pair / _CERTIFICATE), str(pair / _KEY), server_name)

    def contain(self, pem: ClientCertificate) -> bool:
        """Whether all files have this content."""
        link = self._directory / _LINK
        return (
            link.is_symlink()
            and str(link.readlink()) == pem.pair_name
            and self._disk.read(self._directory / pem.ca_name) == pem.bundle.encode()
            and self._disk.read(link / _CERTIFICATE) == pem.certificate.encode()
            and self._disk.read(link / _KEY) == pem.key.encode()
        )

    def put(self, pem: ClientCertificate, owner: tuple[int, int]) -> None:
        """Write the files, in an order that leaves the old pair or the new one after a crash. Unused files stay for now."""
        self._disk.make_directory(self._directory, mode=0o755)
        self._disk.put(self._directory / pem.ca_name, pem.bundle.encode(), mode=0o600, owner=owner)
        pair = self._directory / pem.pair_name
        self._disk.make_directory(pair, mode=0o700)
        self._disk.chown(pair, owner)
        self._disk.put(pair / _CERTIFICATE, pem.certificate.encode(), mode=0o600, owner=owner)
        self._disk.put(pair / _KEY, pem.key.encode(), mode=0o600, owner=owner)
        self._disk.link(self._directory / _LINK, pem.pair_name)

    def remove_unused(self, pem: ClientCertificate) -> None:
        """Remove former files, when kube-scheduler uses the new ones."""
        self._remove(keep={pem.ca_name, pem.pair_name, _LINK})

    def remove(self) -> None:
        """Remove all certificate files, and the directory if it is empty."""
        self._remove(keep=set())
        if self._directory.is_dir():
            self._disk.remove_directory(self._directory)

    def _remove(self, keep: set[str]) -> None:
        link = self._directory / _LINK
        self._disk.remove_temporary(link)
        if _LINK not in keep and link.is_symlink():
            self._disk.remove(link)
        pairs = [place for place in self._directory.glob(f"{_LINK}-{'?' * _DIGEST_LENGTH}") if place.is_dir()]
        for place in (place for place in pairs if place.name not in keep):
            for file in (place / _KEY, place / _CERTIFICATE):
                self._disk.remove(file)
            self._disk.remove_directory(place)
        for name in (f"ca-{'?' * _DIGEST_LENGTH}.crt", f".ca-{'?' * _DIGEST_LENGTH}.crt.accelshare"):
            for place in self._directory.glob(name):
                if place.name not in keep:
                    self._disk.remove(place)
