"""Pods that hold cards now, and whether their records can be read.

Belongs here: counting them, vendor by vendor. Never: sums of cards (the ledger's).
"""

from collections.abc import Iterator

from accelshare.install.preflight.findings import Finding, Grade
from accelshare.install.preflight.grouping import named
from accelshare.install.preflight.objects import Pod
from accelshare.install.preflight.snapshot import Snapshot
from accelshare.vendors.catalog import Catalog
from accelshare.vendors.profile import Profile

_RECORD = "accelshare.io/assignment"


def check(snapshot: Snapshot, catalog: Catalog) -> Iterator[Finding]:
    if "pods" in snapshot.unread:
        return
    for profile in catalog:
        yield from _of(profile, [pod for pod in snapshot.pods if pod.spec.node_name])


def _of(profile: Profile, pods: list[Pod]) -> Iterator[Finding]:
    memory, whole = profile.resources.memory, profile.resources.whole
    sharing = [pod for pod in pods if memory is not None and memory in pod.asked]
    holding = [pod for pod in pods if whole is not None and whole in pod.asked]
    silent = [pod for pod in sharing if not _recorded(pod, profile)]
    if sharing:
        says = f"{profile.title}: {len(sharing)} pods hold slices; they go on running, and their records are read as they are"
        yield Finding("cards-in-use", Grade.NOTE, says)
    if silent:
        names = named([pod.metadata.title for pod in silent])
        says = f"{profile.title}: {names} hold slices, but no annotation says of which card: each is counted where it hurts most"
        yield Finding("cards-in-use", Grade.WARNING, says, ("end them, or let the node agent say which card they have",))
    if holding:
        says = f"{profile.title}: {len(holding)} pods hold whole cards; which ones is known once the node agent has asked kubelet"
        yield Finding("cards-in-use", Grade.NOTE, says)


def _recorded(pod: Pod, profile: Profile) -> bool:
    annotations = pod.metadata.annotations or {}
    return _RECORD in annotations or (profile.annotations.index or _RECORD) in annotations
