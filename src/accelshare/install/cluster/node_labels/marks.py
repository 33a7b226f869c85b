"""What one node's labels should become. Pure.

Belongs here: which labels are ours, which are others', and the difference to be written. Never: the API server.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

# The labels that we gave to this node, as key=value joined by commas. What was there before us is not in it, and stays.
KEY: Final = "accelshare.io/labels-added"


@dataclass(frozen=True, slots=True)
class NodeLabels:
    """A node's name, its labels, and those of them that we gave."""

    name: str
    labels: Mapping[str, str]
    ours: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be written on one node; None takes a label away."""

    node: str
    labels: Mapping[str, str | None] = field(default_factory=dict)
    ours: Mapping[str, str] = field(default_factory=dict)
    lines: tuple[str, ...] = ()


class ForeignLabelError(Exception):
    """The node has the label with another value, which somebody else chose."""


def read(name: str, labels: Mapping[str, str] | None, annotations: Mapping[str, str] | None) -> NodeLabels:
    """A node as its object tells it; a mark that cannot be read marks nothing."""
    text = (annotations or {}).get(KEY, "")
    pairs = (entry.partition("=") for entry in text.split(","))
    return NodeLabels(name, labels or {}, {key: value for key, separator, value in pairs if key and separator})


def written(ours: Mapping[str, str]) -> str | None:
    """The annotation's text; None where there is nothing to remember."""
    return ",".join(f"{key}={value}" for key, value in sorted(ours.items())) or None


def change(node: NodeLabels, wanted: Mapping[str, str]) -> Change | None:
    """From what is there to what is wanted of us; None if nothing is to be written. Raises ForeignLabelError."""
    labels: dict[str, str | None] = {}
    ours: dict[str, str] = {}
    lines: list[str] = []
    for key, value in wanted.items():
        there = node.labels.get(key)
        if there is not None and there != value and node.ours.get(key) != there:
            raise ForeignLabelError(
                f"node {node.name} has the label {key}={there}; it must be {value} or not there: "
                f"kubectl label node {node.name} {key}-"
            )
        if there != value:
            labels[key] = value
            lines.append(f"node {node.name}: label {key}={value} given")
        if there != value or node.ours.get(key) == value:
            ours[key] = value
    for key, value in node.ours.items():
        # Somebody who changed the value since has made the label theirs.
        if key not in wanted and node.labels.get(key) == value:
            labels[key] = None
            lines.append(f"node {node.name}: label {key}={value} taken away")
    if not labels and ours == node.ours:
        return None
    return Change(node.name, labels, ours, tuple(lines))
