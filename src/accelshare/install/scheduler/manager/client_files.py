"""kube-scheduler's client certificate on this host, where only kube-scheduler can read it.

    ca-3f0c….crt             whom to trust. kube-scheduler reads it at its start only (1.36 and before), so another content gets
                             another name: the configuration changes, and kube-scheduler is restarted with all the usual care
    client -> client-91ab…   certificate and key. kube-scheduler reads them anew for each handshake, so a renewed pair is switched
                             in one rename, without a restart

Belongs here: these files. Never: where they come from, and kube-scheduler's configuration that names them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from accelshare.install.host_files.disk import Disk, sha256
from accelshare.install.scheduler.desired_config import Tls

_LINK: Final = "client"
_CERTIFICATE: Final = "tls.crt"
_KEY: Final = "tls.key"
_SUM_LENGTH: Final = 16


@dataclass(frozen=True, slots=True)
class Material:
    """Whom kube-scheduler shall trust, and how it shows who it is."""

    bundle: str
    certificate: str
    key: str

    def __repr__(self) -> str:
        return "Material(…)"  # a key must not end up in a log

    @property
    def ca_name(self) -> str:
        return f"ca-{sha256(self.bundle.encode())[:_SUM_LENGTH]}.crt"

    @property
    def pair_name(self) -> str:
        return f"{_LINK}-{sha256((self.certificate + self.key).encode())[:_SUM_LENGTH]}"


class ClientFiles:
    """Our files in one directory; the others in it are none of our business."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self._directory = directory
        self._disk = disk

    def named(self, material: Material, server_name: str) -> Tls:
        """As kube-scheduler is told of them."""
        pair = self._directory / _LINK
        return Tls(str(self._directory / material.ca_name), str(pair / _CERTIFICATE), str(pair / _KEY), server_name)

    def are(self, material: Material) -> bool:
        """All is in place."""
        link = self._directory / _LINK
        return (
            link.is_symlink()
            and str(link.readlink()) == material.pair_name
            and self._disk.read(self._directory / material.ca_name) == material.bundle.encode()
            and self._disk.read(link / _CERTIFICATE) == material.certificate.encode()
            and self._disk.read(link / _KEY) == material.key.encode()
        )

    def put(self, material: Material, owner: tuple[int, int]) -> None:
        """In this order a crash leaves the old pair or the new one. Files that are not used any more stay for now."""
        self._disk.make_directory(self._directory, mode=0o755)
        self._disk.put(self._directory / material.ca_name, material.bundle.encode(), mode=0o600, owner=owner)
        pair = self._directory / material.pair_name
        self._disk.make_directory(pair, mode=0o700)
        self._disk.give(pair, owner)
        self._disk.put(pair / _CERTIFICATE, material.certificate.encode(), mode=0o600, owner=owner)
        self._disk.put(pair / _KEY, material.key.encode(), mode=0o600, owner=owner)
        self._disk.link(self._directory / _LINK, material.pair_name)

    def forget_unused(self, material: Material) -> None:
        """For when the configuration that names the new ones is in force."""
        self._remove(keep={material.ca_name, material.pair_name, _LINK})

    def remove(self) -> None:
        """Every file of ours, and the directory if nothing else is in it."""
        self._remove(keep=set())
        if self._directory.is_dir():
            self._disk.remove_directory(self._directory)

    def _remove(self, keep: set[str]) -> None:
        link = self._directory / _LINK
        self._disk.sweep(link)
        if _LINK not in keep and link.is_symlink():
            self._disk.remove(link)
        pairs = [place for place in self._directory.glob(f"{_LINK}-{'?' * _SUM_LENGTH}") if place.is_dir()]
        for place in (place for place in pairs if place.name not in keep):
            for file in (place / _KEY, place / _CERTIFICATE):
                self._disk.remove(file)
            self._disk.remove_directory(place)
        for name in (f"ca-{'?' * _SUM_LENGTH}.crt", f".ca-{'?' * _SUM_LENGTH}.crt.accelshare"):
            for place in self._directory.glob(name):
                if place.name not in keep:
                    self._disk.remove(place)
