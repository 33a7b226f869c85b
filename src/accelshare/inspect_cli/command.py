"""`accelshare inspect`, also under the name of a kubectl plugin: every card and the pods on it.

Belongs here: arguments, which vendors are shown, and in which form. Never: the forms themselves (report/).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from accelshare.inspect_cli.completion import nodes
from accelshare.inspect_cli.options import cluster_options
from accelshare.terminal import echo, visible, visible_json, visible_lines

if TYPE_CHECKING:
    from accelshare.inspect_cli.cluster_reader import ClusterSnapshot
    from accelshare.inspect_cli.usage_reader import ClusterUse, UsageReader
    from accelshare.report.view import NodeRow
    from accelshare.vendors.catalog import Catalog
    from accelshare.vendors.profile import Profile
    from accelshare.wire.usage import NodeUse


def _vendors(_context: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
    from accelshare.vendors.catalog import load

    return [profile.name for profile in load() if profile.name.startswith(prefix)]


@click.command(short_help="Show every card and the pods on it.")
@click.argument("node", required=False, shell_complete=nodes)
@click.option("-d", "--details", is_flag=True, help="Show each pod, node by node.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["wide", "json", "yaml"]),
    help="wide: one line for each card; json and yaml: for programs.",
)
@click.option(
    "--vendor", "vendors", multiple=True, metavar="NAME", shell_complete=_vendors, help="Show only this profile; repeatable."
)
@click.option("--all-vendors", is_flag=True, help="Show every vendor whose cards this cluster has.")
@click.option("-w", "--watch", is_flag=True, help="Show the table repeatedly; on a terminal, in place.")
@click.option(
    "--every",
    type=click.FloatRange(0.2, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between two updates of --watch.",
)
@click.option(
    "--usage/--no-usage",
    default=None,
    help="Ask the nodes' agents who uses the cards. Default: with -o and --idle, and with --watch except in a kubectl plugin.",
)
@click.option(
    "--idle",
    is_flag=False,
    flag_value=1.0,
    default=None,
    type=click.FloatRange(0, 100_000),
    metavar="[HOURS]",
    help="List only pods that have held cards for so long without using them; without a number for one hour.",
)
@cluster_options("Count only the pods of this namespace.")
@click.pass_context
def inspect(
    context: click.Context,
    /,
    node: str | None,
    details: bool,
    output: str | None,
    vendors: tuple[str, ...],
    all_vendors: bool,
    watch: bool,
    every: float,
    usage: bool | None,
    idle: float | None,
    namespace: str | None,
    **where: Any,
) -> None:
    """Show how much of every card is allocated, on NODE or on all nodes.

    It reads nodes and pods from the API server and needs no extender.
    """
    from accelshare.inspect_cli.plugin import without_garbage_collection

    with without_garbage_collection():
        from accelshare.inspect_cli.cluster_reader import Reader, connect
        from accelshare.inspect_cli.error_messages import errors_for_people
        from accelshare.vendors.catalog import load
        from accelshare.wire.pods import PodReader

        directories: tuple[Path, ...] = where["directories"]
        catalog = load(directories)
    chosen = [] if all_vendors else chosen_profiles(catalog, vendors, plugin=context.obj)
    with errors_for_people(), connect(where["kubeconfig"], where["context"]) as cluster:
        reader = Reader(cluster.client, catalog, PodReader(catalog), node=node or "", namespace=namespace or "")
        if usage is None:
            usage = idle is not None or output is not None or (watch and context.obj is None)
        asked = None
        if usage:
            from accelshare.inspect_cli.usage_reader import UsageReader

            asked = UsageReader(cluster.client)
        form = _Form(node, details=details, output=output, idle_s=None if idle is None else idle * 3600)
        page = _Page(reader, cluster.client, catalog, chosen, form, asked)
        if watch:
            _watch(page, every)
        else:
            snapshot = page.read()
            echo(page.text(snapshot), nl=False)
            for note in page.notes(snapshot, namespace):
                echo(visible(note), err=True)


def chosen_profiles(catalog: "Catalog", vendors: Sequence[str], *, plugin: str | None) -> "list[Profile]":
    """The profiles to show whether or not the cluster has their cards; empty: those whose cards it has."""
    if vendors:
        return [catalog[name] for name in vendors]
    if plugin is None:
        return []
    match = [profile for profile in catalog if profile.inspect.command == plugin]
    if not match:
        known = ", ".join(sorted(profile.inspect.command for profile in catalog if profile.inspect.command))
        raise click.ClickException(f"no profile has the inspect command {plugin!r}; there are {known}")
    return match


class _Form:
    """What the user wants to see."""

    def __init__(self, node: str | None, *, details: bool, output: str | None, idle_s: float | None) -> None:
        self.node = node
        self.details = details
        self.output = output
        self.idle_s = idle_s  # only pods that have been idle for so long


class _Page:
    """What is printed, once or repeatedly."""

    def __init__(
        self,
        reader: Any,
        client: Any,
        catalog: "Catalog",
        chosen: "list[Profile]",
        form: _Form,
        asked: "UsageReader | None",
    ) -> None:
        """`asked`: from where to learn who uses the cards; None: it is not shown."""
        self._reader = reader
        self._client = client
        self._catalog = catalog
        self._chosen = chosen
        self._node = form.node
        self._details = form.details
        self._output = form.output
        self._idle_s = form.idle_s
        self._asked = asked

    def read(self) -> "ClusterSnapshot":
        from accelshare.kube.errors import NotFound

        try:
            snapshot: ClusterSnapshot = self._reader.read()
        except NotFound:
            if self._node is None:
                raise
            from accelshare.inspect_cli.cluster_reader import names
            from accelshare.inspect_cli.error_messages import unknown

            unknown("node", self._node, names(self._client, "/api/v1/nodes"))
        return snapshot

    def text(self, snapshot: "ClusterSnapshot") -> str:
        from accelshare.report.view import rows

        shown = rows(snapshot.ledger, [self._node] if self._node is not None else None)
        profiles = self._chosen or [profile for profile in self._catalog if any(row.has(profile.name) for row in shown)]
        uses = self._use(shown).nodes if self._asked is not None else {}
        if self._idle_s is not None:
            return self._idle(shown, profiles, uses)
        if self._output == "wide":
            from accelshare.report.tables import wide

            return wide(shown, profiles, snapshot.inventories, uses)
        if self._output is not None:
            from accelshare.report.inspect_json import document

            with_any = [row for row in shown if any(row.has(profile.name) for profile in profiles)]
            return _written(document(with_any, profiles, snapshot.inventories, uses), self._output)
        from accelshare.report import tables

        table = tables.details if self._details else tables.summary
        # A single table is exactly the original's; several have titles.
        titled = len(profiles) > 1
        originals = "\n".join(
            (f"{profile.title}\n" if titled else "") + table(shown, profile, snapshot.inventories) for profile in profiles
        )
        if not uses:
            return originals
        from accelshare.report.usage import pod_lines

        return f"{originals}\n{tables.tabbed(pod_lines(shown, profiles, uses))}"

    def _use(self, shown: "list[NodeRow]") -> "ClusterUse":
        assert self._asked is not None
        return self._asked.read([row.name for row in shown if any(card.present for card in row.cards)])

    def _idle(self, shown: "list[NodeRow]", profiles: "list[Profile]", uses: "Mapping[str, NodeUse]") -> str:
        from accelshare.report import usage
        from accelshare.report.tables import tabbed

        assert self._idle_s is not None
        pods = usage.idle_pods(shown, profiles, uses, least_s=self._idle_s)
        if self._output in ("json", "yaml"):
            return _written(usage.idle_document(pods), self._output)
        return tabbed(usage.idle_lines(pods))

    def notes(self, snapshot: "ClusterSnapshot", namespace: str | None) -> list[str]:
        """Notes for the reader of the tables, for standard error."""
        from accelshare.report.tables import has_anything
        from accelshare.report.view import rows

        shown = rows(snapshot.ledger, [self._node] if self._node is not None else None)
        notes = list(snapshot.problems)
        if self._asked is not None:
            notes += self._use(shown).notes
            if self._idle_s is not None:
                notes += self._unknown_use(shown)
        where = f"node {self._node}" if self._node is not None else "this cluster"
        for profile in self._chosen:
            if self._output is None and not any(has_anything(row, profile) for row in shown):
                whole = [row.name for row in shown if row.of(profile.name)]
                more = f"; whole cards only: {', '.join(whole[:5])} (see -o wide)" if whole else ""
                notes.append(f"{where} shows no {profile.resources.memory or profile.resources.whole}{more}")
        if not self._chosen and not any(row.cards or row.unplaced for row in shown):
            notes.append(f"{where} has no cards of any vendor: {', '.join(profile.title for profile in self._catalog)}")
        if namespace is not None:
            notes.append(f"only pods of namespace {namespace} are counted")
        for row in shown:
            if not self._chosen or any(row.has(profile.name) for profile in self._chosen):
                notes += [f"{row.name}: {problem}" for problem in row.problems]
        return notes

    def _unknown_use(self, shown: "list[NodeRow]") -> list[str]:
        """A list of idle pods is not complete without these."""
        known = self._use(shown).nodes
        without = [row.name for row in shown if any(card.pods for card in row.cards) and row.name not in known]
        more = f" and {len(without) - 5} more" if len(without) > 5 else ""
        if not without:
            return []
        return [f"nothing is known about the use of {', '.join(without[:5])}{more}: does the agent run with --usage?"]


def _written(value: object, form: str) -> str:
    import json

    if form == "json":
        return visible_json(json.dumps(value, indent=2, ensure_ascii=False)) + "\n"
    import yaml

    text: str = yaml.safe_dump(json.loads(json.dumps(value)), sort_keys=False, allow_unicode=True)
    # YAML escapes only some control characters; the ASCII form of the same data escapes all.
    return text if visible_lines(text) == text else yaml.safe_dump(value, sort_keys=False)


def _watch(page: _Page, every_s: float) -> None:
    import shutil
    import sys
    import time

    from accelshare.inspect_cli.error_messages import words
    from accelshare.inspect_cli.screen import watch
    from accelshare.kube.errors import KubeError

    before = ""

    def again() -> str:
        """The page as it is now. After the first one, an error of the cluster is shown above the last page."""
        nonlocal before
        try:
            before = page.text(page.read())
        except KubeError as error:
            if not before:
                raise
            return f"{visible_lines(words(error))}\n\n{before}"
        return before

    def size() -> tuple[int, int]:
        columns, lines = shutil.get_terminal_size()
        return columns, lines

    watch(again, sys.stdout, every_s=every_s, sleep=time.sleep, now=lambda: time.strftime("%Y-%m-%d %H:%M:%S"), size=size)
