"""Checks of nodes: versions of the API server and kubelets, container runtimes, labels of nodes that share cards.

Belongs here: what a version lacks, and how cards are delivered with each runtime. Never: which runtime version has which feature
(`runtimes/versions.py`), hardware, which only an agent sees.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from accelshare.install.preflight.findings import Finding, Grade, named, nodes_by
from accelshare.install.preflight.snapshot import NodeWithVersions, Snapshot
from accelshare.install.scheduler.release import NEWEST, OLDEST, POLICY_TRAP, SUPPORTED, minor_of
from accelshare.runtimes.versions import NRI_BY_DEFAULT_SINCE, NRI_SINCE, VALIDATOR_SINCE, release
from accelshare.vendors.catalog import Catalog
from accelshare.vendors.profile import Profile
from accelshare.wire.inventory import BY_RUNTIME

PREFERENCE: Final = 19  # kubelet asks the device plugin which ids it prefers
_DEVICE_PLUGIN: Final = "device-plugin"
_ENABLE_NRI: Final[Mapping[str, str]] = {
    "containerd": 'enable NRI in /etc/containerd/config.toml, [plugins."io.containerd.nri.v1.nri"]: disable = false, and restart '
    "containerd",
    "cri-o": "enable NRI in /etc/crio/crio.conf.d, [crio.nri]: enable_nri = true, and restart CRI-O",
}
_ENABLE_VALIDATOR: Final[Mapping[str, str]] = {
    "containerd": "enable containerd's validator: "
    '[plugins."io.containerd.nri.v1.nri".default_validator]: enable = true, and restart containerd',
    "cri-o": "enable CRI-O's default validator, [crio.nri.default_validator], and restart CRI-O",
}


def check_versions(snapshot: Snapshot, catalog: Catalog) -> Iterator[Finding]:
    yield _api_server(snapshot.version)
    for version, where in nodes_by(snapshot.nodes, lambda node: node.status.node_info.kubelet_version):
        minor = minor_of(version)
        if minor is None:
            yield Finding("versions", Grade.WARNING, f"kubelet on {where} reports {version!r}, which is not a version")
        elif minor < PREFERENCE:
            yield Finding(
                "versions",
                Grade.WARNING,
                f"kubelet {version} on {where} does not ask the device plugin which devices to prefer: a pod may get several "
                "cards, and then only the pod's record says which card it has",
                (f"prefer kubelet 1.{PREFERENCE} or newer",),
            )
        else:
            yield Finding("versions", Grade.FINE, f"kubelet {version} on {where}")


def _api_server(version: str) -> Finding:
    minor = minor_of(version)
    if minor is None:
        return Finding("versions", Grade.WARNING, f"the API server reports {version!r}, which is not a version of Kubernetes")
    if not OLDEST <= minor <= NEWEST:
        message = f"Kubernetes {version} is not supported; the supported versions are {SUPPORTED}"
        return Finding("versions", Grade.PROBLEM, message)
    form = "a policy" if minor < POLICY_TRAP else "a configuration file"
    return Finding("versions", Grade.FINE, f"Kubernetes {version}; kube-scheduler is configured by {form}")


def check_runtimes(snapshot: Snapshot, catalog: Catalog) -> Iterator[Finding]:
    groups: dict[tuple[str, bool], list[NodeWithVersions]] = {}
    for node in snapshot.nodes:
        groups.setdefault(_reported(node), []).append(node)
    for (mode, enabled), nodes in sorted(groups.items(), key=lambda group: group[0]):
        for runtime, where in nodes_by(nodes, lambda node: node.status.node_info.container_runtime_version):
            yield _by_report(mode, enabled, runtime, where) if mode else by_version(runtime, where)


def _reported(node: NodeWithVersions) -> tuple[str, bool]:
    """The delivery mode that the node's agent reports, and whether the validator is enabled; empty without an agent."""
    kinds = [entry for entry in node.inventory().values() if entry.delivery]
    return (kinds[0].delivery, all(entry.insists for entry in kinds)) if kinds else ("", False)


def _by_report(mode: str, enabled: bool, runtime: str, where: str) -> Finding:
    this = f"{shown(runtime)} on {where}"
    expected = by_version(runtime, where)
    if mode == BY_RUNTIME and enabled:
        return Finding("runtimes", Grade.FINE, f"{this} delivers cards by pod identity, and its validator is enabled")
    if mode == BY_RUNTIME:
        message = f"{this} delivers cards by pod identity, but its validator is off: without the agent, containers get no card"
        return Finding("runtimes", Grade.WARNING, message, expected.do)
    also = "" if mode == _DEVICE_PLUGIN else ", and NRI corrects it by pod identity"
    message = f"{this} has its validator off: the device plugin interface delivers cards{also}"
    return Finding("runtimes", expected.grade, message, expected.do)


def shown(container_runtime: str) -> str:
    """`containerd 2.4.2` of `containerd://2.4.2`."""
    name, _, version = container_runtime.partition("://")
    return f"{name} {version}" if version else repr(container_runtime)


def has_validator(container_runtime: str) -> bool:
    """Whether this runtime can refuse containers that lack their cards."""
    name, _, version = container_runtime.partition("://")
    return name in VALIDATOR_SINCE and release(version) >= VALIDATOR_SINCE[name]


def by_version(container_runtime: str, where: str) -> Finding:
    """How cards would be delivered with this runtime version on these nodes, and what would improve it."""
    name, _, version = container_runtime.partition("://")
    this, number = f"{shown(container_runtime)} on {where}", release(version)
    if name not in NRI_SINCE or number == (0, 0, 0):
        return Finding("runtimes", Grade.NOTE, f"{this} has no NRI: cards are delivered by the device plugin interface")
    if number < NRI_SINCE[name]:
        needed = ".".join(map(str, NRI_SINCE[name][:2]))
        message = f"{this} is older than {needed} and has no NRI: cards are delivered by the device plugin interface"
        return Finding("runtimes", Grade.NOTE, message)
    if number < NRI_BY_DEFAULT_SINCE[name]:
        message = f"{this} has NRI, disabled by default: while it is disabled, the device plugin interface delivers cards"
        return Finding("runtimes", Grade.NOTE, message, (_ENABLE_NRI[name],))
    by_plugin = "the device plugin interface delivers cards, and NRI corrects it by pod identity"
    if number < VALIDATOR_SINCE[name]:
        message = f"{this} has NRI, but cannot refuse a container while the agent is not connected: {by_plugin}"
        return Finding("runtimes", Grade.FINE, message)
    message = f"{this} can deliver cards by pod identity once its validator is enabled; until then {by_plugin}"
    return Finding("runtimes", Grade.NOTE, message, (_ENABLE_VALIDATOR[name],))


def check_labels(snapshot: Snapshot, catalog: Catalog) -> Iterator[Finding]:
    if "nodes" in snapshot.unread:
        return
    results = [finding for profile in catalog for finding in _labels_of(profile, snapshot)]
    if not results:
        labels = [f"kubectl label node NODE {'='.join(profile.node_label)}" for profile in catalog if profile.node_label]
        yield Finding("labels", Grade.NOTE, "no node has a label to share its cards yet", (*labels, "or name them: nodes.names"))
    yield from results


def _labels_of(profile: Profile, snapshot: Snapshot) -> Iterator[Finding]:
    """Nodes with the vendor's label, and nodes that have the vendor's resources without it."""
    resources = {profile.resources.memory, profile.resources.whole} - {None}
    with_cards = {node.metadata.name for node in snapshot.nodes if resources & (node.status.allocatable or {}).keys()}
    if profile.node_label is None:
        if with_cards:
            yield Finding("labels", Grade.FINE, f"{profile.title}: {named(sorted(with_cards))}; it needs no label")
        return
    key, value = profile.node_label
    labelled = {node.metadata.name for node in snapshot.nodes if (node.metadata.labels or {}).get(key) == value}
    if labelled:
        yield Finding("labels", Grade.FINE, f"{profile.title}: {named(sorted(labelled))} with {key}={value}")
    if without := sorted(with_cards - labelled):
        message = f"{profile.title}: {named(without)} has cards but no label {key}={value}, so no agent runs there"
        yield Finding("labels", Grade.WARNING, message, tuple(f"kubectl label node {name} {key}={value}" for name in without[:3]))
