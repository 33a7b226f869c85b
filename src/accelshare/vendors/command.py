"""`accelshare profile`: which vendors there are, what is known about one, and whether a file of one's own is right.

Belongs here: arguments and printing. Never: rules about profiles, or how they are written out.
"""

from collections.abc import Sequence
from pathlib import Path

import click

from accelshare.options import profiles_option
from accelshare.terminal import echo
from accelshare.vendors import catalog, rendering
from accelshare.vendors.layers import survey


@click.group(no_args_is_help=True)
def profile() -> None:
    """List, show and check vendor profiles."""


@profile.command("list")
@profiles_option
def list_profiles(directories: Sequence[Path]) -> None:
    """List the profiles in force."""
    echo(rendering.as_table(catalog.load(directories)), nl=False)


@profile.command(short_help="Show every value of one profile.")
@click.argument("name")
@click.option("-o", "--output", type=click.Choice(["toml", "json"]), default="toml", show_default=True, help="How to write it.")
@profiles_option
def show(name: str, output: str, directories: Sequence[Path]) -> None:
    """Show every value of profile NAME in force, defaults and overrides included.

    Values that no source confirms are marked "unverified"; set them in a file of your own that extends the profile.
    """
    chosen = catalog.load(directories)[name]
    echo(rendering.as_json(chosen) if output == "json" else rendering.as_toml(chosen).rstrip("\n"))


@profile.command(short_help="Check profile files of your own.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@profiles_option
def check(files: Sequence[Path], directories: Sequence[Path]) -> None:
    """Check profile files, as if FILE... lay together in one more --profiles directory.

    Prints "FILE: ok", or all problems; the exit code is then 1.
    """
    layers, unread = catalog.read_layers(directories)
    own, unread_own = catalog.read_files([(str(file), file) for file in files])
    # A file that lies in one of the directories as well was read twice; its problems are told once.
    problems = tuple(dict.fromkeys((*unread, *unread_own, *survey([*layers, own]).problems)))
    for name in dict.fromkeys(map(str, files)):
        wrong = [problem for problem in problems if problem.file == name]
        echo("\n".join(map(str, wrong)) if wrong else f"{name}: ok")
    for problem in problems:
        if problem.file not in map(str, files):
            echo(str(problem))
    if problems:
        raise click.exceptions.Exit(1)
