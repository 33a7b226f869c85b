"""The options that `inspect` and `explain` share: which cluster, namespace and profiles.

Belongs here: click options. Never: what they are used for.
"""

from collections.abc import Callable

import click

from accelshare.help_pages import Command, grouped
from accelshare.inspect_cli.completion import namespaces
from accelshare.kube import paths
from accelshare.options import kubeconfig_options, profiles_option


def checked_namespace(value: str) -> str:
    """Refuse a value that cannot be the name of a namespace."""
    try:
        paths.pods(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return value


def _namespace(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """An empty value is as none, as for kubectl."""
    return checked_namespace(value) if value else None


def cluster_options(namespace_help: str) -> Callable[[Command], Command]:
    """--kubeconfig, --context, -n and --profiles."""

    def decorate(command: Command) -> Command:
        for option in (
            profiles_option,
            grouped(
                "Cluster",
                click.option(
                    "-n", "--namespace", metavar="NAME", shell_complete=namespaces, callback=_namespace, help=namespace_help
                ),
            ),
            kubeconfig_options,
        ):
            command = option(command)
        return command

    return decorate
