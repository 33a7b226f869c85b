"""Whether the memory unit that an install or upgrade wants may be had, with the pods that live now.

A pod's amounts were asked in the unit of its node: in another one they would be something else. Agents refuse that too, each on
its node; asked here, before anything is changed, it is refused once and for the whole cluster.

Belongs here: comparing nodes' units with the wanted ones. Never: how large a unit is (profiles).
"""

from collections.abc import Iterator, Mapping

from accelshare.install.preflight.findings import Finding, Grade
from accelshare.install.preflight.grouping import named
from accelshare.install.preflight.inventories import told
from accelshare.install.preflight.snapshot import Part, Snapshot
from accelshare.vendors.catalog import Catalog
from accelshare.vendors.profile import Profile

_NAMED = 20  # pods to be ended: a person needs more of their names than of nodes'


def check(snapshot: Snapshot, catalog: Catalog, units: Mapping[str, str]) -> Iterator[Finding]:
    """`units` is what is wanted, by profile; an empty text is the profile's own."""
    if not units:
        return
    if unseen := sorted({Part.NODES.value, Part.PODS.value} & snapshot.unread.keys()):
        says = f"{' and '.join(unseen)} could not be read, so nobody knows whether the memory unit may be changed"
        yield Finding("memory-units", Grade.PROBLEM, says, ("grant the right to list nodes and pods in the whole cluster",))
        return
    for name, unit in sorted(units.items()):
        profile = catalog[name]
        yield from _of(profile, unit or profile.unit.default, snapshot)


def _of(profile: Profile, unit: str, snapshot: Snapshot) -> Iterator[Finding]:
    if unit not in profile.unit.mib:
        says = f"{profile.name}: memory unit {unit!r} is not known; it must be one of {', '.join(profile.unit.mib)}"
        yield Finding("memory-units", Grade.PROBLEM, says)
        return
    nodes: dict[str, set[str]] = {}  # by the unit that they count in now, where it is another one
    for node in snapshot.nodes:
        entry = told(node).get(profile.name)
        if entry is not None and entry.unit not in ("", unit):
            nodes.setdefault(entry.unit, set()).add(node.metadata.name)
    for before, names in sorted(nodes.items()):
        yield _change(profile, before, unit, names, snapshot)
    if not nodes:
        says = f"{profile.name}: no node counts memory in another unit than {unit!r}"
        yield Finding("memory-units", Grade.FINE, says)


def _change(profile: Profile, before: str, unit: str, nodes: set[str], snapshot: Snapshot) -> Finding:
    where = f"{profile.name}: the memory unit of {named(sorted(nodes))} is {before!r}"
    pods = [
        pod.metadata.title
        for pod in snapshot.pods
        if pod.spec.node_name in nodes and profile.resources.memory is not None and profile.resources.memory in pod.asked
    ]
    if not pods:
        says = f"{where} and may become {unit!r}: no pod that asked in the old one is there"
        return Finding("memory-units", Grade.NOTE, says)
    says = f"{where} and cannot become {unit!r} while pods that asked in the old one are there: {named(pods, most=_NAMED)}"
    step = f"end them first, or keep {before!r} (in the chart vendors.{profile.name}.memoryUnit)"
    return Finding("memory-units", Grade.PROBLEM, says, (step,))
