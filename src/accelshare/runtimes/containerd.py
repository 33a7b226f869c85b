"""How containerd combines its configuration files, as far as NRI is concerned.

Belongs here: imports, their order, and the NRI section. Never: other sections.

Seen on containerd 2.4.2: only what the main file imports is read, although `config dump` shows a default import; imports of
imports come last; a pattern without a match is ignored, but reading ends silently at a plain name that does not exist.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from accelshare.runtimes.config_files import Layer, NriSettings, Tree, parse, table

CONFIG: Final = Path("/etc/containerd/config.toml")
NRI: Final = "io.containerd.nri.v1.nri"
VALIDATOR: Final = "default_validator"
_SOCKET: Final = "/var/run/nri/nri.sock"


@dataclass(frozen=True, slots=True)
class Layers:
    """The files that containerd reads, in order, and the missing one at which it stops."""

    layers: tuple[Layer, ...]
    stopped_at: Path | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(layer.path for layer in self.layers)


def layers(config: Path, tree: Tree) -> Layers:
    """The main file and its imports."""
    pending, layers = [config], dict[Path, Layer]()
    while pending:
        path = pending.pop(0)
        if path in layers:
            continue
        raw = tree.read(path)
        if raw is None:
            return Layers(tuple(layers.values()), stopped_at=path if layers else None)
        layers[path] = Layer(path, parse(path, raw))
        pending += _imports(layers[path], tree)
    return Layers(tuple(layers.values()))


def section(layers: Sequence[Layer]) -> dict[str, Any]:
    """The NRI section, merged key by key."""
    merged: dict[str, Any] = {}
    for layer in layers:
        _merge(merged, table(layer.content, "plugins", NRI))
    return merged


def nri_settings(read: Layers) -> NriSettings:
    """What the files say about NRI."""
    merged = section(read.layers)
    enables = [layer.path for layer in read.layers if table(layer.content, "plugins", NRI, VALIDATOR).get("enable") is not None]
    disabling = [layer.path for layer in read.layers if NRI in layer.content.get("disabled_plugins", ())]
    return NriSettings(
        nri=not merged.get("disable", False) and not disabling,
        connections=not merged.get("disable_connections", False),
        validator=table(merged, VALIDATOR).get("enable") is True,
        validator_in=enables[-1] if enables else None,
        socket=Path(merged.get("socket_path") or _SOCKET),
        files=read.paths,
        disabled_in=disabling[0] if disabling else None,
    )


def _imports(layer: Layer, tree: Tree) -> list[Path]:
    imports: list[Path] = []
    for name in layer.content.get("imports", ()):
        place = os.path.normpath(layer.path.parent / str(name))
        imports += tree.matching(place) if "*" in place else [Path(place)]
    return imports


def _merge(to: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, Mapping):
            inner = to.setdefault(key, {})
            if isinstance(inner, dict):
                _merge(inner, value)
                continue
        to[key] = value
