"""`accelshare certificates`: the flags.

Belongs here: from argv to values, and printing. Never: rules.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from accelshare.terminal import echo_line

if TYPE_CHECKING:
    from accelshare.install.certificates.keeping import Names
    from accelshare.install.certificates.renewal import Lives
    from accelshare.kube.client import Client

T = TypeVar("T")
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
_file = click.Path(exists=True, dir_okay=False, path_type=Path)


def _together(*options: Decorator) -> Decorator:
    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


# The Secrets: every command here, and scheduler-config manage.
secret_options = _together(
    click.option("--ca-secret", default="accelshare-ca", show_default=True, help="Secret with the CA and its key."),
    click.option("--extender-secret", default="accelshare-extender-tls", show_default=True, help="Secret of the extender."),
    click.option("--scheduler-secret", default="accelshare-scheduler-tls", show_default=True, help="Secret of kube-scheduler."),
)
# What is made: certificates ensure, and scheduler-config manage.
making_options = _together(
    click.option("--service", default="accelshare-extender", show_default=True, help="The extender's Service."),
    click.option("--also", multiple=True, metavar="NAME_OR_IP", help="One more name of the extender; repeatable."),
    click.option("--ca-days", type=click.FloatRange(0, min_open=True), default=3650.0, show_default=True, help="A CA's life."),
    click.option("--leaf-days", type=click.FloatRange(0, min_open=True), default=90.0, show_default=True, help="The others'."),
)
_cluster_options = _together(
    click.option("--namespace", default="kube-system", show_default=True, help="Where the Secrets are."),
    click.option("--kubeconfig", type=_file, help="How to reach the API server. Default: as for the extender."),
    click.option("--context", help="The kubeconfig's context to use."),
)


def lives_from(options: dict[str, Any]) -> "Lives":
    from datetime import timedelta

    from accelshare.install.certificates.renewal import Lives

    return Lives(timedelta(days=options["ca_days"]), timedelta(days=options["leaf_days"]))


def names_from(options: dict[str, Any]) -> "Names":
    from accelshare.install.certificates.keeping import Names

    keys = ("namespace", "service", "ca_secret", "extender_secret", "scheduler_secret", "server_name", "also")
    return Names(**{key: options[key] for key in keys if key in options})


@click.group(no_args_is_help=True)
def certificates() -> None:
    """Make, renew and show the certificates between kube-scheduler and the extender."""


def _in_words(command: Callable[..., Any]) -> Callable[..., Any]:
    """Errors of this room and of the cluster are all there is to say; the exit code is 1."""

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> Any:
        from accelshare.install.certificates.problems import CertificateError
        from accelshare.kube.errors import KubeError

        try:
            return command(*arguments, **options)
        except (CertificateError, KubeError) as error:
            raise click.ClickException(str(error)) from error

    return run


@certificates.command(short_help="Make what is missing, renew what is due.")
@secret_options
@making_options
@click.option("--server-name", default="accelshare-extender", show_default=True, help="A name that the server always has.")
@_cluster_options
@_in_words
def ensure(**options: Any) -> None:
    """Make the CA and a certificate for each side, or renew those with a third of their life left. Twice is once."""
    from datetime import UTC, datetime

    from accelshare.install.certificates import keeping

    lives, names = lives_from(options), names_from(options)
    said = _with_client(options, lambda client: keeping.ensure(client, names, now=datetime.now(UTC), lives=lives))
    for line in said or ["unchanged"]:
        echo_line(line)


@certificates.command(short_help="Say until when they last.")
@secret_options
@_cluster_options
@_in_words
def status(**options: Any) -> None:
    """Print each certificate with its end. The exit code is 1 if one is missing, unreadable or has expired."""
    from datetime import UTC, datetime

    from accelshare.install.certificates import showing

    names = names_from(options)
    lines = _with_client(options, lambda client: showing.lines(client, names, now=datetime.now(UTC)))
    for line in lines:
        echo_line(line.text)
    if not all(line.good for line in lines):
        raise click.exceptions.Exit(1)


@certificates.command(short_help="Take the Secrets away.")
@secret_options
@_cluster_options
@_in_words
def remove(**options: Any) -> None:
    """Take the Secrets away that accelshare made; for the end of an installation."""
    from accelshare.install.certificates import keeping

    names = names_from(options)
    for line in _with_client(options, lambda client: keeping.remove(client, names)) or ["nothing to remove"]:
        echo_line(line)


def _with_client(options: dict[str, Any], ask: "Callable[[Client], Awaitable[T]]") -> T:
    from accelshare.kube import config
    from accelshare.kube.client import Client

    async def run() -> T:
        cluster = config.load(options["kubeconfig"], context=options["context"])
        async with Client(cluster, user_agent="accelshare-certificates") as client:
            return await ask(client)

    running: Coroutine[Any, Any, T] = run()
    return asyncio.run(running)
