"""Removes a cluster in any state: its processes, its changes outside, its directory.

Needs nothing in memory: what is ours is known by the mark in its environment, by its cgroup, and by the journal.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cluster.errors import ClusterError
from cluster.local import cgroups, devices, network, processes
from cluster.local.daemon import Daemon
from cluster.local.journal import Change, Journal, Kind
from cluster.local.layout import MARK, MOST_NODES, Layout

_FIRST = ("kubelet", "kube-proxy")  # else kubelet would start again what we end


def anything_left(layout: Layout) -> bool:
    """Whether there is something to end or to remove."""
    return layout.state.exists() or network.exists() or cgroups.exist() or bool(processes.marked(MARK, str(layout.cluster)))


def tear_down(layout: Layout) -> None:
    """Everything, in an order in which nothing is created again."""
    for node in _nodes(layout):
        for name in _FIRST:
            Daemon(node, name).kill()
    while ours := {*processes.marked(MARK, str(layout.cluster)), *cgroups.members()}:
        processes.end(ours)
    undo: list[Callable[[], None]] = [partial(_undo, change) for change in Journal(layout.journal).newest_first()]
    # These two have a name of our own, so they are removed even without the journal.
    failed = [words for step in (*undo, network.remove_network, cgroups.remove) if (words := _in_words(step))]
    if failed:  # the journal stays, so that the next try knows what is left
        raise ClusterError("not everything could be undone; try again:" + "".join(f"\n  - {words}" for words in failed))
    if layout.state.exists():
        shutil.rmtree(layout.state)


def save_logs(layout: Layout, to: Path) -> None:
    """The logs of programs and of containers, where the removal of the cluster does not reach them."""
    shutil.rmtree(to, ignore_errors=True)
    for source, kept in saved_logs(layout, to).items():
        if source.exists():
            shutil.copytree(source, kept, symlinks=True)


def saved_logs(layout: Layout, to: Path) -> dict[Path, Path]:
    """Where each directory of logs is kept below this one."""
    places: dict[Path, Path] = {}
    for node in _nodes(layout):
        kept = to if node.first else to / node.node_name
        places |= {node.logs: kept / "programs", node.covering("/var/log/pods"): kept / "pods"}
    return places


def _nodes(layout: Layout) -> list[Layout]:
    """Every node that there could be."""
    return [layout.node(number) for number in range(1, MOST_NODES + 1)]


def _in_words(step: Callable[[], None]) -> str:
    """Empty on success: one failure must not stop the rest."""
    try:
        step()
    except (ClusterError, OSError) as error:
        return str(error)
    return ""


def _undo(change: Change) -> None:
    match change.kind:
        case Kind.DIRECTORY:
            _remove_if_empty(Path(change.name))
        case Kind.DEVICE:
            devices.remove_node(Path(change.name), change.value)
        case Kind.KERNEL_SETTING:
            network.restore_setting(change.name, change.value)
        case Kind.NETWORK:
            network.remove_network()
        case Kind.NFT_TABLE:
            network.remove_table(change.name)


def _remove_if_empty(directory: Path) -> None:
    try:
        directory.rmdir()
    except OSError:  # gone, or in use by another process by now
        pass
