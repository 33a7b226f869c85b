"""Help pages: flags in groups, examples, and a suggestion for a mistyped command.

Belongs here: classes of commands and groups, and the mark that puts flags into a group. Never: a flag, or what a command does.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import click

Command: TypeAlias = Callable[..., Any]
Decorator: TypeAlias = Callable[[Command], Command]
# (arguments, what they do); the program's name and the command come before them.
Examples: TypeAlias = Sequence[tuple[str, str]]

_OTHERS: Final = "Options"
_groups: Final[WeakKeyDictionary[click.Parameter, str]] = WeakKeyDictionary()


def grouped(title: str, *options: Decorator) -> Decorator:
    """These options under one title, in this order. An option that is in a group already stays there."""

    def decorate(command: Command) -> Command:
        before = len(getattr(command, "__click_params__", ()))
        for option in reversed(options):
            command = option(command)
        for parameter in getattr(command, "__click_params__", ())[before:]:
            _groups.setdefault(parameter, title)
        return command

    return decorate


def group_of(parameter: click.Parameter) -> str:
    return _groups.get(parameter, _OTHERS)


class HelpCommand(click.Command):
    """A command whose help page has its flags in groups, and examples."""

    def __init__(self, *arguments: Any, examples: Examples = (), **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.examples = examples

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                sections.setdefault(group_of(parameter), []).append(record)
        # --help is among the others, which come last.
        for title in sorted(sections, key=lambda title: title == _OTHERS):
            with formatter.section(title):
                formatter.write_dl(sections[title])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        if not self.examples:
            return
        with formatter.section("Examples"):
            lines = [f"{ctx.command_path} {arguments}".rstrip() for arguments, _ in self.examples]
            longest = max(map(len, lines))
            for line, (_, what) in zip(lines, self.examples, strict=True):
                formatter.write(f"{'':>{formatter.current_indent}}{line:<{longest}}  # {what}\n")


class HelpGroup(click.Group):
    """A group of such commands. A mistyped one gets a suggestion."""

    command_class = HelpCommand

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if not ctx.resilient_parsing and args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            from difflib import get_close_matches

            near = get_close_matches(args[0], self.list_commands(ctx), n=1)
            raise click.UsageError(f"No such command {args[0]!r}." + (f" Did you mean {near[0]!r}?" if near else ""), ctx)
        return super().resolve_command(ctx, args)
