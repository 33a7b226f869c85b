"""Findings of the checks: their grades, naming many nodes briefly, and printing for people and programs.

Belongs here: the finding and its layout. Never: a check.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from accelshare.install.preflight.snapshot import NodeWithVersions
from accelshare.terminal import visible, visible_json

_LONGEST: Final = 80  # characters of a value that a node reports about itself
_NAMED: Final = 3  # of more names than this only the first are printed


class Grade(Enum):
    """How much a finding matters; a problem must be solved before an install."""

    FINE = "fine"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check: what it found, and the steps to solve it."""

    check: str
    grade: Grade
    message: str
    do: tuple[str, ...] = ()


def nodes_by(nodes: Iterable[NodeWithVersions], key: Callable[[NodeWithVersions], str]) -> Iterator[tuple[str, str]]:
    """Each value that nodes have, with the names of the nodes that have it."""
    groups: dict[str, list[str]] = {}
    for node in nodes:
        groups.setdefault(key(node)[:_LONGEST], []).append(node.metadata.name)
    for value in sorted(groups):
        yield value, named(groups[value])


def named(names: Sequence[str], most: int = _NAMED) -> str:
    """`n1, n2` or `n1, n2, n3 and 97 more`."""
    first = ", ".join(sorted(names)[:most])
    return first if len(names) <= most else f"{first} and {len(names) - most} more"


def counted(count: int, noun: str) -> str:
    """`1 pod` or `3 pods`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def ready(findings: Sequence[Finding]) -> bool:
    """Whether no finding is a problem."""
    return all(finding.grade is not Grade.PROBLEM for finding in findings)


def as_text(findings: Sequence[Finding]) -> str:
    """One line for each finding with its steps below, and a summary at the end."""
    lines = []
    for finding in findings:
        lines.append(visible(f"{finding.grade.value:<8} {finding.check:<13} {finding.message}"))
        lines += [visible(f"{'':<22} → {step}") for step in finding.do]
    counts = {grade: sum(finding.grade is grade for finding in findings) for grade in Grade}
    summary = ", ".join(
        counted(counts[grade], grade.value) for grade in (Grade.PROBLEM, Grade.WARNING, Grade.NOTE) if counts[grade]
    )
    validator = "ready for accelshare" if ready(findings) else "not ready: solve the problems first"
    return "\n".join([*lines, "", f"{validator}{f' ({summary})' if summary else ''}"]) + "\n"


def as_json(findings: Sequence[Finding]) -> str:
    """The findings as JSON."""
    content = [{"check": each.check, "grade": each.grade.value, "says": each.message, "do": list(each.do)} for each in findings]
    return visible_json(json.dumps({"ready": ready(findings), "findings": content}, indent=2, ensure_ascii=False)) + "\n"
