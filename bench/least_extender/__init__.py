"""The least extender: a Go program (main.go) that names one node, sends the Binding and does nothing else.

Belongs here: the program. Never: measuring it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench import go_program

SOURCE: Final = Path(__file__).parent


def program(say: Callable[[str], None]) -> Path:
    """The built program."""
    content = b"".join((SOURCE / name).read_bytes() for name in ("go.mod", "main.go"))
    return go_program.program("least-extender", content, lambda _go, _directory: SOURCE, say)
