"""Reads an image's archive: configuration, layers, and a file system to run a program in."""

import json
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive as `docker save` writes it."""

    path: Path

    @property
    def manifest(self) -> dict[str, Any]:
        (manifest,) = json.loads(self._read("manifest.json"))
        return dict(manifest)

    @property
    def configuration(self) -> dict[str, Any]:
        return dict(json.loads(self._read(self.manifest["Config"])))

    def own_entries(self) -> Iterator[tarfile.TarInfo]:
        """What our Dockerfile put on top of the base."""
        with tarfile.open(self.path) as archive:
            for name in self.manifest["Layers"][1:]:
                with tarfile.open(fileobj=archive.extractfile(name)) as layer:
                    yield from layer

    def own_file(self, path: str) -> bytes:
        with tarfile.open(self.path) as archive, tarfile.open(fileobj=archive.extractfile(self.manifest["Layers"][-1])) as layer:
            content = layer.extractfile(path)
            assert content is not None
            return content.read()

    def unpack(self, directory: Path) -> Path:
        with tarfile.open(self.path) as archive:
            for name in self.manifest["Layers"]:
                with tarfile.open(fileobj=archive.extractfile(name)) as layer:
                    layer.extractall(directory, filter="fully_trusted")  # noqa: S202 – we built it a moment ago
        directory.chmod(0o755)  # a test's directory is its owner's alone, and inside it is / for all
        return directory

    def run(self, root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The entry point with these arguments, as the image's user, in its file system."""
        settings = self.configuration["config"]
        variables = dict(variable.split("=", 1) for variable in settings["Env"])
        command = ["chroot", f"--userspec={settings['User']}", root, *settings["Entrypoint"], *arguments]
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)

    def _read(self, name: str) -> bytes:
        with tarfile.open(self.path) as archive:
            content = archive.extractfile(name)
            assert content is not None
            return content.read()
