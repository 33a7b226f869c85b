"""`accelshare profile`: lists, shows and checks vendor profiles.

Belongs here: arguments, printing, and profiles as TOML, JSON and a table. Never: rules about profiles.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import click

from accelshare.help_pages import HelpGroup
from accelshare.options import profiles_option
from accelshare.terminal import echo, padded, visible_json, width
from accelshare.vendors import catalog
from accelshare.vendors.layers import survey
from accelshare.vendors.profile import Profile
from accelshare.vendors.validation import to_data

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_DOUBT = "  # unverified"


def as_json(profile: Profile) -> str:
    """Every value in force, as JSON."""
    return visible_json(json.dumps(to_data(profile), indent=2, ensure_ascii=False))


def as_toml(profile: Profile) -> str:
    """Every value in force, as a complete profile file; unverified values are marked."""
    return "\n".join(_toml_lines(to_data(profile), set(profile.unverified))) + "\n"


def as_table(profiles: Iterable[Profile]) -> str:
    """One line per profile, in columns."""
    rows: list[tuple[str, ...]] = [("NAME", "NOUN", "MEMORY", "WHOLE", "URL PREFIX", "TITLE")]
    for profile in profiles:
        cells = (
            profile.name,
            profile.noun,
            profile.resources.memory,
            profile.resources.whole,
            profile.http.prefix,
            profile.title,
        )
        rows.append(tuple(cell or "-" for cell in cells))
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(padded, row, widths)).rstrip() for row in rows)
    return "\n".join(lines) + "\n"


def _toml_lines(data: Mapping[str, object], doubts: set[str]) -> Iterator[str]:
    tables = {key: value for key, value in data.items() if isinstance(value, Mapping)}
    for key, value in data.items():
        if key not in tables:
            yield f"{key} = {_toml_value(value)}{_DOUBT if key in doubts else ''}"
    for section, table in tables.items():
        yield from _section(section, table, doubts)


def _section(path: str, table: Mapping[str, object], doubts: set[str]) -> Iterator[str]:
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    # A section without values is not written, unless it is itself unverified.
    if len(inner) < len(table) or path in doubts:
        yield ""
        yield f"[{path}]{_DOUBT if path in doubts else ''}"
    for key, value in table.items():
        if key not in inner:
            yield f"{_toml_key(key)} = {_toml_value(value)}{_DOUBT if f'{path}.{key}' in doubts else ''}"
    for key, value in inner.items():
        yield from _section(f"{path}.{key}", value, doubts)


def _toml_key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else json.dumps(key)


def _toml_value(value: object) -> str:
    if isinstance(value, list):
        entries = [_toml_value(entry) for entry in value]
        one_line = "[" + ", ".join(entries) + "]"
        return one_line if len(one_line) <= 100 else "[\n" + "".join(f"  {entry},\n" for entry in entries) + "]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml_key(key)} = {_toml_value(inner)}" for key, inner in value.items()) + " }"
    # Strings, numbers and booleans are spelled alike in JSON and TOML, as long as strings hold no control characters.
    return visible_json(json.dumps(value, ensure_ascii=False))


def profile_names(context: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
    """The names that a shell proposes. It never raises: a shell that completes shows no error."""
    try:
        profiles = catalog.load(context.params.get("directories") or ())
    except Exception:
        return []
    return [each.name for each in profiles if each.name.startswith(prefix)]


@click.group(cls=HelpGroup, no_args_is_help=True)
def profile() -> None:
    """List, show and check vendor profiles."""


@profile.command("list", examples=[("--profiles my-profiles", "with profiles of your own")])
@profiles_option
def list_profiles(directories: Sequence[Path]) -> None:
    """List the profiles in force."""
    echo(as_table(catalog.load(directories)), nl=False)


@profile.command(
    short_help="Show every value of one profile.", examples=[("nvidia", "as TOML"), ("kunlun -o json", "for programs")]
)
@click.argument("name", shell_complete=profile_names)
@click.option("-o", "--output", type=click.Choice(["toml", "json"]), default="toml", show_default=True, help="How to write it.")
@profiles_option
def show(name: str, output: str, directories: Sequence[Path]) -> None:
    """Show every value of profile NAME in force, defaults and overrides included.

    Values that no source confirms are marked "unverified"; set them in a file of your own that extends the profile.
    """
    chosen = catalog.load(directories)[name]
    echo(as_json(chosen) if output == "json" else as_toml(chosen).rstrip("\n"))


@profile.command(short_help="Check profile files of your own.", examples=[("my-vendor.toml", "prints all problems at once")])
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@profiles_option
def check(files: Sequence[Path], directories: Sequence[Path]) -> None:
    """Check profile files, as if FILE... lay together in one more --profiles directory.

    Prints "FILE: ok", or all problems; the exit code is then 1.
    """
    layers, unread = catalog.read_layers(directories)
    own, unread_own = catalog.read_files([(str(file), file) for file in files])
    # A file that is also in one of the directories was read twice; its problems are reported once.
    problems = tuple(dict.fromkeys((*unread, *unread_own, *survey([*layers, own]).problems)))
    for name in dict.fromkeys(map(str, files)):
        wrong = [problem for problem in problems if problem.file == name]
        echo("\n".join(map(str, wrong)) if wrong else f"{name}: ok")
    for problem in problems:
        if problem.file not in map(str, files):
            echo(str(problem))
    if problems:
        raise click.exceptions.Exit(1)
