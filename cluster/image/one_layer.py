"""Writes a file system as an image of one layer, in the archive format of `docker save`; the same layer gives the same image."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path
from typing import Final

_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def write(archive: Path, name: str, layer: Path) -> None:
    """The same layer is the same image, whenever it is made; files keep their own times."""
    with layer.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    configuration = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "mmdebstrap"}],
    }
    manifest = [{"Config": "configuration.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(archive, "w") as tar:
        for path, document in (("configuration.json", configuration), ("manifest.json", manifest)):
            encoded = json.dumps(document).encode()
            entry = tarfile.TarInfo(path)
            entry.size = len(encoded)
            tar.addfile(entry, io.BytesIO(encoded))
        tar.add(layer.resolve(), "layer.tar")
