"""Command-line options that several commands share, each declared once.

Belongs here: click options and their types. Never: what a command does with them, or an import that is heavier than click.
"""

import os
from math import isnan
from pathlib import Path
from typing import Any, Final

import click

from accelshare.help_pages import Command, Decorator, grouped

FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)  # an existing file
PATH: Final = click.Path(path_type=Path)  # any path, which need not exist
PROFILES_VARIABLE: Final = "ACCELSHARE_PROFILES"


class FloatRange(click.FloatRange):
    """A number in a range. click's own takes `nan`, which is neither below nor above any bound."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


def together(*options: Decorator) -> Decorator:
    """Several options as one decorator, in the order of the help text."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def address(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[str, int] | None:
    """The callback of an option HOST:PORT; a port alone is on loopback."""
    if value is None:
        return None
    host, colon, port = value.rpartition(":")
    if not (port.isascii() and port.isdigit()) or int(port) > 65535 or (colon and not host):
        raise click.BadParameter(f"{value!r} is not PORT or HOST:PORT, such as 12348, 127.0.0.1:12348 or [::1]:12348")
    return host.strip("[]") or "127.0.0.1", int(port)


def contexts(context: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
    """The contexts that a shell proposes. It never raises: a shell that completes shows no error."""
    import yaml

    from accelshare.terminal import is_visible

    variable = os.environ.get("KUBECONFIG") or str(Path(os.environ.get("HOME", "/")) / ".kube" / "config")
    files = context.params.get("kubeconfig") or variable
    names: set[str] = set()
    for file in str(files).split(os.pathsep):
        try:
            entries = yaml.safe_load(Path(file).read_text(encoding="utf-8"))["contexts"]
            names |= {str(entry["name"]) for entry in entries}
        except Exception:  # noqa: S112  # no such file, or it is no kubeconfig
            continue
    return sorted(name for name in names if name.startswith(prefix) and is_visible(name))


# The API server: the command gets `kubeconfig` and `context`.
kubeconfig_options: Final = grouped(
    "Cluster",
    click.option(
        "--kubeconfig",
        type=FILE,
        metavar="FILE",
        help="Kubeconfig file. Default: $KUBECONFIG, then the pod's ServiceAccount, then ~/.kube/config.",
    ),
    click.option(
        "--context", metavar="NAME", shell_complete=contexts, help="Context of the kubeconfig. Default: the current context."
    ),
)

# Vendor profiles: the command gets `directories`.
profiles_option: Final = grouped(
    "Vendors",
    click.option(
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
    ),
)

# What pods without the annotation accelshare.io/enforcement need: the command gets `default_enforcement`.
default_enforcement_option: Final = click.option(
    "--default-enforcement",
    type=click.Choice(["required", "preferred"]),
    help="Whether pods without the annotation accelshare.io/enforcement need cards with enforced memory limits. "
    "Default: they do not.",
)

output_option: Final = grouped(
    "Output",
    click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Output format."),
)

log_options: Final = grouped(
    "Logging",
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

log_file_options: Final = grouped(
    "Logging",
    click.option("--log-file", type=click.Path(dir_okay=False, path_type=Path), help="Log file. Default: standard error."),
    click.option(
        "--log-file-mib", type=click.IntRange(1, 4096), default=32, show_default=True, help="Rotate the log file at this size."
    ),
    click.option("--log-files", type=click.IntRange(1, 100), default=5, show_default=True, help="Rotated files to keep."),
)
