"""`accelshare inspect`, also under the name of a kubectl plugin: every card and the pods on it.

Belongs here: arguments, which vendors are shown, and in which form. Never: the forms themselves (report/).
"""

import os
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from accelshare.help_pages import HelpCommand, grouped
from accelshare.inspect_cli.colours import coloured
from accelshare.inspect_cli.completion import nodes
from accelshare.inspect_cli.options import cluster_options
from accelshare.options import FloatRange
from accelshare.terminal import echo, echo_painted, visible, visible_lines

if TYPE_CHECKING:
    from accelshare.inspect_cli.cluster_profiles import ClusterProfiles
    from accelshare.inspect_cli.cluster_reader import ClusterSnapshot
    from accelshare.inspect_cli.page import InspectPage
    from accelshare.vendors.catalog import Catalog
    from accelshare.vendors.profile import Profile


def _vendors(context: click.Context, parameter: click.Parameter, prefix: str) -> list[str]:
    from accelshare.vendors.command import profile_names

    return profile_names(context, parameter, prefix)


def _node_name(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Refuse an empty name, which a script with an unset variable passes."""
    if value == "":
        raise click.BadParameter("it is empty; it must be the name of a node, or be left out for all nodes")
    return value


@click.command(
    cls=HelpCommand,
    short_help="Show every card and the pods on it.",
    examples=[
        ("", "every card and its pods"),
        ("NODE -o wide", "one line for each card of a node, with its model and id"),
        ("--watch", "a live view"),
        ("--idle 8", "pods that have used none of their cards for 8 hours"),
        ("--quota", "what each namespace may request, and what it does"),
    ],
)
@click.argument("node", required=False, shell_complete=nodes, callback=_node_name)
@grouped(
    "Output",
    click.option("-d", "--details", is_flag=True, help="Show each pod, node by node."),
    click.option(
        "-o",
        "--output",
        type=click.Choice(["bars", "table", "wide", "json", "yaml"]),
        help="bars: one bar for each card, as wide as the screen; table: as the original systems print it; wide: one line for "
        "each card; json and yaml: for programs. "
        "Default: bars on a terminal, table in a pipe, with --details and in a kubectl plugin.",
    ),
    click.option(
        "-w", "--watch", is_flag=True, help="Show it repeatedly; on a terminal, in place, with the totals always on the screen."
    ),
    click.option(
        "--every",
        type=FloatRange(0.2, 3600),
        default=2.0,
        show_default=True,
        metavar="SECONDS",
        help="Seconds between two updates of --watch.",
    ),
)
@grouped(
    "Vendors",
    click.option(
        "--vendor", "vendors", multiple=True, metavar="NAME", shell_complete=_vendors, help="Show only this profile; repeatable."
    ),
    click.option("--all-vendors", is_flag=True, help="Show every vendor whose cards this cluster has."),
)
@grouped(
    "Use of cards",
    click.option(
        "--usage/--no-usage",
        default=None,
        help="Ask the nodes' agents who uses the cards. Default: with bars, with -o except -o table, with --idle, and "
        "with --watch except in a kubectl plugin.",
    ),
    click.option(
        "--idle",
        is_flag=False,
        flag_value=1.0,
        default=None,
        type=FloatRange(0, 100_000),
        metavar="[HOURS]",
        help="List only pods that have held cards for so long without using them; without a number for one hour.",
    ),
)
@grouped(
    "Quotas",
    click.option(
        "--quota", is_flag=True, help="List instead what ResourceQuotas allow each namespace to request, and what it requests."
    ),
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
    quota: bool,
    namespace: str | None,
    **where: Any,
) -> None:
    """Show how much of every card is allocated, on NODE or on all nodes.

    It reads nodes and pods from the API server and needs no extender.
    """
    from accelshare.inspect_cli.plugin import without_garbage_collection

    with without_garbage_collection():
        from accelshare.inspect_cli.cluster_profiles import ClusterProfiles
        from accelshare.inspect_cli.cluster_reader import ClusterReader, connect
        from accelshare.inspect_cli.error_messages import errors_for_people
        from accelshare.inspect_cli.page import Form, InspectPage
        from accelshare.vendors.catalog import load

        directories: tuple[Path, ...] = where["directories"]
        catalog = load(directories)
    if quota:
        others = {"NODE": node, "--details": details, "--watch": watch, "--idle": idle, "-o bars": output == "bars"}
        _refuse_with_quota([name for name, given in others.items() if given not in (None, False)])
    with errors_for_people(), connect(where["kubeconfig"], where["context"]) as cluster:
        profiles = ClusterProfiles(cluster.client, catalog, directories)
        chosen = [] if all_vendors else _chosen(profiles, vendors, plugin=context.obj)
        if quota:
            from accelshare.inspect_cli.quota_page import quota_page

            kinds = {profile.name for profile in chosen}
            text, note = quota_page(
                cluster.client, profiles.catalog, namespace=namespace or "", vendors=kinds, output=output or "table"
            )
            echo(text, nl=False)
            if note:
                echo(visible(note), err=True)
            return
        terminal = sys.stdout.isatty()
        bars = output is None and terminal and not details and context.obj is None
        constraints = None
        if bars or output == "bars" or (watch and terminal):  # bars name the reasons of pods that wait
            from accelshare.inspect_cli.explain_objects import ConstraintReader

            constraints = ConstraintReader
        reader = ClusterReader(cluster.client, profiles, node=node or "", namespace=namespace or "", constraints=constraints)
        if usage is None:
            usage = idle is not None or bars or output not in (None, "table") or (watch and context.obj is None)
        usage_reader = None
        if usage:
            from accelshare.inspect_cli.usage_reader import UsageReader

            usage_reader = UsageReader(cluster.client)
        form = Form(
            node,
            namespace,
            details=details,
            output=output or ("bars" if bars else "table"),
            idle_s=None if idle is None else idle * 3600,
            bars_if_narrow=output is None and not details,
            colours=coloured(terminal, os.environ),
            encoding=sys.stdout.encoding,
        )
        page = InspectPage(reader, cluster.client, chosen, form, usage_reader)
        if watch:
            _watch(page, every)
        else:
            snapshot = page.read()
            # Bars were made visible before colours were put into them.
            show = echo_painted if form.output == "bars" and idle is None else partial(echo, nl=False)
            show(page.text(snapshot, shutil.get_terminal_size().columns))
            for note in page.notes(snapshot):
                echo(visible(note), err=True)


def _refuse_with_quota(given: Sequence[str]) -> None:
    if given:
        raise click.UsageError(f"--quota lists namespaces and cannot be combined with {', '.join(given)}")


def _chosen(profiles: "ClusterProfiles", vendors: Sequence[str], *, plugin: str | None) -> "list[Profile]":
    """The profiles to show; one that is not known here may be one of the cluster's own."""
    from accelshare.vendors.problems import UnknownProfile

    try:
        return chosen_profiles(profiles.catalog, vendors, plugin=plugin)
    except (UnknownProfile, click.ClickException):
        profiles.seek([*vendors, *([plugin] if plugin is not None else [])])
        for problem in profiles.problems:
            echo(visible(problem), err=True)
        return chosen_profiles(profiles.catalog, vendors, plugin=plugin)


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


def _watch(page: "InspectPage", every_s: float) -> None:
    import shutil
    import sys
    import time

    from accelshare.inspect_cli.error_messages import words
    from accelshare.inspect_cli.screen import watch
    from accelshare.kube.errors import KubeError

    before: ClusterSnapshot | None = None

    def again(size: tuple[int, int] | None) -> str:
        """The page as it is now. After the first one, an error of the cluster is shown above the last page."""
        nonlocal before
        complaint = ""
        try:
            before = page.read()
        except KubeError as error:
            if before is None:
                raise
            complaint = f"{visible_lines(words(error))}\n\n"
        if size is None:
            return f"{complaint}{page.text(before, shutil.get_terminal_size().columns)}"
        columns, lines = size
        return f"{complaint}{page.screen(before, columns, lines - complaint.count(chr(10)))}"

    def size() -> tuple[int, int]:
        columns, lines = shutil.get_terminal_size()
        return columns, lines

    watch(again, sys.stdout, every_s=every_s, sleep=time.sleep, now=lambda: time.strftime("%Y-%m-%d %H:%M:%S"), size=size)
