"""What is installed beside this program: Python's distributions, the interpreter, and the system's packages if it has a list.

Belongs here: reading metadata that installers left. Never: CycloneDX, judging versions.
"""

import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Final

from accelshare.sbom.parts import Part

DPKG_STATUS: Final = Path("/var/lib/dpkg/status")
OS_RELEASE: Final = Path("/etc/os-release")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# A licence of more words than this is the licence's text and not its name.
_LONGEST_NAME: Final = 80


def python_parts(found: Iterable[Distribution] | None = None) -> list[Part]:
    """Every distribution on the interpreter's path; of two with one name the first, as an import would choose."""
    parts: dict[str, Part] = {}
    for distribution in distributions() if found is None else found:
        part = _python_part(distribution)
        parts.setdefault(part.name, part)
    return list(parts.values())


def interpreter() -> Part:
    """The Python that runs this."""
    return Part("generic", "python", platform.python_version(), license="PSF-2.0")


def system_parts(status: Path = DPKG_STATUS, release: Path = OS_RELEASE) -> list[Part]:
    """Every package that dpkg has installed; none where there is no dpkg."""
    if not status.is_file():
        return []
    distribution = _release_id(release)
    stanzas = map(_fields, status.read_text(encoding="utf-8", errors="replace").split("\n\n"))
    return [_system_part(fields, distribution) for fields in stanzas if fields.get("Status", "").endswith(" installed")]


def _python_part(distribution: Distribution) -> Part:
    metadata = distribution.metadata
    return Part(
        kind="pypi",
        name=_normal(metadata["Name"]),
        version=metadata["Version"],
        license=_license(metadata.json),
        needs=tuple(sorted(set(_needs(distribution.requires or [])))),
    )


def _normal(name: str) -> str:
    """One spelling of a distribution's name, as Python's packaging guide wants it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _needs(requirements: Iterable[str]) -> Iterator[str]:
    """The names of requirements that are not somebody's optional extra."""
    for requirement in requirements:
        if "extra ==" not in requirement and (match := _NAME.match(requirement)):
            yield _normal(match.group())


def _license(metadata: Mapping[str, str | list[str]]) -> str:
    expression, told = metadata.get("license_expression"), metadata.get("license")
    if isinstance(expression, str):
        return expression
    if isinstance(told, str) and told != "UNKNOWN" and "\n" not in told and len(told) <= _LONGEST_NAME:
        return told
    named = [line.rpartition(" :: ")[2] for line in metadata.get("classifier", []) if line.startswith("License :: ")]
    return " AND ".join(sorted(named))


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
