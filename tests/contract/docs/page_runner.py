"""Runs the commands of a docs page from top to bottom and compares their output with the page.

Belongs here: running and comparing. Never: setting up what the commands need.
"""

import asyncio
import difflib
import re
from collections.abc import Iterable, Mapping

from tests.contract.docs import command_table
from tests.contract.docs.machine import Done, Job, Machine
from tests.contract.docs.pages import Command

WHAT_TO_DO = (
    "mend the page if the command is wrong; else set the scene that it needs in tests/contract/docs/{scene}, "
    "or give it a row in tests/contract/docs/command_table.py"
)
CUT = "…"  # a line of the page that stands for any number of lines


class PageRunner:
    """Runs commands on one machine; `values` replace names and ports that a reader would choose."""

    def __init__(self, machine: Machine, values: Mapping[str, str] | None = None) -> None:
        self.machine = machine
        self._values = dict(values or {})
        self._serving: dict[str, Job] = {}
        self.played: list[tuple[Command, Done]] = []

    async def run(self, commands: Iterable[Command]) -> None:
        """Run all commands but those that another test runs or that cannot run here."""
        await self.type_all(command for command in commands if command_table.typed(command))

    async def type_all(self, commands: Iterable[Command]) -> None:
        """In a thread, so that servers in this process keep answering."""
        for command in commands:
            await asyncio.to_thread(self._type, command)

    async def end(self) -> None:
        """Stop the servers that the page started; each must end with 0."""
        for job in (self._serving.pop(program) for program in list(self._serving)):
            code = await asyncio.to_thread(job.end, "TERM")
            assert code == 0, f"{job.line}: ended with {code}\n{''.join(job.printed())}"

    def out(self, words: str) -> str:
        """The output of the last command that begins with these words."""
        return next(done.out for command, done in reversed(self.played) if command.words.startswith(words))

    def _type(self, command: Command) -> None:
        words = self._in_this_scene(command.words)
        todo = WHAT_TO_DO.format(scene=command_table.SCENES.get(command.page, "a file of its own"))
        if ready := command_table.sign(command_table.SERVERS, command):
            program = " ".join(words.split()[:2])
            if program in self._serving:  # the page shows another way to start the same
                assert self._serving.pop(program).end("TERM") == 0
            self._serving[program] = self.machine.begin(words)
            self._serving[program].until(ready, f"{command}; {todo}")
        elif first := command_table.sign(command_table.WATCHES, command):
            job = self.machine.begin(words)
            job.until(first, f"{command}; {todo}")
            assert job.end("INT") in (0, 130), command
        else:
            done = self.machine.type(words)
            expected = command_table.code(command)
            assert done.code == expected, f"{command}\nended with {done.code}, not {expected}; {todo}\n{done.out}{done.err}"
            if command.shown:
                self._compare(command, done)
            self.played.append((command, done))

    def _compare(self, command: Command, done: Done) -> None:
        shown, printed = _lines(command.shown), _lines((done.err + done.out).splitlines())
        pattern = "".join("(?:.*\n)*" if line == CUT else f"{re.escape(line)}\n" for line in shown)
        difference = "\n".join(difflib.unified_diff(shown, printed, "the page shows", "it prints", lineterm=""))
        assert re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)), f"{command}\n{difference}"

    def _in_this_scene(self, words: str) -> str:
        for name, value in self._values.items():
            words = re.sub(name, lambda _found, value=value: value, words)  # type: ignore[misc]
        return words


def _lines(lines: Iterable[str]) -> list[str]:
    """As a page can hold them: without blanks at their ends. How old a pod is, and which of equal cards it got, may differ."""
    kept = [re.sub(r"\b(\d+[dhms])+$", "AGE", re.sub(r"^(gcu|nvidia)\d$", r"\1N", line.rstrip())) for line in lines]
    while kept and not kept[-1]:
        kept.pop()
    return kept
