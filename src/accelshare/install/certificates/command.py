"""`accelshare certificates`: its options and output.

Belongs here: from argv to values, and printing. Never: rules.
"""

import ipaddress
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from accelshare.help_pages import HelpGroup, grouped
from accelshare.install.commands import errors_as_messages, with_client
from accelshare.options import FloatRange, kubeconfig_options
from accelshare.terminal import echo_line

if TYPE_CHECKING:
    from accelshare.install.certificates.renewal import Lifetimes
    from accelshare.install.certificates.secrets import Names
    from accelshare.kube.client import Client

T = TypeVar("T")

_HOST_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII | re.IGNORECASE)
_LONGEST_HOST_NAME: Final = 253

# The Secrets: every command here, and `scheduler-config manage`.
secret_options = grouped(
    "Secrets",
    click.option("--ca-secret", default="accelshare-ca", show_default=True, help="Secret with the CA and its key."),
    click.option(
        "--extender-secret",
        default="accelshare-extender-tls",
        show_default=True,
        help="Secret with the extender's certificate and key.",
    ),
    click.option(
        "--scheduler-secret",
        default="accelshare-scheduler-tls",
        show_default=True,
        help="Secret with kube-scheduler's certificate and key.",
    ),
)


def _host_names(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse names that no certificate can contain."""
    for value in values:
        try:
            ipaddress.ip_address(value)
        except ValueError:
            if not _HOST_NAME.fullmatch(value) or len(value) > _LONGEST_HOST_NAME:
                raise click.BadParameter(f"{value!r} must be a DNS name, such as extender.example, or an IP address") from None
    return values


# What is created: `certificates ensure` and `scheduler-config manage`.
issuing_options = grouped(
    "Certificates",
    click.option(
        "--service",
        default="accelshare-extender",
        show_default=True,
        help="The extender's Service; the certificate contains its names and address.",
    ),
    click.option(
        "--also",
        multiple=True,
        metavar="NAME_OR_IP",
        callback=_host_names,
        help="Another name or address of the extender; repeatable.",
    ),
    click.option(
        "--ca-days", type=FloatRange(0, 365_000, min_open=True), default=3650.0, show_default=True, help="Lifetime of the CA."
    ),
    click.option(
        "--leaf-days",
        type=FloatRange(0, 365_000, min_open=True),
        default=90.0,
        show_default=True,
        help="Lifetime of the other certificates.",
    ),
)
_cluster_options = grouped(
    "Cluster",
    click.option("--namespace", default="kube-system", show_default=True, help="Namespace of the Secrets."),
    kubeconfig_options,
)


def lifetimes_from(options: dict[str, Any]) -> "Lifetimes":
    from datetime import timedelta

    from accelshare.install.certificates.renewal import Lifetimes

    return Lifetimes(timedelta(days=options["ca_days"]), timedelta(days=options["leaf_days"]))


def names_from(options: dict[str, Any]) -> "Names":
    from accelshare.install.certificates.secrets import Names

    keys = ("namespace", "service", "ca_secret", "extender_secret", "scheduler_secret", "server_name", "also")
    return Names(**{key: options[key] for key in keys if key in options})


@click.group(cls=HelpGroup, no_args_is_help=True)
def certificates() -> None:
    """Create, renew and show the certificates between kube-scheduler and the extender."""


@certificates.command(
    short_help="Create what is missing, renew what is due.", examples=[("--leaf-days 30", "renew every 20 days")]
)
@secret_options
@issuing_options
@click.option(
    "--server-name",
    default="accelshare-extender",
    show_default=True,
    help="A name that the extender's certificate always contains.",
)
@_cluster_options
@errors_as_messages
def ensure(**options: Any) -> None:
    """Create the CA and a certificate for each side, or renew those with a third of their lifetime left. Safe to repeat."""
    from datetime import UTC, datetime

    from accelshare.install.certificates import secrets

    lifetimes, names = lifetimes_from(options), names_from(options)
    messages = _ask(options, lambda client: secrets.ensure(client, names, now=datetime.now(UTC), lifetimes=lifetimes))
    for line in messages or ["unchanged"]:
        echo_line(line)


@certificates.command(short_help="Show when the certificates expire.", examples=[("--namespace accelshare", "of this namespace")])
@secret_options
@_cluster_options
@errors_as_messages
def status(**options: Any) -> None:
    """Print each certificate and when it expires. The exit code is 1 if one is missing, unreadable or expired."""
    from datetime import UTC, datetime

    from accelshare.install.certificates import secrets

    names = names_from(options)
    lines = _ask(options, lambda client: secrets.status(client, names, now=datetime.now(UTC)))
    for line in lines:
        echo_line(line.text)
    if not all(line.good for line in lines):
        raise click.exceptions.Exit(1)


@certificates.command(short_help="Delete the Secrets.", examples=[("", "of the namespace kube-system")])
@secret_options
@_cluster_options
@errors_as_messages
def remove(**options: Any) -> None:
    """Delete the Secrets that accelshare created, at the end of an installation."""
    from accelshare.install.certificates import secrets

    names = names_from(options)
    for line in _ask(options, lambda client: secrets.remove(client, names)) or ["nothing to remove"]:
        echo_line(line)


def _ask(options: dict[str, Any], ask: "Callable[[Client], Awaitable[T]]") -> T:
    return with_client(options["kubeconfig"], options["context"], ask, user_agent="accelshare-certificates")
