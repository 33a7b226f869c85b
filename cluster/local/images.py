"""Writes container images of one layer without a registry or builder, in the archive format of `docker save`."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cluster.errors import ClusterError

_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_PATH: Final = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class SymbolicLink:
    """A symbolic link to this path."""

    to: str


# What a path of the image holds: a file's or a whole directory's content from the machine, these bytes, or a link.
Content = Path | bytes | SymbolicLink


def make_image(
    tar: Path,
    name: str,
    files: Mapping[str, Content],
    entrypoint: Sequence[str],
    *,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Path:
    """Write an archive of one image with these files, all root's and executable as they are on the machine.

    The same content is the same image, whenever it is made.
    """
    tar.parent.mkdir(parents=True, exist_ok=True)
    layer = tar.with_suffix(".layer")
    _write_layer(layer, files)
    with layer.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    configuration = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {
            "Entrypoint": list(entrypoint),
            "Cmd": list(arguments),
            "Env": [_PATH, *(f"{key}={value}" for key, value in (environment or {}).items())],
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    encoded = json.dumps(configuration).encode()
    configuration_name = f"{hashlib.sha256(encoded).hexdigest()}.json"
    manifest = [{"Config": configuration_name, "RepoTags": [name], "Layers": [f"{digest}.tar"]}]
    with tarfile.open(tar, "w") as archive:
        _add_bytes(archive, configuration_name, encoded)
        _add_bytes(archive, "manifest.json", json.dumps(manifest).encode())
        archive.add(layer, f"{digest}.tar", filter=_anonymous)
    layer.unlink()
    return tar


def busybox_files(busybox: Path) -> dict[str, Content]:
    """A small userland: busybox under each of its names."""
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    links: dict[str, Content] = {f"bin/{applet}": SymbolicLink("/bin/busybox") for applet in applets if applet != "busybox"}
    return {
        "bin/busybox": busybox,
        **links,
        "etc/passwd": b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n",
        "etc/group": b"root:x:0:\nnobody:x:65534:\n",
        # A static C library loads what this file names; by default also libraries that are not there, and crashes.
        "etc/nsswitch.conf": b"hosts: files\n",
        "tmp/.keep": b"",
    }


def _write_layer(layer: Path, files: Mapping[str, Content]) -> None:
    with tarfile.open(layer, "w") as archive:
        for directory in _directories(files):
            entry = tarfile.TarInfo(directory)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if directory == "tmp" else 0o755
            archive.addfile(entry)
        for absolute, content in files.items():
            path = absolute.removeprefix("/")
            match content:
                case bytes():
                    _add_bytes(archive, path, content)
                case SymbolicLink(to):
                    entry = tarfile.TarInfo(path)
                    entry.type, entry.linkname = tarfile.SYMTYPE, to
                    archive.addfile(entry)
                case Path():
                    if not content.exists():
                        raise ClusterError(f"{content} is not there to become {path} of an image")
                    archive.add(content.resolve(), path, filter=_anonymous)


def _directories(files: Mapping[str, Content]) -> Iterator[str]:
    """Each parent once, before what is in it."""
    yield from sorted({str(parent) for path in files for parent in Path(path.removeprefix("/")).parents if str(parent) != "."})


def _add_bytes(archive: tarfile.TarFile, path: str, content: bytes) -> None:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode = len(content), 0o644
    archive.addfile(entry, io.BytesIO(content))


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    return entry
