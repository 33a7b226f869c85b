"""Agents first, because a living one would write it all again; then their nodes.

Belongs here: the requests and their order. Never: what on a node is ours (finding.py).
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from accelshare.install.cluster.node_cleanup.finding import Traces, find
from accelshare.kube import paths
from accelshare.kube.client import Client
from accelshare.kube.errors import NotFound
from accelshare.kube.inventory import annotate_node, hide_amounts
from accelshare.wire import assignment, inventory
from accelshare.wire.objects import node_decoder, pod_decoder
from accelshare.wire.pods import AGENT_LABEL

LOOK_S: Final = 0.5


async def remove(
    client: Client,
    known: Mapping[str, Sequence[str]],
    *,
    namespace: str,
    daemon_set: str | None,
    wait_s: float,
    say: Callable[[str], None],
) -> None:
    """Nodes as they were before the agents. Where an agent does not end, say because its node is down, that is told."""
    if daemon_set is not None:
        with contextlib.suppress(NotFound):
            await client.request("DELETE", paths.daemon_set(namespace, daemon_set))
            say(f"DaemonSet {namespace}/{daemon_set}: deleted")
    for node in await _still_there(client, namespace, wait_s):
        say(f"node {node}: its agent has not ended within {wait_s:g} s; if it still runs, it writes again")
    nodes = [node_decoder.decode(raw) async for page in client.pages("/api/v1/nodes") for raw in page.items]
    found = [traces for node in nodes if (traces := find(node, known)) is not None]
    for traces in found:
        for line in await _take(client, traces):
            say(line)
    if not found:
        say("no node has anything of an agent")


async def _still_there(client: Client, namespace: str, wait_s: float) -> list[str]:
    deadline = time.monotonic() + wait_s
    while True:
        where = await _agents(client, namespace)
        if not where or time.monotonic() >= deadline:
            return where
        await asyncio.sleep(LOOK_S)


async def _agents(client: Client, namespace: str) -> list[str]:
    """The nodes on which agents are, also those that are just ending."""
    params = {"labelSelector": f"{AGENT_LABEL}=true"}
    pages = client.pages(paths.pods(namespace), params=params)
    pods = [pod_decoder.decode(raw) async for page in pages for raw in page.items]
    return sorted({pod.spec.node_name for pod in pods if pod.spec.node_name})


async def _take(client: Client, traces: Traces) -> tuple[str, ...]:
    try:
        # The annotation last: it is what a second run finds the node by.
        if traces.amounts:
            await hide_amounts(client, traces.node, traces.amounts)
        await annotate_node(client, traces.node, {inventory.KEY: None, assignment.CORRECTED: None})
    except NotFound:  # autoscalers take nodes away at any moment
        return (f"node {traces.node}: it has left the cluster in the meantime",)
    return traces.lines
