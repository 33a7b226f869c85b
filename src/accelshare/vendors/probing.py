"""Probes whether a node meets the requirements of a way of enforcement: files, and the versions of tools.

Belongs here: reading files and running tools, and the message about each. A probe never raises: whatever goes wrong, the
requirement is not met, and the message gives the reason. Never: which way is chosen (`enforcement.py`).
"""

import asyncio
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from accelshare.vendors.drivers.driver import QueryFailed, Roots, excerpt
from accelshare.vendors.drivers.tools import run_tool
from accelshare.vendors.enforcement import ProbeResult
from accelshare.vendors.host_paths import seen_from_here
from accelshare.vendors.profile import Requirement

# Directories of tools on hosts; a vendor's operator puts them beside its driver.
_TOOL_FOLDERS: Final = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "usr/local/nvidia/toolkit")
_ANY_VERSION: Final = r"([0-9]+(?:\.[0-9]+)*)"
_LONGEST_FILE: Final = 64 * 1024
_LONGEST_SEARCHED: Final = 4096  # a version is near the beginning, and a pattern takes longer on longer text


async def probe(
    requirements: Iterable[Requirement], *, roots: Roots | None = None, host: Path = Path("/"), timeout_s: float = 10
) -> dict[Requirement, ProbeResult]:
    """The result of each requirement on this node; `host` is where the node's root directory is mounted."""
    distinct = tuple(dict.fromkeys(requirements))
    results = await asyncio.gather(*(_one(each, roots or Roots(), host, timeout_s) for each in distinct))
    return dict(zip(distinct, results, strict=True))


def version_at_least(version: str, wanted: str) -> bool:
    """Is this version the wanted one or a later one? Compared part by part as numbers; a missing part is 0."""
    parts, needs = ([int(part) for part in text.split(".") if part] for text in (version, wanted))
    length = max(len(parts), len(needs))
    return parts + [0] * (length - len(parts)) >= needs + [0] * (length - len(needs))


async def _one(requirement: Requirement, roots: Roots, host: Path, timeout_s: float) -> ProbeResult:
    try:
        if requirement.file is not None:
            path = _on_host(requirement.file, roots, host)
            answer = await asyncio.to_thread(_read, path, content=requirement.at_least is not None)
        else:
            tool, *args = requirement.command
            output = await run_tool(_tool(tool, host), *args, timeout_s=timeout_s)
            answer = output.checked()
    except QueryFailed as error:
        return ProbeResult(met=False, message=f"{requirement.subject}: {error}")
    except OSError as error:  # on the path to it, for example a stale network file system
        return ProbeResult(met=False, message=f"{requirement.subject}: cannot be found: {error.strerror}")
    return _judged(requirement, answer)


def _judged(requirement: Requirement, answer: str) -> ProbeResult:
    if requirement.at_least is None:
        return ProbeResult(met=True, message=f"{requirement.subject} is there")
    found = re.search(requirement.pattern or _ANY_VERSION, answer[:_LONGEST_SEARCHED])
    version = (found[1] or "").strip(".") if found else ""
    if not re.fullmatch(_ANY_VERSION, version):
        return ProbeResult(met=False, message=f"{requirement.subject} has no version: {excerpt(answer)}")
    if not version_at_least(version, requirement.at_least):
        return ProbeResult(met=False, message=f"{requirement.subject} has version {version}; {requirement.at_least} is needed")
    return ProbeResult(met=True, message=f"{requirement.subject} has version {version}")


def _on_host(file: str, roots: Roots, host: Path) -> Path:
    for tree, root in (("/dev", roots.dev), ("/proc", roots.proc), ("/sys", roots.sys)):
        if file.startswith(f"{tree}/"):
            return root / file.removeprefix(f"{tree}/")
    return seen_from_here(file, host)


def _tool(name: str, host: Path) -> str:
    """The host's own tool if its root is mounted: a tool of this container's image proves nothing about the node."""
    if name.startswith("/"):
        return str(seen_from_here(name, host))
    candidate_paths = [str(seen_from_here(f"{folder}/{name}", host)) for folder in _TOOL_FOLDERS]
    on_host = next((place for place in candidate_paths if shutil.which(place)), None)
    if host == Path("/"):
        return shutil.which(name) or on_host or name
    if on_host is None:
        raise QueryFailed(f"not found in {', '.join(f'/{folder}' for folder in _TOOL_FOLDERS)} of the host")
    return on_host


def _read(path: Path, *, content: bool) -> str:
    """The file's content, if that matters; QueryFailed if it is not there."""
    try:
        if not path.exists():
            raise QueryFailed("is not there")
        if not content:
            return ""
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_LONGEST_FILE)
    except OSError as error:
        raise QueryFailed(f"cannot be read: {error.strerror}") from error
