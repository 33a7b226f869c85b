"""Checks for other systems that share the same cards, with the steps to migrate from each without touching running pods.

Belongs here: finding them by the names in `vendors/originals.toml`. Never: those names themselves.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

from accelshare.install.preflight.findings import Finding, Grade
from accelshare.install.preflight.snapshot import PARKED, Snapshot, Workload, is_ours, title
from accelshare.vendors import originals
from accelshare.vendors.catalog import Catalog
from accelshare.vendors.originals import Neighbour, Original


def check_originals(snapshot: Snapshot, catalog: Catalog) -> Iterator[Finding]:
    known = originals.load()
    theirs = {name: workload for name, workload in snapshot.workloads() if not is_ours(workload.metadata)}
    results = [
        *(finding for system in known.systems for finding in _system(system, theirs)),
        *_left_behind(known.systems, snapshot),
        *(finding for neighbour in known.neighbours for finding in _neighbour(neighbour, theirs)),
        *_ourselves(snapshot),
    ]
    yield from results
    if not results and not {"deployments", "daemonsets"} & snapshot.unread.keys():
        yield Finding("originals", Grade.FINE, "no other system that shares these cards is installed")


def _system(system: Original, theirs: Mapping[str, Workload]) -> Iterator[Finding]:
    installed = [name for name in (*system.schedulers, *system.plugins) if name in theirs]
    if not installed:
        return
    shown = ", ".join(f"{name} in {theirs[name].metadata.namespace}" for name in installed)
    if all(theirs[name].stopped for name in installed):
        yield Finding("originals", Grade.NOTE, f"{system.name} is installed but stopped ({shown})", (_page(system),))
        return
    yield Finding(
        "originals",
        Grade.WARNING,
        f"{system.name} is installed ({shown}). Two schedulers would assign the same card twice, and kubelet accepts a resource "
        "from one plugin only: migrate, do not run both. Running pods keep running, and their annotations are used",
        (
            *(_stop(name, theirs[name]) for name in installed if not theirs[name].stopped),
            *(f"install with --set-json 'scheduler.replace=[\"{url}\"]'" for url in system.urls),
            _page(system),
        ),
    )


def _stop(name: str, workload: Workload) -> str:
    """A step that one command can undo."""
    target = f"{name.lower()} -n {workload.metadata.namespace}"
    if name.startswith("Deployment/"):
        return f"stop it: kubectl scale {target} --replicas=0"
    patch = json.dumps({"spec": {"template": {"spec": {"nodeSelector": dict(PARKED)}}}}, separators=(",", ":"))
    return f"stop it: kubectl patch {target} --type=merge -p '{patch}'"


def _page(system: Original) -> str:
    return f"migration and way back: {system.page}"


def _left_behind(systems: Sequence[Original], snapshot: Snapshot) -> Iterator[Finding]:
    """kube-scheduler files of these systems: their guides change kube-scheduler by hand, and most do not undo it."""
    for pod in snapshot.pods:
        for file in sorted(
            {file for system in systems for file in system.files} & {word.partition("=")[2] for word in pod.words}
        ):
            guides = [system for system in systems if file in system.files]
            names = " or ".join(system.name for system in guides)
            urls = ", ".join(f'"{url}"' for system in guides for url in system.urls) or '"URL"'
            yield Finding(
                "originals",
                Grade.WARNING,
                f"{title(pod.metadata)} reads {file}, where the guide of {names} puts its extender: while kube-scheduler calls "
                "an extender that does not exist, pods that request its cards wait",
                (
                    "find the URL in the file, and let accelshare's extender replace it: "
                    f"install with --set-json 'scheduler.replace=[{urls}]'",
                ),
            )


def _neighbour(neighbour: Neighbour, theirs: Mapping[str, Workload]) -> Iterator[Finding]:
    for name in neighbour.plugins:
        if name in theirs and not theirs[name].stopped:
            yield Finding(
                "originals",
                Grade.WARNING,
                f"{name} in {theirs[name].metadata.namespace} allocates whole {neighbour.profile} cards, as our agent does: "
                "kubelet accepts a resource from one plugin only",
                ("keep it off the nodes that share their cards, with its nodeSelector, or remove it",),
            )


def _ourselves(snapshot: Snapshot) -> Iterator[Finding]:
    names = sorted(f"{name} in {each.metadata.namespace}" for name, each in snapshot.workloads() if is_ours(each.metadata))
    if names:
        yield Finding("originals", Grade.NOTE, f"accelshare is already installed: {', '.join(names)}")
