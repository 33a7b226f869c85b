"""Matches a profile's pattern with a tool's output, in a helper process.

Belongs here: both sides of that call. A pattern is the operator's and an output the vendor's, so together they may take any time:
Python cannot interrupt a match, but a process can be killed. Never: what the groups mean (`static.py`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from accelshare.vendors.drivers.driver import QueryFailed
from accelshare.vendors.drivers.library_process import LibraryProcess

LONGEST_LINE: Final = 1000
# More than a host has cards; a pattern that matches everywhere must not fill the memory.
MOST_MATCHES: Final = 1024
LONGEST_GROUP: Final = 256
_LONGEST_TEXT: Final = 200


@dataclass(frozen=True, slots=True)
class PatternMatch:
    """One card's text in an output: the groups that took part in the match, and its beginning for messages."""

    groups: Mapping[str, str] = field(default_factory=dict)
    text: str = ""


class Matcher:
    """The helper's side: a session of `library_main.py`."""

    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern)

    def match_lines(self, output: str) -> list[PatternMatch]:
        """The first match in each line."""
        lines = (line[:LONGEST_LINE] for line in output.splitlines() if line.strip())
        return [_match(found, line) for line in lines if (found := self._pattern.search(line))][:MOST_MATCHES]

    def match_blocks(self, output: str) -> list[PatternMatch]:
        """Every match in the whole output."""
        found = []
        for match in self._pattern.finditer(output):
            found.append(_match(match, match[0]))
            if len(found) == MOST_MATCHES:
                break
        return found

    def close(self) -> None:
        """Nothing is open."""


def _match(match: re.Match[str], text: str) -> PatternMatch:
    groups = {name: value.strip()[:LONGEST_GROUP] for name, value in match.groupdict().items() if value is not None}
    return PatternMatch(groups, text[:_LONGEST_TEXT])


class PatternProcess:
    """The caller's side: one pattern, in a helper that is started by the first call and ended by `close`."""

    def __init__(self, pattern: str, *, several_lines: bool, timeout_s: float) -> None:
        self._pattern = pattern
        self._call = "match_blocks" if several_lines else "match_lines"
        self._timeout_s = timeout_s
        self._process = LibraryProcess("pattern", timeout_s=timeout_s)

    async def matches(self, output: str) -> list[PatternMatch]:
        """The cards' texts; QueryFailed if that takes too long."""
        try:
            if not self._process.running:
                await self._process.call("open", "pattern", self._pattern, into=type(None))
            return await self._process.call(self._call, output, into=list[PatternMatch])
        except QueryFailed as error:
            raise QueryFailed(f"its output could not be matched with the pattern: {error}") from error

    async def close(self) -> None:
        """End the helper."""
        await self._process.close()
