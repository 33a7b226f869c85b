"""Findings for people and for programs.

Belongs here: layout. Never: which findings there are, or what they mean for the exit code.
"""

import json
from collections.abc import Sequence

from accelshare.install.preflight.findings import Finding, Grade
from accelshare.terminal import visible, visible_json


def ready(findings: Sequence[Finding]) -> bool:
    """Nothing has to be solved first."""
    return all(finding.grade is not Grade.PROBLEM for finding in findings)


def as_text(findings: Sequence[Finding]) -> str:
    """One line each, what to do below it, and a sum at the end."""
    lines = []
    for finding in findings:
        lines.append(visible(f"{finding.grade.value:<8} {finding.check:<13} {finding.says}"))
        lines += [visible(f"{'':<22} → {step}") for step in finding.do]
    counts = {grade: sum(finding.grade is grade for finding in findings) for grade in Grade}
    told = ", ".join(f"{counts[grade]} {grade.value}" for grade in (Grade.PROBLEM, Grade.WARNING, Grade.NOTE) if counts[grade])
    verdict = "ready for accelshare" if ready(findings) else "not ready: solve what is marked as a problem"
    return "\n".join([*lines, "", f"{verdict}{f' ({told})' if told else ''}"]) + "\n"


def as_json(findings: Sequence[Finding]) -> str:
    told = [{"check": each.check, "grade": each.grade.value, "says": each.says, "do": list(each.do)} for each in findings]
    return visible_json(json.dumps({"ready": ready(findings), "findings": told}, indent=2, ensure_ascii=False)) + "\n"
