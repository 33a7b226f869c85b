"""The image's bill of materials: a program that lists what is installed beside its Python, as CycloneDX JSON.

The Dockerfile runs it inside the image's own base: `python sbom.py FILE`. It uses the standard library only.
Belongs here: reading the metadata that installers left, and CycloneDX' spelling. Never: the network, a package index.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

SPECIFICATION: Final = "1.6"
DPKG_STATUS: Final = Path("/var/lib/dpkg/status")
OS_RELEASE: Final = Path("/etc/os-release")
_SUBJECT: Final = "accelshare"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LONGEST_LICENSE: Final = 80  # a longer licence field holds the licence's text, not its name


@dataclass(frozen=True, slots=True)
class Part:
    """A Python distribution, a Debian package, or the interpreter itself.

    `kind` is the package URL's type: `pypi`, `deb` or `generic`. `needs` are names of the same kind.
    """

    kind: str
    name: str
    version: str
    license: str = ""
    qualifiers: tuple[tuple[str, str], ...] = ()
    namespace: str = ""
    needs: tuple[str, ...] = ()


def document(subject: Part, parts: Sequence[Part]) -> str:
    """The CycloneDX document of `subject`, which consists of `parts`.

    It has neither a serial number nor a time, so that two builds of one source are equal.
    """
    ordered = sorted(parts, key=lambda part: (part.kind, part.name, part.version))
    content = {
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "version": 1,
        "metadata": {"component": {**_component(subject), "type": "application"}},
        "components": [_component(part) for part in ordered],
        "dependencies": [_dependency(part, [subject, *ordered]) for part in [subject, *ordered] if part.needs],
    }
    return json.dumps(content, indent=2) + "\n"


def package_url(part: Part) -> str:
    """The part's package URL: https://github.com/package-url/purl-spec."""
    owner = f"{quote(part.namespace)}/" if part.namespace else ""
    qualifiers = "&".join(f"{key}={quote(value, safe='')}" for key, value in sorted(part.qualifiers))
    return f"pkg:{part.kind}/{owner}{quote(part.name)}@{quote(part.version, safe='')}" + (f"?{qualifiers}" if qualifiers else "")


def _component(part: Part) -> dict[str, Any]:
    url = package_url(part)
    component: dict[str, Any] = {"type": "library", "bom-ref": url, "name": part.name, "version": part.version, "purl": url}
    if part.license:
        component["licenses"] = [{"license": {"name": part.license}}]
    return component


def _dependency(part: Part, parts: Sequence[Part]) -> dict[str, Any]:
    urls = {other.name: package_url(other) for other in parts if other.kind == part.kind}
    return {"ref": package_url(part), "dependsOn": sorted(urls[name] for name in set(part.needs) if name in urls)}


def python_parts(installed: Iterable[Distribution] | None = None) -> list[Part]:
    """Every distribution on the interpreter's path; of two with one name the first, as an import would choose."""
    parts: dict[str, Part] = {}
    for distribution in distributions() if installed is None else installed:
        part = _python_part(distribution)
        parts.setdefault(part.name, part)
    return list(parts.values())


def system_parts(status: Path = DPKG_STATUS, release: Path = OS_RELEASE) -> list[Part]:
    """Every package that dpkg has installed; none on a system without dpkg."""
    if not status.is_file():
        return []
    distribution = _release_id(release)
    stanzas = map(_fields, status.read_text(encoding="utf-8", errors="replace").split("\n\n"))
    return [_system_part(fields, distribution) for fields in stanzas if fields.get("Status", "").endswith(" installed")]


def normal_name(name: str) -> str:
    """A distribution's name in the one spelling of Python's packaging guide."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _python_part(distribution: Distribution) -> Part:
    metadata = distribution.metadata
    return Part(
        kind="pypi",
        name=normal_name(metadata["Name"]),
        version=metadata["Version"],
        license=_license(metadata.json),
        needs=tuple(sorted(set(_needs(distribution.requires or [])))),
    )


def _needs(requirements: Iterable[str]) -> Iterator[str]:
    """The names of requirements that are not of an optional extra."""
    for requirement in requirements:
        if "extra ==" not in requirement and (match := _NAME.match(requirement)):
            yield normal_name(match.group())


def _license(metadata: Mapping[str, str | list[str]]) -> str:
    expression, field = metadata.get("license_expression"), metadata.get("license")
    if isinstance(expression, str):
        return expression
    if isinstance(field, str) and field != "UNKNOWN" and "\n" not in field and len(field) <= _LONGEST_LICENSE:
        return field
    classifiers = [line.rpartition(" :: ")[2] for line in metadata.get("classifier", []) if line.startswith("License :: ")]
    return " AND ".join(sorted(classifiers))


def _system_part(fields: dict[str, str], distribution: str) -> Part:
    return Part(
        kind="deb",
        namespace=distribution,
        name=fields["Package"],
        version=fields["Version"],
        qualifiers=(("arch", fields.get("Architecture", "all")),),
    )


def _fields(stanza: str) -> dict[str, str]:
    """The one-line fields of a stanza of dpkg's status file."""
    pairs = (line.partition(": ") for line in stanza.splitlines() if line[:1].strip())
    return {key: value for key, separator, value in pairs if separator}


def _release_id(release: Path) -> str:
    lines = release.read_text(encoding="utf-8").splitlines() if release.is_file() else []
    return next((line.partition("=")[2].strip('"') for line in lines if line.startswith("ID=")), "debian")


def main(file: Path) -> None:
    """Write the document about this Python's accelshare; the file's time is $SOURCE_DATE_EPOCH, if that is set."""
    python = python_parts()
    (subject,) = [part for part in python if part.name == _SUBJECT]
    interpreter = Part("generic", "python", platform.python_version(), license="PSF-2.0")
    others = [part for part in python if part is not subject]
    file.write_text(document(subject, [*others, interpreter, *system_parts()]), encoding="utf-8")
    if time_s := os.environ.get("SOURCE_DATE_EPOCH"):
        os.utime(file, (int(time_s), int(time_s)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
