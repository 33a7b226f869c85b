"""The runtime handlers of a container runtime's configuration: RuntimeClasses name them, and each runs a program.

Belongs here: reading them from containerd's and CRI-O's files. Never: which of them a vendor's cards need.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from accelshare.runtimes import containerd, crio
from accelshare.runtimes.config_files import Layer, Tree, UnreadableConfigError, table
from accelshare.runtimes.validator_status import Files

# containerd's CRI section in configuration version 3, and in version 2.
_SECTIONS: Final = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri")


@dataclass(frozen=True, slots=True)
class Handlers:
    """The default handler, and for each handler the name of the program that it runs, as far as the files name them."""

    default: str = ""
    programs: Mapping[str, str] = field(default_factory=dict)

    def obeying(self, names: Sequence[str]) -> tuple[str, ...]:
        """The handlers with one of these names, or whose program has one of these names."""
        return tuple(sorted(handler for handler, program in self.programs.items() if handler in names or program in names))


def handlers(files: Files, tree: Tree | None = None) -> Handlers:
    """The handlers in this node's files; none if the files cannot be read."""
    tree = tree or Tree()
    try:
        read = containerd.layers(files.containerd_config, tree).layers
        return _of_containerd(read) if read else _of_crio(crio.layers(files.crio_config, tree))
    except (OSError, UnreadableConfigError):
        return Handlers()


def _of_containerd(layers: Sequence[Layer]) -> Handlers:
    default, programs = "runc", dict[str, str]()
    for layer in layers:
        for name in _SECTIONS:
            section = table(layer.content, "plugins", name, "containerd")
            default = str(section.get("default_runtime_name") or default)
            for handler in table(section, "runtimes"):
                program = table(section, "runtimes", handler, "options").get("BinaryName") or programs.get(handler, "")
                programs[handler] = PurePosixPath(str(program)).name
    return Handlers(default, programs)


def _of_crio(layers: Sequence[Layer]) -> Handlers:
    default, programs = "", dict[str, str]()
    for layer in layers:
        section = table(layer.content, "crio", "runtime")
        default = str(section.get("default_runtime") or default)
        for handler in table(section, "runtimes"):
            program = table(section, "runtimes", handler).get("runtime_path") or programs.get(handler, "")
            programs[handler] = PurePosixPath(str(program)).name
    return Handlers(default, programs)
