"""The errors of profiles: each problem with its file, its key, its value and what would be right.

    VendorError
    ├── ProfileError      all problems of all files that were read, at once
    └── UnknownProfile    a name that no profile has

Belongs here: these errors and the wording they share. Never: the rules that find problems.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from accelshare.terminal import visible

# Enough of a value or a key to recognise it; a whole pasted file would hide the message around it.
_LONGEST_SHOWN = 60
_LONGEST_KEY = 200


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: the file, the dotted key (empty if it is the whole file), and what is wrong with it."""

    file: str
    key: str
    message: str

    def __str__(self) -> str:
        return visible(
            f"{self.file}: {_cut(self.key, _LONGEST_KEY)} {self.message}" if self.key else f"{self.file}: {self.message}"
        )


class VendorError(Exception):
    """Base of every error of this package."""


class ProfileError(VendorError):
    """The files do not make a profile; carries every problem, in the order of the files."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class UnknownProfile(VendorError, LookupError):  # noqa: N818 (the name reads as the error: an unknown profile)
    """No profile has this name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        known = tuple(known)
        super().__init__(f"there is no profile {shown(name)}; known are {', '.join(known)}{nearest(name, known)}")


def shown(value: object) -> str:
    """A value as its TOML author would recognise it, cut to a length that fits a message."""
    if isinstance(value, Mapping):
        return "a table"
    import json

    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (RecursionError, ValueError):  # nested deeper, or with more digits, than Python writes out
        return "a value that is too large to be shown"
    return _cut(text, _LONGEST_SHOWN)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[:longest] + "…"


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?` for the most similar known word, or nothing if none is similar."""
    from difflib import get_close_matches

    close = get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
