"""What a check says.

Belongs here: the noun and its grades. Never: a check.
"""

from dataclasses import dataclass
from enum import Enum


class Grade(Enum):
    """How much it matters; a problem has to be solved before an install."""

    FINE = "fine"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found: by which check, what it is, and what to do about it, step by step."""

    check: str
    grade: Grade
    says: str
    do: tuple[str, ...] = ()
