"""`accelshare node-labels`: the flags.

Belongs here: from argv to values, and printing. Never: rules.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from accelshare.terminal import echo_line

_file = click.Path(exists=True, dir_okay=False, path_type=Path)
_LABEL = re.compile(r"([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?=[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


def _labels(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    for value in values:
        if not _LABEL.fullmatch(value):
            raise click.BadParameter(f"{value!r} is not key=value, such as sharing=true")
    return dict(value.split("=", 1) for value in values)


@click.group(no_args_is_help=True)
def node_labels() -> None:
    """Label nodes that share their cards, and take those labels away again."""


@node_labels.command(short_help="Give labels to nodes.")
@click.argument("names", nargs=-1, required=True, metavar="NODE...")
@click.option("--label", "labels", multiple=True, required=True, callback=_labels, metavar="KEY=VALUE", help="Repeatable.")
@click.option("--kubeconfig", type=_file, help="How to reach the API server. Default: as for the extender.")
@click.option("--context", help="The kubeconfig's context to use.")
def apply(names: tuple[str, ...], labels: dict[str, str], kubeconfig: Path | None, context: str | None) -> None:
    """Give the labels to NODE..., and take labels that an earlier call gave from all other nodes. Twice is once."""
    _change(labels, names, kubeconfig, context)


@node_labels.command(short_help="Take away the labels that apply gave.")
@click.option("--kubeconfig", type=_file, help="How to reach the API server. Default: as for the extender.")
@click.option("--context", help="The kubeconfig's context to use.")
def remove(kubeconfig: Path | None, context: str | None) -> None:
    """Take away every label that apply gave. A label that was there before, or that somebody changed since, stays."""
    _change({}, (), kubeconfig, context)


def _change(labels: Mapping[str, str], names: Sequence[str], kubeconfig: Path | None, context: str | None) -> None:
    from accelshare.install.cluster.node_labels import applying
    from accelshare.install.cluster.node_labels.marks import ForeignLabelError
    from accelshare.kube import config
    from accelshare.kube.client import Client
    from accelshare.kube.errors import KubeError

    async def run() -> list[str]:
        async with Client(config.load(kubeconfig, context=context), user_agent="accelshare-node-labels") as client:
            return await applying.apply(client, labels, names)

    try:
        lines = asyncio.run(run())
    except (KubeError, applying.UnknownNodesError, ForeignLabelError) as error:
        raise click.ClickException(str(error)) from error
    for line in lines or ["unchanged"]:
        echo_line(line)
