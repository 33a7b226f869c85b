"""`accelshare explain POD`: why a pod waits, or which cards it has and why.

Belongs here: arguments, reading the pod, colours. Never: the reasons (report/explain.py).
"""

import os
import sys
from typing import Any

import click

from accelshare.inspect_cli.completion import pods
from accelshare.inspect_cli.options import cluster_options
from accelshare.ledger.placing import POLICIES
from accelshare.options import default_enforcement_option

STYLES = {"good": "\x1b[32m", "bad": "\x1b[31m", "title": "\x1b[1m"}
AS_BEFORE = "\x1b[0m"


@click.command(short_help="Explain why a pod waits, or why it has its cards.")
@click.argument("pod", shell_complete=pods)
@click.option(
    "--policy", type=click.Choice(sorted(POLICIES)), default="binpack", show_default=True, help="The extender's policy."
)
@default_enforcement_option
@click.option("--all-nodes", is_flag=True, help="Show all nodes. Default: the twenty that are closest to serving the pod.")
@cluster_options("The pod's namespace. Default: the context's.")
def explain(pod: str, policy: str, default_enforcement: str | None, all_nodes: bool, namespace: str | None, **where: Any) -> None:
    """Explain why POD waits, node by node: its cards, what is free, what is missing, what would help.

    If POD has its cards: which ones, and why these. It reads nodes and pods from the API server and needs no extender.
    """
    from accelshare.inspect_cli.cluster_reader import Reader, connect
    from accelshare.inspect_cli.error_messages import errors_for_people
    from accelshare.inspect_cli.explain_objects import ConstraintReader, find
    from accelshare.report.cluster_state import ClusterState
    from accelshare.report.explain import explain as explained
    from accelshare.report.explain import plain, text_of
    from accelshare.terminal import echo, echo_painted, visible
    from accelshare.vendors.catalog import load
    from accelshare.wire.pods import PodReader, default_limits

    catalog = load(where["directories"])
    reader = PodReader(catalog, default_limits=default_limits(default_enforcement))
    with errors_for_people(), connect(where["kubeconfig"], where["context"]) as cluster:
        seen, details = find(cluster.client, reader, namespace or cluster.namespace, pod)
        constraints = ConstraintReader()
        snapshot = Reader(cluster.client, catalog, reader, policy=POLICIES[policy], constraints=constraints).read()
    if seen is not None:
        snapshot.ledger.apply(seen)
    state = ClusterState(snapshot.ledger, catalog, snapshot.inventories, snapshot.labels, constraints.by_node())
    painted = coloured(sys.stdout.isatty(), os.environ)
    text = text_of(
        explained(state, seen, details), paint=paint if painted else plain, most_nodes=sys.maxsize if all_nodes else 20
    )
    echo_painted(text)
    for problem in snapshot.problems:
        echo(visible(problem), err=True)


def coloured(terminal: bool, environ: "os._Environ[str] | dict[str, str]") -> bool:
    """Use colours only on a terminal that has them, and not with NO_COLOR (https://no-color.org)."""
    return terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def paint(text: str, style: str) -> str:
    return f"{STYLES[style]}{text}{AS_BEFORE}"
