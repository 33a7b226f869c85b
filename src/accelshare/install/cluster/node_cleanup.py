"""`accelshare node-cleanup`: remove what agents wrote on Node objects, at the end of an installation.

Belongs here: ending the agents, then removing the inventory annotation and the amounts in the status of their nodes.
Never: labels (`node_labels.py`), pods and their records.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from accelshare.help_pages import HelpGroup
from accelshare.install.commands import errors_as_messages, with_client
from accelshare.kube import paths
from accelshare.kube.client import Client
from accelshare.kube.errors import NotFound
from accelshare.kube.patches import annotate_node, remove_capacity
from accelshare.options import FloatRange, kubeconfig_options, profiles_option
from accelshare.terminal import echo_line
from accelshare.vendors.catalog import Catalog, load
from accelshare.wire import assignment, inventory, resizing
from accelshare.wire.decoding import UnreadableError
from accelshare.wire.objects import Node, node_decoder, pod_decoder
from accelshare.wire.pods import AGENT_LABEL

_POLL_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class AgentData:
    """What an agent wrote on one node; `unknown` are vendors whose resources no profile names."""

    node: str
    amounts: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        removed = ", ".join(("inventory", *self.amounts))
        kept = tuple(f"node {self.node}: no profile names {vendor}; its amounts stay" for vendor in self.unknown)
        return (f"node {self.node}: removed {removed}", *kept)


def resources(catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """The resource names of each vendor's amounts."""
    return {
        profile.name: tuple(
            name for name in (profile.resources.count, profile.resources.memory, profile.resources.whole) if name is not None
        )
        for profile in catalog
    }


def find(node: Node, known: Mapping[str, Sequence[str]]) -> AgentData | None:
    """What to remove from this node; None if no agent ever wrote on it."""
    text = (node.metadata.annotations or {}).get(inventory.KEY)
    if text is None:
        return None
    try:
        vendors = sorted(inventory.entries_of(text))
    except UnreadableError:
        vendors = []  # the annotation itself still shows that an agent wrote here
    shown = {**(node.status.capacity or {}), **(node.status.allocatable or {})} if node.status else {}
    names = [name for vendor in vendors for name in known.get(vendor, ())]
    return AgentData(
        node=node.metadata.name,
        amounts=tuple(name for name in names if name in shown),
        unknown=tuple(vendor for vendor in vendors if vendor not in known),
    )


async def remove_agent_data(
    client: Client,
    known: Mapping[str, Sequence[str]],
    *,
    namespace: str,
    daemon_set: str | None,
    wait_s: float,
    say: Callable[[str], None],
) -> None:
    """Delete the DaemonSet, wait for its agents to end, then clean every node. Names agents that do not end in time."""
    if daemon_set is not None:
        with contextlib.suppress(NotFound):
            await client.request("DELETE", paths.daemon_set(namespace, daemon_set))
            say(f"DaemonSet {namespace}/{daemon_set}: deleted")
    for node in await _running_agents(client, namespace, wait_s):
        say(f"node {node}: its agent did not end within {wait_s:g} s; if it still runs, it writes again")
    nodes = [node_decoder.decode(raw) async for page in client.pages("/api/v1/nodes") for raw in page.items]
    written = [data for node in nodes if (data := find(node, known)) is not None]
    for data in written:
        for line in await _clean(client, data):
            say(line)
    if not written:
        say("no node has data of an agent")


async def _running_agents(client: Client, namespace: str, wait_s: float) -> list[str]:
    """The nodes whose agents still run, or are terminating, after the wait."""
    deadline = time.monotonic() + wait_s
    params = {"labelSelector": f"{AGENT_LABEL}=true"}
    while True:
        pages = client.pages(paths.pods(namespace), params=params)
        pods = [pod_decoder.decode(raw) async for page in pages for raw in page.items]
        nodes = sorted({pod.spec.node_name for pod in pods if pod.spec.node_name})
        if not nodes or time.monotonic() >= deadline:
            return nodes
        await asyncio.sleep(_POLL_S)


async def _clean(client: Client, data: AgentData) -> tuple[str, ...]:
    try:
        # The annotation goes last: a repeated run finds the node by it.
        if data.amounts:
            await remove_capacity(client, data.node, data.amounts)
        await annotate_node(client, data.node, {inventory.KEY: None, assignment.CORRECTED: None, resizing.APPLIED: None})
    except NotFound:  # autoscalers remove nodes at any moment
        return (f"node {data.node}: it has left the cluster in the meantime",)
    return data.lines


@click.group(cls=HelpGroup, no_args_is_help=True)
def node_cleanup() -> None:
    """Remove what agents wrote on their nodes."""


@node_cleanup.command(
    short_help="Remove what agents wrote on nodes.", examples=[("--daemonset accelshare-agent", "after the agents have ended")]
)
@click.option("-n", "--namespace", default="kube-system", show_default=True, help="Namespace of the agents.")
@click.option("--daemonset", "daemon_set", metavar="NAME", help="Delete this DaemonSet of agents first.")
@click.option("--wait-s", type=FloatRange(0, 3600), default=120.0, show_default=True, help="How long to wait for agents to end.")
@kubeconfig_options
@profiles_option
@errors_as_messages
def remove(
    namespace: str,
    daemon_set: str | None,
    wait_s: float,
    kubeconfig: Path | None,
    context: str | None,
    directories: tuple[Path, ...],
) -> None:
    """Wait until no agent runs, then remove inventory and amounts from every node, at the end of an installation.

    Pods and their records stay unchanged.
    """
    known = resources(load(directories))
    with_client(
        kubeconfig,
        context,
        lambda client: remove_agent_data(client, known, namespace=namespace, daemon_set=daemon_set, wait_s=wait_s, say=echo_line),
        user_agent="accelshare-node-cleanup",
    )
