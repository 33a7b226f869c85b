"""Packs the chart as `helm package` does, with the address of the source that it was built from.

Belongs here: the archive and `sources` in its Chart.yaml. Never: what the chart installs, the version (release.py).

    python -m deploy.package_chart DIRECTORY            sources: the clone's remote `origin`
    python -m deploy.package_chart DIRECTORY ADDRESS    sources: this address

The repository names no address, because every fork has another one. Without a remote and an address the chart has none.
"""

from __future__ import annotations

import gzip
import io
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

from deploy import release

ROOT: Final = Path(__file__).parents[1]
CHART: Final = ROOT / "deploy/chart/accelshare"
_BY_SSH: Final = re.compile(r"(?:ssh://)?git@([\w.-]+)[:/](?:\d+/)?([\w./~-]+)")
_ADDRESS: Final = re.compile(r"https://[\w.:-]+(?:/[\w.~-]+)+")


class PackageError(Exception):
    """What was given as the address of the source is none."""


def package(directory: Path, sources: list[str]) -> Path:
    """Write the archive into this directory. The same files give the same bytes."""
    directory.mkdir(parents=True, exist_ok=True)
    archive = directory / f"accelshare-{release.current()}.tgz"
    with gzip.GzipFile(archive, "wb", mtime=0) as compressed, tarfile.open(fileobj=compressed, mode="w") as packed:
        for file in sorted(found for found in CHART.rglob("*") if found.is_file()):
            content = file.read_bytes()
            if file == CHART / "Chart.yaml":
                content += "".join(["sources:\n", *(f"  - {each}\n" for each in sources)]).encode() if sources else b""
            entry = tarfile.TarInfo(f"accelshare/{file.relative_to(CHART)}")
            entry.size, entry.mode = len(content), 0o644
            packed.addfile(entry, io.BytesIO(content))
    return archive


def address(text: str) -> str:
    """The address at which people read the source, of one at which git reads it: https, without credentials and `.git`."""
    ssh = _BY_SSH.fullmatch(text)
    found = f"https://{ssh[1]}/{ssh[2]}" if ssh else re.sub(r"^https://[^/@]*@", "https://", text)
    found = found.removesuffix("/").removesuffix(".git")
    if not _ADDRESS.fullmatch(found):
        raise PackageError(f"{text!r} is no address of a source; it must look like https://example.com/team/accelshare")
    return found


def of_origin() -> list[str]:
    """The address of the clone's remote; none if it has none, or one that only this machine can read."""
    asked = ["git", "-C", str(ROOT), "remote", "get-url", "origin"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        return [address(done.stdout.strip())]
    except (OSError, PackageError):
        return []


def main(words: list[str]) -> int:
    try:
        match words:
            case [directory]:
                sources = of_origin()
            case [directory, named]:
                sources = [address(named)]
            case _:
                sys.stderr.write("DIRECTORY, or DIRECTORY and the ADDRESS of the source\n")
                return 2
    except PackageError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    archive = package(Path(directory), sources)
    sys.stdout.write(f"{archive}, sources: {', '.join(sources) or 'none (SOURCE=https://… names one)'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
