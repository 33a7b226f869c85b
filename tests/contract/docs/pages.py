"""Reads the commands of the docs: their page, line, text and the output below them.

Belongs here: reading Markdown. Never: running, judging.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
# A page in Chinese has the same code to the letter, which another test sees to: so its commands run when these do.
PAGES = tuple(
    sorted(
        str(page.relative_to(ROOT))
        for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md"))
        if "zh" not in page.relative_to(ROOT).parts and not page.name.endswith(".zh.md")
    )
)
SHELLS = ("console", "sh", "bash", "shell")
PROMPT = "$ "


@dataclass(frozen=True, slots=True)
class Command:
    """What a reader would type, and the lines that the page shows as its answer."""

    page: str
    line: int
    section: str
    words: str
    shown: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.words}"

    @property
    def program(self) -> str:
        """Its first word, without the directory it is called in."""
        return self.words.split()[0].rpartition("/")[2]


def commands(page: str) -> list[Command]:
    """Every command of a page, in its order."""
    return list(_commands(page, (ROOT / page).read_text(encoding="utf-8")))


def _commands(page: str, text: str) -> Iterator[Command]:
    section, language, last = "", "", None
    lines = enumerate(text.splitlines(), start=1)
    for number, line in lines:
        if fence := re.match(r" *```(\w*)$", line):
            if last is not None:
                yield last
            language, last = ("" if language else fence[1] or "none"), None
        elif not language and line.startswith("#"):
            section = line.lstrip("# ")
        elif language in SHELLS and (line.startswith(PROMPT) or language != "console"):
            if last is not None:
                yield last
            words = line.removeprefix(PROMPT)
            while words.endswith("\\"):
                words = words[:-1].rstrip() + " " + next(lines)[1].strip()
            last = Command(page, number, section, words) if words.strip() else None
        elif language == "console" and last is not None:
            last = Command(page, last.line, section, last.words, (*last.shown, line))


def sections(page: str) -> dict[str, list[Command]]:
    """The commands of a page under their headings."""
    found: dict[str, list[Command]] = {}
    for command in commands(page):
        found.setdefault(command.section, []).append(command)
    return found


def block(page: str, language: str, number: int = 0) -> str:
    """The text of one fenced block, counted among those of its language."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found: list[str] = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return found[number]
