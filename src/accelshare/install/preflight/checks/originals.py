"""Which systems that share the same cards are installed already, and how to move from each without touching running pods.

Belongs here: finding them by the names in `vendors/originals.toml`. Never: those names themselves.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

from accelshare.install.preflight.findings import Finding, Grade
from accelshare.install.preflight.objects import PARKED, Workload
from accelshare.install.preflight.snapshot import Snapshot, ours
from accelshare.vendors import originals
from accelshare.vendors.catalog import Catalog
from accelshare.vendors.originals import Neighbour, Original


def check(snapshot: Snapshot, catalog: Catalog) -> Iterator[Finding]:
    known = originals.load()
    theirs = {name: workload for name, workload in snapshot.workloads() if not ours(workload.metadata)}
    found = [
        *(finding for system in known.systems for finding in _system(system, theirs)),
        *_left_behind(known.systems, snapshot),
        *(finding for neighbour in known.neighbours for finding in _neighbour(neighbour, theirs)),
        *_ourselves(snapshot),
    ]
    yield from found
    if not found and not {"deployments", "daemonsets"} & snapshot.unread.keys():
        yield Finding("originals", Grade.FINE, "no other system that shares these cards is installed")


def _system(system: Original, theirs: Mapping[str, Workload]) -> Iterator[Finding]:
    there = [name for name in (*system.schedulers, *system.plugins) if name in theirs]
    if not there:
        return
    shown = ", ".join(f"{name} in {theirs[name].metadata.namespace}" for name in there)
    if all(theirs[name].stopped for name in there):
        yield Finding("originals", Grade.NOTE, f"{system.name} is stopped, and there to go back to ({shown})", (_page(system),))
        return
    yield Finding(
        "originals",
        Grade.WARNING,
        f"{system.name} is installed ({shown}). Two book-keepers would sell the same card twice, and kubelet takes a resource "
        "from one plugin only: move, do not run both. Running pods go on, and their annotations are read as they are",
        (
            *(_stop(name, theirs[name]) for name in there if not theirs[name].stopped),
            *(f"install with --set-json 'scheduler.replace=[\"{url}\"]'" for url in system.urls),
            _page(system),
        ),
    )


def _stop(name: str, workload: Workload) -> str:
    """So that one command brings it back."""
    target = f"{name.lower()} -n {workload.metadata.namespace}"
    if name.startswith("Deployment/"):
        return f"stop it: kubectl scale {target} --replicas=0"
    patch = json.dumps({"spec": {"template": {"spec": {"nodeSelector": dict(PARKED)}}}}, separators=(",", ":"))
    return f"stop it: kubectl patch {target} --type=merge -p '{patch}'"


def _page(system: Original) -> str:
    return f"step by step, and the way back: {system.page}"


def _left_behind(systems: Sequence[Original], snapshot: Snapshot) -> Iterator[Finding]:
    """The originals' guides change kube-scheduler by hand, and most never say how to put it back."""
    for pod in snapshot.pods:
        words = [word for container in pod.spec.containers for word in (*container.command, *container.args)]
        for file in sorted({file for system in systems for file in system.files} & {word.partition("=")[2] for word in words}):
            guides = [system for system in systems if file in system.files]
            names = " or ".join(system.name for system in guides)
            urls = ", ".join(f'"{url}"' for system in guides for url in system.urls) or '"URL"'
            yield Finding(
                "originals",
                Grade.WARNING,
                f"{pod.metadata.title} reads {file}, where the guide of {names} puts its extender: while kube-scheduler asks an "
                "extender that is gone, pods that ask for its cards wait",
                (
                    "look which URL the file names, and let ours take its place: "
                    f"install with --set-json 'scheduler.replace=[{urls}]'",
                ),
            )


def _neighbour(neighbour: Neighbour, theirs: Mapping[str, Workload]) -> Iterator[Finding]:
    for name in neighbour.plugins:
        if name in theirs and not theirs[name].stopped:
            yield Finding(
                "originals",
                Grade.WARNING,
                f"{name} in {theirs[name].metadata.namespace} hands out whole {neighbour.profile} cards, and so would our agent: "
                "kubelet takes a resource from one plugin only",
                ("keep it off the nodes that share their cards, with its nodeSelector, or remove it",),
            )


def _ourselves(snapshot: Snapshot) -> Iterator[Finding]:
    names = sorted(f"{name} in {each.metadata.namespace}" for name, each in snapshot.workloads() if ours(each.metadata))
    if names:
        yield Finding("originals", Grade.NOTE, f"accelshare is installed already: {', '.join(names)}")
