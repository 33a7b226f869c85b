"""Colours of `inspect` and `explain`: where they are used, and which.

Belongs here: styles by name as escape sequences. Never: which text has which style (report/).
"""

from collections.abc import Mapping
from typing import Final

STYLES: Final = {
    "title": "\x1b[1m",
    "good": "\x1b[32m",
    "warn": "\x1b[33m",
    "bad": "\x1b[31m",
    "dim": "\x1b[2m",
    "pod": "\x1b[36m",
    "next-pod": "\x1b[34m",
}
AS_BEFORE: Final = "\x1b[0m"


def coloured(terminal: bool, environ: Mapping[str, str]) -> bool:
    """Use colours only on a terminal that has them, and not with NO_COLOR (https://no-color.org)."""
    return terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def paint(text: str, style: str) -> str:
    return f"{STYLES[style]}{text}{AS_BEFORE}"
