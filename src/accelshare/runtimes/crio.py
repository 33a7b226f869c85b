"""How CRI-O puts its configuration together, as far as plugins go. Read in its source, not tried on a running one.

Belongs here: its main file, its directory of further files, and the section of the plugin interface. Never: other sections.
"""

from pathlib import Path
from typing import Any, Final

from accelshare.runtimes.containerd import parse
from accelshare.runtimes.plugin_settings import Layer, Said
from accelshare.runtimes.tree import Tree

CONFIG: Final = Path("/etc/crio/crio.conf")
VALIDATOR: Final = "default_validator"
ENABLE_VALIDATOR: Final = "nri_enable_default_validator"
_SOCKET: Final = "/var/run/nri/nri.sock"


def directory(config: Path) -> Path:
    return config.with_name(f"{config.name}.d")


def layers(config: Path, tree: Tree) -> tuple[Layer, ...]:
    """The main file, then the files of its directory by name."""
    paths = [config, *tree.matching(str(directory(config) / "*"))]
    return tuple(Layer(path, parse(path, raw)) for path in paths if not path.is_dir() and (raw := tree.read(path)) is not None)


def said(read: tuple[Layer, ...]) -> Said:
    joined: dict[str, Any] = {}
    validator, validator_in = False, None
    for layer in read:
        section = layer.content.get("crio", {}).get("nri", {})
        joined |= section
        enable = section.get(VALIDATOR, {}).get(ENABLE_VALIDATOR)
        if enable is not None:
            validator, validator_in = enable is True, layer.path
    return Said(
        nri=joined.get("enable_nri", True) is True,
        connections=not joined.get("nri_disable_connections", False),
        validator=validator,
        validator_in=validator_in,
        socket=Path(joined.get("nri_listen") or _SOCKET),
        files=tuple(layer.path for layer in read),
    )
