"""Checks of pods that hold cards: whether their records can be read, and whether the memory unit may change under them.

The amounts of a pod were requested in the memory unit of its node, and would mean something else in another one. Agents refuse
such a change too, each on its node; checked here, it is refused before anything changes, for the whole cluster.

Belongs here: counting such pods by vendor. Never: sums of cards (`ledger/`), the size of a unit (profiles).
"""

from collections.abc import Iterator, Mapping
from typing import Final

from accelshare.install.preflight.findings import Finding, Grade, counted, named
from accelshare.install.preflight.snapshot import ClusterPart, PodWithCommands, Snapshot, title
from accelshare.vendors.catalog import Catalog
from accelshare.vendors.profile import Profile
from accelshare.wire.assignment import OURS

_NAMED: Final = 20  # pods that must end, of which a person needs more names than of nodes


def check_cards_in_use(snapshot: Snapshot, catalog: Catalog) -> Iterator[Finding]:
    if "pods" in snapshot.unread:
        return
    for profile in catalog:
        yield from _cards_of(profile, [pod for pod in snapshot.pods if pod.spec.node_name])


def _cards_of(profile: Profile, pods: list[PodWithCommands]) -> Iterator[Finding]:
    memory, whole = profile.resources.memory, profile.resources.whole
    sharing = [pod for pod in pods if memory is not None and memory in pod.requested]
    holding = [pod for pod in pods if whole is not None and whole in pod.requested]
    unrecorded = [pod for pod in sharing if not _recorded(pod, profile)]
    if sharing:
        message = f"{profile.title}: {counted(len(sharing), 'pod')} with slices; pods keep running, and their records are used"
        yield Finding("cards-in-use", Grade.NOTE, message)
    if unrecorded:
        names = named([title(pod.metadata) for pod in unrecorded])
        message = f"{profile.title}: {names} hold slices, but no annotation says of which card: each counts on the worst card"
        yield Finding("cards-in-use", Grade.WARNING, message, ("delete them, or let the node's agent report their card",))
    if holding:
        message = (
            f"{profile.title}: {counted(len(holding), 'pod')} with whole cards; the node's agent learns from kubelet which ones"
        )
        yield Finding("cards-in-use", Grade.NOTE, message)


def _recorded(pod: PodWithCommands, profile: Profile) -> bool:
    annotations = pod.metadata.annotations or {}
    return OURS in annotations or (profile.annotations.index or OURS) in annotations


def check_memory_units(snapshot: Snapshot, catalog: Catalog, units: Mapping[str, str]) -> Iterator[Finding]:
    """`units`: the wanted memory units by profile; an empty text is the profile's default."""
    if not units:
        return
    if unread := sorted({ClusterPart.NODES.value, ClusterPart.PODS.value} & snapshot.unread.keys()):
        message = f"{' and '.join(unread)} could not be read, so it is not known whether the memory unit may change"
        yield Finding("memory-units", Grade.PROBLEM, message, ("grant the right to list nodes and pods in the whole cluster",))
        return
    for name, unit in sorted(units.items()):
        profile = catalog[name]
        yield from _unit_of(profile, unit or profile.unit.default, snapshot)


def _unit_of(profile: Profile, unit: str, snapshot: Snapshot) -> Iterator[Finding]:
    if unit not in profile.unit.mib:
        message = f"{profile.name}: memory unit {unit!r} is not known; it must be one of {', '.join(profile.unit.mib)}"
        yield Finding("memory-units", Grade.PROBLEM, message)
        return
    nodes: dict[str, set[str]] = {}  # by their present unit, if that is another one
    for node in snapshot.nodes:
        entry = node.inventory().get(profile.name)
        if entry is not None and entry.unit not in ("", unit):
            nodes.setdefault(entry.unit, set()).add(node.metadata.name)
    for before, names in sorted(nodes.items()):
        yield _change(profile, before, unit, names, snapshot)
    if not nodes:
        message = f"{profile.name}: no node uses another memory unit than {unit!r}"
        yield Finding("memory-units", Grade.FINE, message)


def _change(profile: Profile, before: str, unit: str, nodes: set[str], snapshot: Snapshot) -> Finding:
    where = f"{profile.name}: the memory unit of {named(sorted(nodes))} is {before!r}"
    pods = [
        title(pod.metadata)
        for pod in snapshot.pods
        if pod.spec.node_name in nodes and profile.resources.memory is not None and profile.resources.memory in pod.requested
    ]
    if not pods:
        message = f"{where} and may become {unit!r}: no pod has requested memory in the old one"
        return Finding("memory-units", Grade.NOTE, message)
    message = f"{where} and cannot become {unit!r} while pods have requested memory in the old one: {named(pods, most=_NAMED)}"
    step = f"delete them first, or keep {before!r} (in the chart vendors.{profile.name}.memoryUnit)"
    return Finding("memory-units", Grade.PROBLEM, message, (step,))
