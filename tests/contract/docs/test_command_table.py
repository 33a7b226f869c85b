"""Every command of the docs is run by a test or is in a list with the reason why not."""

import re
from pathlib import Path

import pytest

from tests.contract.docs import command_table
from tests.contract.docs.pages import PAGES, ROOT, Command, commands

HERE = Path(__file__).parent
COMMANDS = [command for page in PAGES for command in commands(page)]


def test_there_are_commands() -> None:
    """The reader of pages finds what people find."""
    prompts = sum(line.startswith("$ ") for page in PAGES for line in (ROOT / page).read_text(encoding="utf-8").splitlines())
    assert len(COMMANDS) == prompts > 200


def test_every_command_has_its_place() -> None:
    """What is new is typed by its page's scene; where that cannot be, a row must say so."""
    assert [problem for command in COMMANDS if (problem := homeless(command))] == []


def homeless(command: Command) -> str:
    """Why nobody types this command, and what to do about it; nothing if somebody does, or a list says why not."""
    if not command_table.typed(command):
        return ""
    if command.page not in command_table.SCENES:
        return f"{command}: no scene types the commands of this page; write one beside this file and name it in places.SCENES"
    if command.program not in command_table.PROGRAMS:
        return (
            f"{command}: {command.program} is not among places.PROGRAMS; add it if it may be typed in a machine that is thrown "
            "away, else give the command a row in places.ELSEWHERE or places.NOT_HERE"
        )
    return ""


@pytest.mark.parametrize(
    ("page", "words", "what_to_do"),
    [
        ("docs/how-to/new.md", "kubectl get nodes", "name it in places.SCENES"),
        ("docs/how-to/install.md", "rm -rf /var/lib/kubelet", "add it if it may be typed"),
    ],
)
def test_a_new_command_that_nobody_types_is_named_with_what_to_do(page: str, words: str, what_to_do: str) -> None:
    problem = homeless(Command(page, 7, "", words))
    assert problem.startswith(f"{page}:7: {words}: ")
    assert what_to_do in problem


@pytest.mark.parametrize(("page", "scene"), command_table.SCENES.items())
def test_a_scene_is_there_and_plays_its_page(page: str, scene: str) -> None:
    assert f'"{page}"' in (HERE / scene).read_text(), f"{scene} does not name {page}"


@pytest.mark.parametrize("row", command_table.ELSEWHERE, ids=lambda row: str(row.pattern))
def test_another_test_really_does_it(row: command_table.Elsewhere) -> None:
    text = (ROOT / row.file).read_text()
    assert [words for words in row.words if words not in text] == []


def test_no_row_is_left_over() -> None:
    """A row that no command needs would hide the next one that looks like it."""
    patterns = [*(row.pattern for row in command_table.ELSEWHERE), *command_table.NOT_HERE, *command_table.CODES]
    starts = [*command_table.SERVERS, *command_table.WATCHES]
    words = [command_table.bare(command) for command in COMMANDS]
    idle = [pattern for pattern in patterns if not any(re.fullmatch(pattern, text) for text in words)]
    idle += [start for start in starts if not any(re.match(start, text) for text in words)]
    assert idle == []
    typed = {command.program for command in COMMANDS if command_table.typed(command)}
    assert sorted(command_table.PROGRAMS - typed) == []
    assert sorted(set(command_table.SCENES) - {command.page for command in COMMANDS}) == []
