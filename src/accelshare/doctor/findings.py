"""Findings of the doctor, as lines for people and as JSON.

Belongs here: the finding and its layout. Never: a check.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from accelshare.install.preflight.findings import Grade, counted
from accelshare.terminal import visible, visible_json

_LONGEST: Final = 1000  # characters of one text: some quote what others wrote
_ORDER: Final = (Grade.PROBLEM, Grade.WARNING, Grade.NOTE)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong: with which object, what, and the command or change that fixes it."""

    check: str
    grade: Grade
    object: str
    what: str
    fix: str


def sorted_findings(findings: Sequence[Finding]) -> list[Finding]:
    """Problems first; within a grade in the order of the checks."""
    return sorted(findings, key=lambda finding: _ORDER.index(finding.grade))


def as_text(findings: Sequence[Finding], unread: Mapping[str, str], looked_at: str) -> str:
    """One line for each finding, one for each part that could not be read, and a summary."""
    lines = [
        visible(
            f"{each.grade.value:<8} {each.check:<17} {each.object[:_LONGEST]}: {each.what[:_LONGEST]} → {each.fix[:_LONGEST]}"
        )
        for each in findings
    ]
    lines += [visible(f"{'unread':<8} {what[:_LONGEST]}: {why[:_LONGEST]}") for what, why in unread.items()]
    counts = ", ".join(
        counted(count, grade.value) for grade in _ORDER if (count := sum(each.grade is grade for each in findings))
    )
    partly = "; not all could be read" if unread else ""
    summary = f"{counts or 'nothing wrong'} ({looked_at}){partly}"
    return "\n".join([*lines, *([""] if lines else []), summary]) + "\n"


def as_json(findings: Sequence[Finding], unread: Mapping[str, str]) -> str:
    """The same as JSON."""
    content = {
        "findings": [
            {
                "check": each.check,
                "severity": each.grade.value,
                "object": each.object[:_LONGEST],
                "what": each.what[:_LONGEST],
                "fix": each.fix[:_LONGEST],
            }
            for each in findings
        ],
        "unread": [{"what": what[:_LONGEST], "why": why[:_LONGEST]} for what, why in unread.items()],
    }
    return visible_json(json.dumps(content, indent=2, ensure_ascii=False)) + "\n"
