"""How CRI-O combines its configuration files, as far as NRI is concerned. Read in its source, not tried on a running CRI-O.

Belongs here: its main file, its drop-in directory, and the NRI section. Never: other sections.
"""

from pathlib import Path
from typing import Any, Final

from accelshare.runtimes.config_files import Layer, NriSettings, Tree, parse, table

CONFIG: Final = Path("/etc/crio/crio.conf")
VALIDATOR: Final = "default_validator"
ENABLE_VALIDATOR: Final = "nri_enable_default_validator"
_SOCKET: Final = "/var/run/nri/nri.sock"


def directory(config: Path) -> Path:
    """The drop-in directory of a main file."""
    return config.with_name(f"{config.name}.d")


def layers(config: Path, tree: Tree) -> tuple[Layer, ...]:
    """The main file, then the files of its directory by name."""
    paths = [config, *tree.matching(str(directory(config) / "*"))]
    return tuple(Layer(path, parse(path, raw)) for path in paths if not path.is_dir() and (raw := tree.read(path)) is not None)


def nri_settings(read: tuple[Layer, ...]) -> NriSettings:
    """What the files say about NRI."""
    merged: dict[str, Any] = {}
    validator, validator_in = False, None
    for layer in read:
        section = table(layer.content, "crio", "nri")
        merged |= section
        enable = table(section, VALIDATOR).get(ENABLE_VALIDATOR)
        if enable is not None:
            validator, validator_in = enable is True, layer.path
    return NriSettings(
        nri=merged.get("enable_nri", True) is True,
        connections=not merged.get("nri_disable_connections", False),
        validator=validator,
        validator_in=validator_in,
        socket=Path(merged.get("nri_listen") or _SOCKET),
        files=tuple(layer.path for layer in read),
    )
