"""Command-line options that several commands share, each declared once.

Belongs here: click options and their types. Never: what a command does with them, or an import that is heavier than click.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

Command: TypeAlias = Callable[..., Any]
Decorator: TypeAlias = Callable[[Command], Command]

FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)  # an existing file
PATH: Final = click.Path(path_type=Path)  # any path, which need not exist
PROFILES_VARIABLE: Final = "ACCELSHARE_PROFILES"


def together(*options: Decorator) -> Decorator:
    """Several options as one decorator, in the order of the help text."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


# The API server: the command gets `kubeconfig` and `context`.
kubeconfig_options: Final = together(
    click.option(
        "--kubeconfig",
        type=FILE,
        metavar="FILE",
        help="Kubeconfig file. Default: $KUBECONFIG, then the pod's ServiceAccount, then ~/.kube/config.",
    ),
    click.option("--context", metavar="NAME", help="Context of the kubeconfig. Default: the current context."),
)

# Vendor profiles: the command gets `directories`.
profiles_option: Final = click.option(
    "--profiles",
    "directories",
    multiple=True,
    type=click.Path(),
    envvar=PROFILES_VARIABLE,
    # An empty entry of the variable is a stray separator, not the current directory.
    callback=lambda _context, _option, values: tuple(Path(value) for value in values if value),
    metavar="DIR",
    help="Directory with profile files (*.toml) that override or extend the shipped ones; repeatable, the last one wins. "
    f"[env: {PROFILES_VARIABLE}, separated by '{os.pathsep}']",
)

# What pods without the annotation accelshare.io/enforcement need: the command gets `default_enforcement`.
default_enforcement_option: Final = click.option(
    "--default-enforcement",
    type=click.Choice(["required", "preferred"]),
    help="Whether pods without the annotation accelshare.io/enforcement need cards with enforced memory limits. "
    "Default: they do not.",
)

output_option: Final = click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Output format."
)

log_options: Final = together(
    click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
        help="Lowest level that is logged.",
    ),
    click.option(
        "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Format of log lines."
    ),
)

log_file_options: Final = together(
    click.option("--log-file", type=click.Path(dir_okay=False, path_type=Path), help="Log file. Default: standard error."),
    click.option(
        "--log-file-mib", type=click.IntRange(1, 4096), default=32, show_default=True, help="Rotate the log file at this size."
    ),
    click.option("--log-files", type=click.IntRange(1, 100), default=5, show_default=True, help="Rotated files to keep."),
)
