"""`accelshare explain [POD]`: why a pod waits, or which cards it has and why; without a name, every pod that waits.

Belongs here: arguments, reading the pods, colours. Never: the reasons (report/explain.py, report/waiting.py).
"""

import os
import shutil
import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from accelshare.help_pages import HelpCommand, grouped
from accelshare.inspect_cli.colours import coloured, paint
from accelshare.inspect_cli.completion import pods
from accelshare.inspect_cli.options import checked_namespace, cluster_options
from accelshare.ledger.placing import POLICIES
from accelshare.options import default_enforcement_option, output_option

if TYPE_CHECKING:
    from collections.abc import Callable

    from accelshare.inspect_cli.cluster_profiles import ClusterProfiles
    from accelshare.inspect_cli.cluster_reader import ClusterConnection, ClusterSnapshot
    from accelshare.vendors.catalog import Catalog
    from accelshare.wire.pods import PodReader

# As kubectl names the resource: `pod/x`.
POD_PREFIXES: Final = ("pod", "pods", "po")


@click.command(
    cls=HelpCommand,
    short_help="Explain why a pod waits, or why it has its cards.",
    examples=[
        ("", "every pod that waits, with its reason"),
        ("ml/train-7", "one pod"),
        ("train-7 -n ml -o json", "for programs"),
    ],
)
@click.argument("pod", required=False, shell_complete=pods)
@grouped(
    "Output",
    output_option,
    click.option("--all-nodes", is_flag=True, help="Show all nodes. Default: the twenty that are closest to serving the pod."),
)
@grouped(
    "Extender",
    click.option(
        "--policy", type=click.Choice(sorted(POLICIES)), default="binpack", show_default=True, help="The extender's policy."
    ),
    default_enforcement_option,
)
@cluster_options("The pod's namespace. Default: the context's; without POD all namespaces.")
def explain(
    pod: str | None,
    policy: str,
    default_enforcement: str | None,
    all_nodes: bool,
    output: str,
    namespace: str | None,
    **where: Any,
) -> None:
    """Explain why POD waits, node by node: its cards, what is free, what is missing, what would help.

    POD is a name, NAMESPACE/NAME or pod/NAME. If it has its cards: which ones, and why these. Without POD, list every pod that
    waits for cards, with its reason. It reads nodes and pods from the API server and needs no extender.
    """
    from functools import partial

    from accelshare.inspect_cli.cluster_profiles import ClusterProfiles
    from accelshare.inspect_cli.cluster_reader import connect
    from accelshare.inspect_cli.error_messages import errors_for_people
    from accelshare.terminal import echo, visible
    from accelshare.vendors.catalog import load
    from accelshare.wire.pods import PodReader, default_limits

    target = parse_pod(pod, namespace) if pod is not None else None
    catalog = load(where["directories"])
    pod_reader = partial(PodReader, default_limits=default_limits(default_enforcement))
    with errors_for_people(), connect(where["kubeconfig"], where["context"]) as cluster:
        profiles = ClusterProfiles(cluster.client, catalog, where["directories"])
        explainer = _Explainer(cluster, profiles, pod_reader, policy)
        if target is None:
            problems = explainer.all_waiting(namespace, output)
        else:
            most = sys.maxsize if all_nodes else 20
            problems = explainer.one(target.namespace or cluster.namespace, target.name, output, most_nodes=most)
    for problem in problems:
        echo(visible(problem), err=True)


class PodArgument(NamedTuple):
    namespace: str | None
    name: str


def parse_pod(pod: str, namespace: str | None) -> PodArgument:
    """`x`, `pod/x` and `ns/x`. A namespace in the name and another one behind -n is an error."""
    before, _, name = pod.rpartition("/")
    if not before or before in POD_PREFIXES:
        return PodArgument(namespace, name)
    if namespace and namespace != before:
        raise click.UsageError(f"{pod!r} is in namespace {before!r}, and -n is {namespace!r}; give one of them")
    return PodArgument(checked_namespace(before), name)


class _Explainer:
    def __init__(
        self,
        cluster: "ClusterConnection",
        profiles: "ClusterProfiles",
        pod_reader: "Callable[[Catalog], PodReader]",
        policy: str,
    ) -> None:
        self._cluster = cluster
        self._profiles = profiles
        self._pod_reader = pod_reader
        self._policy = POLICIES[policy]
        self._terminal = sys.stdout.isatty()

    def one(self, namespace: str, name: str, output: str, *, most_nodes: int) -> tuple[str, ...]:
        """Explain one pod. Returns the problems of what was read."""
        from accelshare.inspect_cli.explain_objects import get, read
        from accelshare.report.explain import document, text_of
        from accelshare.report.explain import explain as explained
        from accelshare.report.lines import plain
        from accelshare.terminal import echo_painted

        raw = get(self._cluster.client, namespace, name)
        snapshot = self._read()
        seen, details = read(raw, self._pod_reader(snapshot.catalog))
        if seen is not None:
            snapshot.ledger.apply(seen)
        explanation = explained(snapshot.state(), seen, details)
        if output == "json":
            _print_json(document(explanation, details))
        else:
            style = paint if coloured(self._terminal, os.environ) else plain
            echo_painted(text_of(explanation, paint=style, most_nodes=most_nodes))
        return snapshot.problems

    def all_waiting(self, namespace: str | None, output: str) -> tuple[str, ...]:
        """List every pod that waits. Returns the problems of what was read."""
        from accelshare.inspect_cli.cluster_reader import require_namespace
        from accelshare.inspect_cli.screen import widest
        from accelshare.report.lines import plain
        from accelshare.report.tables import tabbed
        from accelshare.report.waiting import as_lines, document, narrow_text
        from accelshare.terminal import echo, echo_painted

        snapshot = self._read()
        waiting = snapshot.waiting_pods()
        if namespace:
            waiting = [pod for pod in waiting if pod.namespace == namespace]
            if not waiting:
                require_namespace(self._cluster.client, namespace)
        if output == "json":
            _print_json(document(waiting))
        elif not waiting:
            echo(f"No pod{f' of namespace {namespace}' if namespace else ''} waits for cards.")
        else:
            table = tabbed(as_lines(waiting))
            columns = shutil.get_terminal_size().columns
            if self._terminal and widest(table) > columns:
                style = paint if coloured(self._terminal, os.environ) else plain
                echo_painted(narrow_text(waiting, columns, paint=style))
            else:
                echo(table, nl=False)
        return snapshot.problems

    def _read(self) -> "ClusterSnapshot":
        from accelshare.inspect_cli.cluster_reader import ClusterReader
        from accelshare.inspect_cli.explain_objects import ConstraintReader

        client, policy = self._cluster.client, self._policy
        return ClusterReader(client, self._profiles, self._pod_reader, policy=policy, constraints=ConstraintReader).read()


def _print_json(value: object) -> None:
    from accelshare.inspect_cli.page import written
    from accelshare.terminal import echo

    echo(written(value, "json"), nl=False)
