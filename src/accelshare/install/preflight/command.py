"""`accelshare preflight`: its options and output.

Belongs here: from argv to printed findings. Never: a check.
"""

from collections.abc import Sequence
from pathlib import Path

import click

from accelshare.help_pages import HelpCommand
from accelshare.install.commands import with_client
from accelshare.install.preflight.checks import NAMES
from accelshare.kube import paths
from accelshare.options import kubeconfig_options, output_option, profiles_option
from accelshare.terminal import echo


def _namespace(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    try:
        paths.namespace(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return value


def _units(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    for value in values:
        if not value.partition("=")[1]:
            raise click.BadParameter(f"{value!r} is not VENDOR=UNIT, such as acme=GiB")
    return dict(value.split("=", 1) for value in values)


@click.command(
    cls=HelpCommand,
    short_help="Check whether a cluster is ready for accelshare.",
    examples=[("", "every check"), ("--namespace accelshare -o json", "for programs")],
)
@click.option(
    "-n", "--namespace", default="kube-system", show_default=True, callback=_namespace, help="Namespace of the installation."
)
@output_option
@kubeconfig_options
@click.option("--only", type=click.Choice(NAMES), multiple=True, help="Run only this check; repeatable. Default: all.")
@click.option(
    "--memory-unit",
    "units",
    multiple=True,
    callback=_units,
    metavar="VENDOR=UNIT",
    help="The memory unit that you want to use; a problem while pods use another one. Empty: the profile's unit; repeatable.",
)
@profiles_option
def preflight(
    namespace: str,
    output: str,
    kubeconfig: Path | None,
    context: str | None,
    only: Sequence[str],
    units: dict[str, str],
    directories: Sequence[Path],
) -> None:
    """Check a cluster before an install: versions, runtimes, rights, kube-scheduler, labels, ports, other systems, pods.

    Nothing is written. The exit code is 1 if there is a problem, or if the API server does not answer.
    """
    from accelshare import __version__
    from accelshare.install.preflight.checks import chosen, findings, parts
    from accelshare.install.preflight.checks.control_plane import needed_rights
    from accelshare.install.preflight.findings import as_json, as_text, ready
    from accelshare.install.preflight.snapshot import read
    from accelshare.kube.errors import KubeError
    from accelshare.vendors import catalog

    if "memory-units" in only and not units:
        raise click.UsageError("--only memory-units needs --memory-unit VENDOR=UNIT")
    profiles = catalog.load(directories)
    checks = chosen(only, units)

    rights = needed_rights(namespace)
    try:
        snapshot = with_client(
            kubeconfig,
            context,
            lambda client: read(client, parts(checks), rights),
            user_agent=f"accelshare-preflight/{__version__}",
        )
    except KubeError as error:
        raise click.ClickException(f"the cluster cannot be checked: {error}") from error
    results = findings(checks, snapshot, profiles)
    echo(as_json(results) if output == "json" else as_text(results), nl=False)
    if not ready(results):
        raise click.exceptions.Exit(1)
