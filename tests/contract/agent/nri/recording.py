"""Recorded traffic of plugin and runtime as hex in a file: `> ` lines are the runtime's bytes, `< ` lines the plugin's."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

RECORDED = Path(__file__).parent / "recorded"
RUNTIME, PLUGIN = ">", "<"
VALIDATED = "-validated"  # a plugin that subscribed to ValidateContainerAdjustment instead of StartContainer
_WIDTH = 64  # bytes of one line


def write(path: Path, turns: Iterable[tuple[str, bytes]]) -> None:
    lines = [f"{who} {part.hex()}" for who, data in turns for part in _cut(data)]
    path.write_text("\n".join(lines) + "\n")


def read(path: Path) -> list[tuple[str, bytes]]:
    """One item for each turn: all bytes of one side before the other side sends."""
    lines = [line.split() for line in path.read_text().splitlines()]
    return [(who, bytes.fromhex("".join(part for _, part in turn))) for who, turn in groupby(lines, key=lambda line: line[0])]


def _cut(data: bytes) -> Iterator[bytes]:
    return (data[i : i + _WIDTH] for i in range(0, len(data), _WIDTH))
