"""How containerd puts its configuration together, as far as plugins go.

Belongs here: imports, their order, and the section of the plugin interface. Never: other sections.

Seen on containerd 2.4.2: only what the main file imports is read, although `config dump` shows a default import; imports of
imports come last; a pattern that matches nothing is nothing, but reading ends, without a word, at a plain name that is not there.
"""

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from accelshare.runtimes.plugin_settings import Layer, Said, UnreadableError
from accelshare.runtimes.tree import Tree

CONFIG: Final = Path("/etc/containerd/config.toml")
NRI: Final = "io.containerd.nri.v1.nri"
VALIDATOR: Final = "default_validator"
_SOCKET: Final = "/var/run/nri/nri.sock"


@dataclass(frozen=True, slots=True)
class Layers:
    """The files that containerd reads, in order, and the one at which it stopped because it is not there."""

    layers: tuple[Layer, ...]
    stopped_at: Path | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(layer.path for layer in self.layers)


def layers(config: Path, tree: Tree) -> Layers:
    """The main file and what it imports."""
    pending, found = [config], dict[Path, Layer]()
    while pending:
        path = pending.pop(0)
        if path in found:
            continue
        raw = tree.read(path)
        if raw is None:
            return Layers(tuple(found.values()), stopped_at=path if found else None)
        found[path] = Layer(path, parse(path, raw))
        pending += _imports(found[path], tree)
    return Layers(tuple(found.values()))


def parse(path: Path, raw: bytes) -> dict[str, Any]:
    try:
        return tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UnreadableError(f"{path} cannot be read: {error}") from error


def section(layers: Sequence[Layer]) -> dict[str, Any]:
    """The plugin interface's section, joined key by key."""
    joined: dict[str, Any] = {}
    for layer in layers:
        _join(joined, _table(layer.content, "plugins", NRI))
    return joined


def said(read: Layers) -> Said:
    joined = section(read.layers)
    enables = [layer.path for layer in read.layers if _table(layer.content, "plugins", NRI, VALIDATOR).get("enable") is not None]
    without = [layer.path for layer in read.layers if NRI in layer.content.get("disabled_plugins", ())]
    return Said(
        nri=not joined.get("disable", False) and not without,
        connections=not joined.get("disable_connections", False),
        validator=_table(joined, VALIDATOR).get("enable") is True,
        validator_in=enables[-1] if enables else None,
        socket=Path(joined.get("socket_path") or _SOCKET),
        files=read.paths,
        switched_off_in=without[0] if without else None,
    )


def _imports(layer: Layer, tree: Tree) -> list[Path]:
    found: list[Path] = []
    for name in layer.content.get("imports", ()):
        place = os.path.normpath(layer.path.parent / str(name))
        found += tree.matching(place) if "*" in place else [Path(place)]
    return found


def _table(content: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    for key in keys:
        inner = content.get(key)
        content = inner if isinstance(inner, Mapping) else {}
    return content


def _join(to: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, Mapping):
            inner = to.setdefault(key, {})
            if isinstance(inner, dict):
                _join(inner, value)
                continue
        to[key] = value
