"""Copies the version of src/accelshare/__init__.py to all other places, and takes the release notes from CHANGELOG.md.

Belongs here: the places that repeat the version, and finding one version's part of the changelog. Never: texts.

    python -m deploy.release notes          the release notes of this version
    python -m deploy.release set 0.2.0      write another version into every place
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
SOURCE: Final = Path("src/accelshare/__init__.py")
CHANGELOG: Final = Path("CHANGELOG.md")
_VERSION: Final = r"\d+\.\d+\.\d+"
_IN_SOURCE: Final = re.compile(rf'(__version__ = ")({_VERSION})')
_IN_CHART: Final = re.compile(rf"^((?:version|appVersion): )({_VERSION})", re.MULTILINE)
_BEFORE: Final = rf"\baccelshare:|\bVersion (?={_VERSION} is not released)|^(?={_VERSION} 版)"
_IN_TEXTS: Final = re.compile(rf"({_BEFORE})({_VERSION})", re.MULTILINE)


class ReleaseError(Exception):
    """There is no such version, or no part of the changelog for it."""


def places() -> Iterator[tuple[Path, re.Pattern[str]]]:
    """Every file that has the version of this release, with the pattern by which it has it."""
    yield SOURCE, _IN_SOURCE
    yield Path("deploy/chart/accelshare/Chart.yaml"), _IN_CHART
    texts = [ROOT / "deploy/chart/accelshare/values.yaml", *ROOT.glob("README*.md")]
    texts += [*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.yaml")]
    for file in sorted(texts):
        if not file.name.startswith("benchmarks"):  # those were measured with the version that they name
            yield file.relative_to(ROOT), _IN_TEXTS


def versions() -> dict[Path, set[str]]:
    """The versions in each file that has some."""
    found = {file: {text[1] for text in pattern.findall(_read(file))} for file, pattern in places()}
    return {file: named for file, named in found.items() if named}


def notes(version: str) -> str:
    """The part of the changelog about this version, without its heading."""
    parts = re.split(r"^## +", _read(CHANGELOG), flags=re.MULTILINE)[1:]
    for part in parts:
        title, _, text = part.partition("\n")
        if title.split()[0] == version:
            return text.strip() + "\n"
    raise ReleaseError(f"{CHANGELOG} has no part for {version}; it must have a heading `## {version}`")


def current() -> str:
    found = _IN_SOURCE.search(_read(SOURCE))
    assert found is not None
    return found[2]


def set_version(version: str) -> list[Path]:
    """Write this version into every place; the files that changed."""
    if not re.fullmatch(_VERSION, version):
        raise ReleaseError(f"{version!r} is no version; it must look like 0.2.0")
    changed = []
    for file, pattern in places():
        text = _read(file)
        new = pattern.sub(rf"\g<1>{version}", text)
        if new != text:
            (ROOT / file).write_text(new, encoding="utf-8")
            changed.append(file)
    return changed


def _read(file: Path) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def main(words: list[str]) -> int:
    try:
        match words:
            case ["notes"]:
                sys.stdout.write(notes(current()))
            case ["set", version]:
                sys.stdout.write("".join(f"{file}\n" for file in set_version(version)))
                notes(version)
            case _:
                sys.stderr.write("notes, or set VERSION\n")
                return 2
    except ReleaseError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
