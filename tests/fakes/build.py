"""Builds one vendor's fake library and tool in a directory: for tests, and for a local cluster.

Belongs here: compiling and copying. Never: what the fakes answer, which is in their data file (README.md).
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cluster.cache import cache_directory

HERE: Final = Path(__file__).parent

# By vendor: the libraries, each as a source and what it is compiled with, and the tools.
LIBRARIES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "nvidia": {"libnvidia-ml.so.1": ("nvml.c",), "libnvidia-ml-old.so": ("nvml.c", "-DOLD")},
    "kunlun": {"libxpuml.so": ("xpuml.c",)},
    "enflame": {"libefml.so": ("efml.c",), "libefml-newer.so": ("efml.c", "-DNEWER")},
}
FLAGS: Final = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-format-truncation", "-Wno-unused-function")
TOOLS: Final[Mapping[str, str]] = {"nvidia": "nvidia-smi", "kunlun": "xpu_smi", "enflame": "efsmi"}


def build(vendor: str, into: Path) -> Path:
    """This vendor's fakes in this directory, which is made if it is missing."""
    into.mkdir(parents=True, exist_ok=True)
    for library in LIBRARIES[vendor]:
        shutil.copy(_compiled(vendor, library), into / library)
    shutil.copy(HERE / "tool.py", into / "tool.py")
    tool = into / TOOLS[vendor]
    shutil.copy(HERE / vendor / tool.name, tool)
    tool.chmod(0o755)
    return into


def _compiled(vendor: str, library: str) -> Path:
    """The library in the cache of built programs, compiled if its sources have changed: many tests copy it."""
    source, *flags = LIBRARIES[vendor][library]
    sources = (HERE / vendor / source, HERE / "data.h")
    recipe = hashlib.sha256(b"\0".join([*(file.read_bytes() for file in sources), *map(str.encode, (*FLAGS, *flags))]))
    built = cache_directory() / "fakes" / recipe.hexdigest()[:12] / library
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=built.parent) as directory:
            fresh = Path(directory) / library
            subprocess.run(["gcc", *FLAGS, *flags, "-o", fresh, sources[0]], check=True)
            fresh.replace(built)
    return built


if __name__ == "__main__":
    build(sys.argv[1], Path(sys.argv[2]))
