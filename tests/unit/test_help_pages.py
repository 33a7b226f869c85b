"""Help pages: flags in groups, an example for each command, and suggestions for mistyped words."""

import shlex
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from accelshare import cli
from accelshare.help_pages import HelpCommand, group_of


def commands(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every command that does something, with its name."""
    if not isinstance(command, click.Group):
        yield context.command_path, command, context
        return
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from commands(found, click.Context(found, info_name=name, parent=context))


ALL = list(commands(cli.accelshare, click.Context(cli.accelshare, info_name="accelshare", help_option_names=["-h", "--help"])))


@pytest.mark.parametrize(("name", "command", "context"), ALL, ids=[name for name, _, _ in ALL])
def test_a_help_page_has_examples_that_the_command_accepts(name: str, command: click.Command, context: click.Context) -> None:
    assert isinstance(command, HelpCommand), f"{name}: @click.command(cls=HelpCommand, examples=[…])"
    assert command.examples, f"{name}: it has no example"
    page = command.get_help(context)
    for arguments, what in command.examples:
        words = shlex.split(arguments.partition(">")[0])
        command.make_parser(context).parse_args(words)  # raises if there is no such flag
        assert f"  {name} {arguments}".rstrip() in page
        assert f"# {what}\n" in f"{page}\n"


@pytest.mark.parametrize(("name", "command", "context"), ALL, ids=[name for name, _, _ in ALL])
def test_many_flags_are_in_groups(name: str, command: click.Command, context: click.Context) -> None:
    flags = [parameter for parameter in command.get_params(context) if isinstance(parameter, click.Option)]
    titles = {group_of(flag) for flag in flags}
    assert len(flags) < 6 or len(titles) > 1, f"{name}: {len(flags)} flags and the groups {titles}"
    page = command.get_help(context)
    for flag in flags:
        assert page.count(f"{flag.opts[-1]} ") + page.count(f"{flag.opts[-1]}\n") >= 1
    for title in titles:
        assert f"\n{title}:\n" in page


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        (["inspct"], "Did you mean 'inspect'?"),
        (["profile", "lst"], "Did you mean 'list'?"),
        (["inspect", "--wach"], "Did you mean '--watch'?"),
        (["certificates", "stat"], "Did you mean 'status'?"),
    ],
)
def test_a_mistyped_word_gets_a_suggestion(words: list[str], suggestion: str) -> None:
    result = CliRunner().invoke(cli.accelshare, words)
    assert result.exit_code == 2
    # click of another version may have other quotes.
    assert suggestion.replace("'", "") in result.stderr.replace("'", "")


def test_a_word_that_is_like_no_other_gets_none() -> None:
    result = CliRunner().invoke(cli.accelshare, ["zzz"])
    assert result.exit_code == 2
    assert "No such command 'zzz'." in result.stderr
    assert "Did you mean" not in result.stderr
