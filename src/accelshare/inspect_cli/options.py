"""The flags that every command of this room has: which cluster, which profiles.

Belongs here: click options. Never: what is done with them.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import click

from accelshare.inspect_cli.completing import namespaces
from accelshare.kube import paths
from accelshare.vendors.command import profiles_option

Command: TypeAlias = Callable[..., Any]
_file = click.Path(exists=True, dir_okay=False, path_type=Path)


def _namespace(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """What cannot be a namespace cannot be asked for either."""
    try:
        if value:
            paths.pods(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return value


def cluster_options(namespace_help: str) -> Callable[[Command], Command]:
    """--kubeconfig, --context, -n and --profiles."""

    def decorate(command: Command) -> Command:
        for option in (
            profiles_option,
            click.option(
                "-n", "--namespace", metavar="NAME", shell_complete=namespaces, callback=_namespace, help=namespace_help
            ),
            click.option("--context", metavar="NAME", help="The kubeconfig's context to use."),
            click.option("--kubeconfig", type=_file, help="How to reach the API server. Default: $KUBECONFIG, ~/.kube/config."),
        ):
            command = option(command)
        return command

    return decorate
