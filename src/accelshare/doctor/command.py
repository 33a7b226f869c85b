"""`accelshare doctor`: its options, progress and output.

Belongs here: from argv to printed findings and the exit code. Never: a check.
"""

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from accelshare.help_pages import HelpCommand
from accelshare.options import FloatRange, kubeconfig_options, output_option, profiles_option
from accelshare.terminal import echo, echo_line

if TYPE_CHECKING:
    from accelshare.doctor.live_cluster import LiveCluster
    from accelshare.kube.client import Client
    from accelshare.vendors.catalog import Catalog

PATIENCE_S: Final = 2.0  # a faster run prints no progress


class _Unreadable(click.ClickException):
    exit_code = 2


@click.command(
    cls=HelpCommand,
    short_help="Name what is wrong in a running cluster, with the fix.",
    examples=[("", "what is wrong, and how to mend it"), ("-o json", "for programs")],
)
@output_option
@kubeconfig_options
@click.option(
    "--patience",
    "patience_s",
    type=FloatRange(0, 86_400),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Pods that wait for less than this are not judged.",
)
@profiles_option
def doctor(output: str, kubeconfig: Path | None, context: str | None, patience_s: float, directories: Sequence[Path]) -> None:
    """Examine accelshare in a running cluster: agents, inventories, kube-scheduler, certificates, versions, waiting pods.

    Nothing is written. The exit code is 0 if nothing is wrong, 1 if there are findings, 2 if the cluster cannot be read.
    """
    from accelshare import __version__
    from accelshare.doctor.checks import CHECKS, examine
    from accelshare.doctor.findings import as_json, as_text
    from accelshare.doctor.live_cluster import NODES, PODS
    from accelshare.install.commands import with_client
    from accelshare.install.preflight.findings import counted
    from accelshare.kube.errors import KubeError
    from accelshare.vendors import catalog

    profiles = catalog.load(directories)
    try:
        live = with_client(
            kubeconfig, context, lambda client: _read(client, profiles, patience_s), user_agent=f"accelshare-doctor/{__version__}"
        )
    except KubeError as error:
        raise _Unreadable(f"the cluster cannot be read: {error}") from error
    findings = examine(live)
    looked_at = f"{len(CHECKS)} checks of {counted(len(live.nodes), 'node')} and {counted(len(live.pods), 'pod')}"
    echo(as_json(findings, live.unread) if output == "json" else as_text(findings, live.unread, looked_at), nl=False)
    if findings:
        raise click.exceptions.Exit(1)
    if live.unread.keys() & {NODES, PODS}:
        raise click.exceptions.Exit(2)


async def _read(client: "Client", profiles: "Catalog", patience_s: float) -> "LiveCluster":
    from datetime import UTC, datetime, timedelta

    from accelshare.doctor.reading import read

    doing = ["the cluster"]
    progress = asyncio.create_task(_progress(doing)) if sys.stderr.isatty() else None
    try:
        now, patience = datetime.now(UTC), timedelta(seconds=patience_s)
        return await read(client, profiles, now=now, patience=patience, say=doing.append)
    finally:
        if progress is not None:
            progress.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await progress


async def _progress(doing: Sequence[str]) -> None:
    """Every few seconds, what is being read."""
    while True:
        await asyncio.sleep(PATIENCE_S)
        echo_line(f"reading {doing[-1]} …", err=True)
