"""Parts as a CycloneDX document, the same bytes for the same parts.

Belongs here: CycloneDX' spelling and the package URLs in it. Never: reading what is installed, the clock.
"""

import json
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from accelshare.sbom.parts import Part

SPECIFICATION: Final = "1.6"


def document(subject: Part, parts: Sequence[Part]) -> str:
    """The document about `subject`, which is made of `parts`.

    It has neither a serial number nor a time: both would make two builds of one source differ.
    """
    ordered = sorted(parts, key=lambda part: (part.kind, part.name, part.version))
    told = {
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "version": 1,
        "metadata": {"component": {**_component(subject), "type": "application"}},
        "components": [_component(part) for part in ordered],
        "dependencies": [_dependency(part, [subject, *ordered]) for part in [subject, *ordered] if part.needs],
    }
    return json.dumps(told, indent=2) + "\n"


def package_url(part: Part) -> str:
    """The part's name in all the world: https://github.com/package-url/purl-spec."""
    owner = f"{quote(part.namespace)}/" if part.namespace else ""
    qualifiers = "&".join(f"{key}={quote(value, safe='')}" for key, value in sorted(part.qualifiers))
    return f"pkg:{part.kind}/{owner}{quote(part.name)}@{quote(part.version, safe='')}" + (f"?{qualifiers}" if qualifiers else "")


def _component(part: Part) -> dict[str, Any]:
    url = package_url(part)
    told: dict[str, Any] = {"type": "library", "bom-ref": url, "name": part.name, "version": part.version, "purl": url}
    if part.license:
        told["licenses"] = [{"license": {"name": part.license}}]
    return told


def _dependency(part: Part, parts: Sequence[Part]) -> dict[str, Any]:
    there = {other.name: package_url(other) for other in parts if other.kind == part.kind}
    return {"ref": package_url(part), "dependsOn": sorted(there[name] for name in set(part.needs) if name in there)}
