"""`accelshare explain POD`.

Belongs here: arguments, and reading the one pod it is about. Never: the reasons (report/explain.py).
"""

import os
import sys
from typing import Any

import click

from accelshare.inspect_cli.completion import pods
from accelshare.inspect_cli.options import cluster_options
from accelshare.ledger.placing import POLICIES

LOOKS = {"good": "\x1b[32m", "bad": "\x1b[31m", "title": "\x1b[1m"}
AS_BEFORE = "\x1b[0m"


@click.command(short_help="Say why a pod waits, or why it is where it is.")
@click.argument("pod", shell_complete=pods)
@click.option(
    "--policy", type=click.Choice(sorted(POLICIES)), default="binpack", show_default=True, help="The extender's policy."
)
@click.option("--all-nodes", is_flag=True, help="Tell every node; otherwise the twenty nearest to serving it.")
@cluster_options("The pod's namespace. Default: the context's.")
def explain(pod: str, policy: str, all_nodes: bool, namespace: str | None, **where: Any) -> None:
    """Say why POD waits, node by node: which cards, what is free, what is missing, what would make room.

    Of a pod that has its cards: where it sits, and why there. It reads nodes and pods from the API server and needs no extender.
    """
    from accelshare.inspect_cli.cluster_reader import Reader, connect
    from accelshare.inspect_cli.error_messages import told_to_people
    from accelshare.inspect_cli.explain_objects import Beside, find
    from accelshare.report.cluster_state import World
    from accelshare.report.explain import explain as explained
    from accelshare.report.explain import plain, text_of
    from accelshare.terminal import echo_painted
    from accelshare.vendors.catalog import load

    catalog = load(where["directories"])
    with told_to_people(), connect(where["kubeconfig"], where["context"]) as door:
        seen, asking = find(door.client, catalog, namespace or door.namespace, pod)
        beside = Beside()
        book = Reader(door.client, catalog, policy=POLICIES[policy], beside=beside).read()
    if seen is not None:
        book.ledger.apply(seen)
    world = World(book.ledger, catalog, book.told, book.labels, beside.surroundings())
    painted = coloured(sys.stdout.isatty(), os.environ)
    said = text_of(explained(world, seen, asking), paint=paint if painted else plain, most_nodes=sys.maxsize if all_nodes else 20)
    echo_painted(said)


def coloured(terminal: bool, environ: "os._Environ[str] | dict[str, str]") -> bool:
    """Colours only on a terminal that has them, and not where the reader does not want any (https://no-color.org)."""
    return terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def paint(text: str, look: str) -> str:
    return f"{LOOKS[look]}{text}{AS_BEFORE}"
