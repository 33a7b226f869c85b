"""What a container runtime can do, by its version alone.

Belongs here: which version brings which part of NRI, read from the runtimes' own sources. Never: asking a runtime, and what an
agent has found out about one.
"""

import re
from dataclasses import dataclass
from typing import Final

from accelshare.install.preflight.findings import Finding, Grade

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


def shown(told: str) -> str:
    """`containerd 2.4.2` of `containerd://2.4.2`."""
    name, _, version = told.partition("://")
    return f"{name} {version}" if version else repr(told)


def judged(told: str, where: str) -> Finding:
    """How cards would be delivered by this runtime on these nodes, and what would make it better."""
    name, _, text = told.partition("://")
    found = re.match(r"v?(\d+)\.(\d+)", text)
    runtime = RUNTIMES.get(name)
    this = f"{shown(told)} on {where}"
    if runtime is None or found is None:
        return Finding("runtimes", Grade.NOTE, f"{this} has no NRI: cards are delivered by the device plugin interface")
    version = (int(found[1]), int(found[2]))
    if version < runtime.offers:
        needed = ".".join(map(str, runtime.offers))
        says = f"{this} is older than {needed} and has no NRI: cards are delivered by the device plugin interface"
        return Finding("runtimes", Grade.NOTE, says)
    if version < runtime.on_by_default:
        says = f"{this} has NRI, switched off unless you changed that: until then the device plugin interface delivers"
        return Finding("runtimes", Grade.NOTE, says, (runtime.switch_on,))
    by_plugin = "the device plugin interface delivers, and NRI corrects it by pod identity"
    if version < runtime.insists:
        says = f"{this} has NRI, but cannot refuse a container while the agent is away: {by_plugin}"
        return Finding("runtimes", Grade.FINE, says)
    says = f"{this} can deliver by pod identity, exactly, once it insists on the agent; until then {by_plugin}"
    return Finding("runtimes", Grade.NOTE, says, (runtime.insist,))
