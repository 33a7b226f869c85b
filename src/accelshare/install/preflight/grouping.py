"""Many nodes in few words.

Belongs here: grouping nodes that are alike, and naming a group. Never: judging one.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from accelshare.install.preflight.objects import Node

_LONGEST: Final = 80  # characters of a value: nodes write them, and a number of thousands of digits cannot be read
_NAMED: Final = 3  # more names than this are a number, unless somebody needs them


def nodes_by(nodes: Iterable[Node], key: Callable[[Node], str]) -> Iterator[tuple[str, str]]:
    """Each value that nodes have, with the nodes that have it, in words."""
    groups: dict[str, list[str]] = {}
    for node in nodes:
        groups.setdefault(key(node)[:_LONGEST], []).append(node.metadata.name)
    for value in sorted(groups):
        yield value, named(groups[value])


def named(names: Sequence[str], most: int = _NAMED) -> str:
    """`n1, n2` or `n1, n2, n3 and 97 more`."""
    first = ", ".join(sorted(names)[:most])
    return first if len(names) <= most else f"{first} and {len(names) - most} more"
