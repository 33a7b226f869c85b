"""`accelshare node-labels`: label the nodes that share their cards, and remove those labels again.

The annotation `accelshare.io/labels-added` on each node records which labels accelshare added, so that `remove` takes away only
those. Belongs here: labels and that one annotation. Never: what a label makes a node do, any other field of a node.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click
import msgspec

from accelshare.help_pages import HelpGroup
from accelshare.install.commands import errors_as_messages, with_client
from accelshare.install.errors import ForeignLabel, UnknownNodes
from accelshare.kube import paths
from accelshare.kube.client import Client
from accelshare.kube.errors import NotFound
from accelshare.options import kubeconfig_options
from accelshare.terminal import echo_line
from accelshare.wire.objects import node_decoder

# The labels that accelshare added to this node, as key=value joined by commas.
KEY: Final = "accelshare.io/labels-added"
_MERGE: Final = "application/merge-patch+json"
_LABEL: Final = re.compile(r"([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?=[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class NodeLabels:
    """A node's name, its labels, and those of them that accelshare added."""

    name: str
    labels: Mapping[str, str]
    added: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LabelChange:
    """What to write on one node; None removes a label."""

    node: str
    labels: Mapping[str, str | None] = field(default_factory=dict)
    added: Mapping[str, str] = field(default_factory=dict)
    lines: tuple[str, ...] = ()


def read(name: str, labels: Mapping[str, str] | None, annotations: Mapping[str, str] | None) -> NodeLabels:
    """The labels of one Node object; an annotation that cannot be parsed names no label."""
    text = (annotations or {}).get(KEY, "")
    pairs = (entry.partition("=") for entry in text.split(","))
    return NodeLabels(name, labels or {}, {key: value for key, separator, value in pairs if key and separator})


def annotation(added: Mapping[str, str]) -> str | None:
    """The annotation's text; None removes the annotation."""
    return ",".join(f"{key}={value}" for key, value in sorted(added.items())) or None


def change(node: NodeLabels, wanted: Mapping[str, str]) -> LabelChange | None:
    """The change that gives the node the wanted labels; None if there is nothing to write. Raises ForeignLabel."""
    labels: dict[str, str | None] = {}
    added: dict[str, str] = {}
    lines: list[str] = []
    for key, value in wanted.items():
        current = node.labels.get(key)
        if current is not None and current != value and node.added.get(key) != current:
            raise ForeignLabel(
                f"node {node.name} has the label {key}={current}; it must be {value} or absent: "
                f"kubectl label node {node.name} {key}-"
            )
        if current != value:
            labels[key] = value
            lines.append(f"node {node.name}: added label {key}={value}")
        if current != value or node.added.get(key) == value:
            added[key] = value
    for key, value in node.added.items():
        # A label whose value somebody changed since belongs to them.
        if key not in wanted and node.labels.get(key) == value:
            labels[key] = None
            lines.append(f"node {node.name}: removed label {key}={value}")
    if not labels and added == node.added:
        return None
    return LabelChange(node.name, labels, added, tuple(lines))


async def apply_labels(client: Client, labels: Mapping[str, str], names: Sequence[str]) -> list[str]:
    """Give these nodes these labels, and remove from all other nodes the labels that accelshare added.

    All nodes are checked before the first one is written, so a refusal changes nothing.
    """
    decoded = [node_decoder.decode(raw) async for page in client.pages("/api/v1/nodes") for raw in page.items]
    nodes = [read(node.metadata.name, node.metadata.labels, node.metadata.annotations) for node in decoded]
    unknown = sorted(set(names) - {node.name for node in nodes})
    if unknown:
        known = ", ".join(sorted(node.name for node in nodes)[:20]) or "none"
        raise UnknownNodes(f"the cluster has no node {', '.join(unknown)}; its nodes are {known}")
    changes = [change(node, labels if node.name in names else {}) for node in nodes]
    return [line for each in changes if each is not None for line in await _write(client, each)]


async def _write(client: Client, change: LabelChange) -> tuple[str, ...]:
    metadata = {"labels": dict(change.labels), "annotations": {KEY: annotation(change.added)}}
    body = msgspec.json.encode({"metadata": metadata})
    try:
        await client.request("PATCH", paths.node(change.node), body=body, content_type=_MERGE)
    except NotFound:  # autoscalers remove nodes at any moment
        return (f"node {change.node}: it has left the cluster in the meantime",)
    return change.lines


def _labels(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    for value in values:
        if not _LABEL.fullmatch(value):
            raise click.BadParameter(f"{value!r} is not key=value, such as sharing=true")
    return dict(value.split("=", 1) for value in values)


@click.group(cls=HelpGroup, no_args_is_help=True)
def node_labels() -> None:
    """Label the nodes that share their cards, and remove those labels again."""


@node_labels.command(short_help="Add labels to nodes.", examples=[("--label sharing=true worker-0 worker-1", "two nodes")])
@click.argument("names", nargs=-1, required=True, metavar="NODE...")
@click.option(
    "--label", "labels", multiple=True, required=True, callback=_labels, metavar="KEY=VALUE", help="Label to add; repeatable."
)
@kubeconfig_options
@errors_as_messages
def apply(names: tuple[str, ...], labels: dict[str, str], kubeconfig: Path | None, context: str | None) -> None:
    """Add the labels to NODE..., and remove labels that an earlier call added to other nodes. Safe to repeat."""
    _run(labels, names, kubeconfig, context)


@node_labels.command(short_help="Remove the labels that apply added.", examples=[("", "from every node")])
@kubeconfig_options
@errors_as_messages
def remove(kubeconfig: Path | None, context: str | None) -> None:
    """Remove every label that apply added. A label that existed before, or whose value somebody changed since, stays."""
    _run({}, (), kubeconfig, context)


def _run(labels: Mapping[str, str], names: Sequence[str], kubeconfig: Path | None, context: str | None) -> None:
    lines = with_client(
        kubeconfig, context, lambda client: apply_labels(client, labels, names), user_agent="accelshare-node-labels"
    )
    for line in lines or ["unchanged"]:
        echo_line(line)
