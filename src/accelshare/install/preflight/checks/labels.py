"""Which nodes will share their cards.

Belongs here: labels and resources of nodes, vendor by vendor as profiles name them. Never: hardware; only an agent sees it.
"""

from collections.abc import Iterator

from accelshare.install.preflight.findings import Finding, Grade
from accelshare.install.preflight.grouping import named
from accelshare.install.preflight.snapshot import Snapshot
from accelshare.vendors.catalog import Catalog
from accelshare.vendors.profile import Profile


def check(snapshot: Snapshot, catalog: Catalog) -> Iterator[Finding]:
    if "nodes" in snapshot.unread:
        return
    said = [finding for profile in catalog for finding in _of(profile, snapshot)]
    if not said:
        labels = [f"kubectl label node NODE {'='.join(profile.node_label)}" for profile in catalog if profile.node_label]
        yield Finding("labels", Grade.NOTE, "no node is labelled to share its cards yet", (*labels, "or name them: nodes.names"))
    yield from said


def _of(profile: Profile, snapshot: Snapshot) -> Iterator[Finding]:
    """Nodes with the label, and nodes that have the vendor's resources without it."""
    resources = {profile.resources.memory, profile.resources.whole} - {None}
    with_cards = {node.metadata.name for node in snapshot.nodes if resources & node.status.allocatable.keys()}
    if profile.node_label is None:
        if with_cards:
            yield Finding("labels", Grade.FINE, f"{profile.title}: {named(sorted(with_cards))}; it needs no label")
        return
    key, value = profile.node_label
    labelled = {node.metadata.name for node in snapshot.nodes if (node.metadata.labels or {}).get(key) == value}
    if labelled:
        yield Finding("labels", Grade.FINE, f"{profile.title}: {named(sorted(labelled))} with {key}={value}")
    if without := sorted(with_cards - labelled):
        says = f"{profile.title}: {named(without)} has cards to give but no label {key}={value}, so no agent would run there"
        yield Finding("labels", Grade.WARNING, says, tuple(f"kubectl label node {name} {key}={value}" for name in without[:3]))
