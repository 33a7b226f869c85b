"""How containers will get their cards on each node, by what its container runtime can do.

Belongs here: which version brings which part of NRI, read from the runtimes' own sources. Never: asking a runtime.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from accelshare.preflight.findings import Finding, Grade
from accelshare.preflight.grouping import nodes_by
from accelshare.preflight.snapshot import Snapshot
from accelshare.vendors.catalog import Catalog

Version = tuple[int, int]

_CONTAINERD_ON: Final = (
    'switch NRI on in /etc/containerd/config.toml, [plugins."io.containerd.nri.v1.nri"]: disable = false, and restart containerd'
)
_CRIO_ON: Final = "switch NRI on in /etc/crio/crio.conf.d, [crio.nri]: enable_nri = true, and restart CRI-O"
_CONTAINERD_VALIDATOR: Final = (
    'let containerd insist on it: [plugins."io.containerd.nri.v1.nri".default_validator]: enable = true, and restart containerd'
)
_CRIO_VALIDATOR: Final = (
    "let CRI-O insist on it: switch on its default validator, [crio.nri.default_validator], and restart CRI-O"
)


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a family of runtimes can do from which version on, and how what is off is switched on."""

    offers: Version
    on_by_default: Version
    insists: Version  # it can be told to refuse a container whose plugin is away
    switch_on: str
    insist: str


RUNTIMES: Final = {
    "containerd": Runtime((1, 7), (2, 0), (2, 2), _CONTAINERD_ON, _CONTAINERD_VALIDATOR),
    "cri-o": Runtime((1, 26), (1, 30), (1, 34), _CRIO_ON, _CRIO_VALIDATOR),
}


def check(snapshot: Snapshot, catalog: Catalog) -> Iterator[Finding]:
    for told, where in nodes_by(snapshot.nodes, lambda node: node.status.node_info.container_runtime_version):
        yield _finding(told, where)


def _finding(told: str, where: str) -> Finding:
    name, _, text = told.partition("://")
    found = re.match(r"v?(\d+)\.(\d+)", text)
    runtime = RUNTIMES.get(name)
    shown = f"{name} {text}" if text else repr(told)
    if runtime is None or found is None:
        return Finding(
            "runtimes", Grade.NOTE, f"{shown} on {where} has no NRI: cards are delivered by the device plugin interface"
        )
    version = (int(found[1]), int(found[2]))
    if version < runtime.offers:
        needed = ".".join(map(str, runtime.offers))
        says = f"{shown} on {where} is older than {needed} and has no NRI: cards are delivered by the device plugin interface"
        return Finding("runtimes", Grade.NOTE, says)
    if version < runtime.on_by_default:
        says = (
            f"{shown} on {where} has NRI, switched off unless you changed that: until then the device plugin interface delivers"
        )
        return Finding("runtimes", Grade.NOTE, says, (runtime.switch_on,))
    by_plugin = "the device plugin interface delivers, and NRI corrects it by pod identity"
    if version < runtime.insists:
        says = f"{shown} on {where} has NRI, but cannot refuse a container while the agent is away: {by_plugin}"
        return Finding("runtimes", Grade.FINE, says)
    says = f"{shown} on {where} can deliver by pod identity, exactly, once it insists on the agent; until then {by_plugin}"
    return Finding("runtimes", Grade.NOTE, says, (runtime.insist,))
