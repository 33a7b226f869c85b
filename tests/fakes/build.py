"""Builds one vendor's fake library and tool in a directory: for tests, and for a local cluster.

Belongs here: compiling and copying. Never: what the fakes answer, which is in their data file (README.md).
"""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent

# By vendor: the libraries, each as a source and what it is compiled with, and the tools.
LIBRARIES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "nvidia": {"libnvidia-ml.so.1": ("nvml.c",), "libnvidia-ml-old.so": ("nvml.c", "-DOLD")},
    "kunlun": {"libxpuml.so": ("xpuml.c",)},
    "enflame": {"libefml.so": ("efml.c",), "libefml-newer.so": ("efml.c", "-DNEWER")},
}
TOOLS: Final[Mapping[str, str]] = {"nvidia": "nvidia-smi", "kunlun": "xpu_smi", "enflame": "efsmi"}


def build(vendor: str, into: Path) -> Path:
    """This vendor's fakes in this directory, which is made if it is missing."""
    into.mkdir(parents=True, exist_ok=True)
    for library, (source, *flags) in LIBRARIES[vendor].items():
        command = [
            "gcc",
            "-shared",
            "-fPIC",
            "-O1",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wno-format-truncation",
            "-Wno-unused-function",
        ]
        subprocess.run([*command, *flags, "-o", into / library, HERE / vendor / source], check=True)
    shutil.copy(HERE / "tool.py", into / "tool.py")
    tool = into / TOOLS[vendor]
    shutil.copy(HERE / vendor / tool.name, tool)
    tool.chmod(0o755)
    return into


if __name__ == "__main__":
    build(sys.argv[1], Path(sys.argv[2]))
