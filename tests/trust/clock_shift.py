"""The time of day of one process, which a run moves while the process runs. Only for dynamically linked programs, as Python is.

Belongs here: building the preloaded library and writing its file. Never: how far a clock jumps (faults.py).
"""

import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_suffix(".c")
LIBRARY: Final = "clock_shift.so"
VARIABLE: Final = "ACCELSHARE_CLOCK_SHIFT"


class ClockShift:
    def __init__(self, directory: Path, name: str) -> None:
        """`directory` gets the library, if it is not there yet, and the file of this process."""
        self._file = directory / f"{name}.clock"
        self._library = directory / LIBRARY
        if not self._library.exists():
            command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]
            subprocess.run([*command, "-o", self._library, SOURCE], check=True)
        self._file.write_bytes(bytes(8))

    @property
    def variables(self) -> Mapping[str, str]:
        """Of the process."""
        return {"LD_PRELOAD": str(self._library), VARIABLE: str(self._file)}

    def move(self, seconds: float) -> None:
        """The process's time of day is from now on so far from the machine's; 0: it is right."""
        with self._file.open("r+b") as file:  # in place: the process has mapped it
            file.write(struct.pack("=q", round(seconds * 1e9)))
