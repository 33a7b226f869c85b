"""What plugin and runtime said to each other, as bytes in a file: `> ` lines are the runtime's, `< ` lines the plugin's."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

RECORDED = Path(__file__).parent / "recorded"
RUNTIME, PLUGIN = ">", "<"
VALIDATED = "-validated"  # a plugin that wished to be asked at the end of making a container, not at its start
_WIDTH = 64  # bytes of one line


def write(path: Path, turns: Iterable[tuple[str, bytes]]) -> None:
    lines = [f"{who} {part.hex()}" for who, said in turns for part in _cut(said)]
    path.write_text("\n".join(lines) + "\n")


def read(path: Path) -> list[tuple[str, bytes]]:
    """Turn for turn: all that one said before the other said something."""
    lines = [line.split() for line in path.read_text().splitlines()]
    return [(who, bytes.fromhex("".join(part for _, part in turn))) for who, turn in groupby(lines, key=lambda line: line[0])]


def _cut(said: bytes) -> Iterator[bytes]:
    return (said[i : i + _WIDTH] for i in range(0, len(said), _WIDTH))
