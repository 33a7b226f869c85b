"""The delivery mode: whether the container runtime (NRI) or kubelet's device plugins give containers their cards on this node.

Belongs here: the value, the pure function that decides it, and the holder through which all parts read it. Never: how cards are
delivered, or what happens when another mode becomes right (delivery.py).
"""

import threading
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Final

from accelshare.runtimes.validator_status import ValidatorStatus

AUTO: Final = "auto"  # the value of --delivery that leaves the decision to `decide`


class Deliverer(Enum):
    """Who gives containers their cards. The values are those of --delivery and of the Node's inventory annotation."""

    UNDECIDED = ""
    NRI = "nri"
    DEVICE_PLUGIN = "device-plugin"


@dataclass(frozen=True, slots=True)
class DeliveryMode:
    deliverer: Deliverer
    reason: str
    validated: bool = False  # the runtime's validator refuses containers while the agent is away
    nri_corrects: bool = False  # device plugins deliver, and NRI makes variables that name cards equal to the pod's record
    corrected_kinds: frozenset[str] = frozenset()  # the kinds whose containers NRI corrects

    @property
    def name(self) -> str:
        """As the Node's inventory annotation has it."""
        return f"{self.deliverer.value}+{Deliverer.NRI.value}" if self.nri_corrects else self.deliverer.value

    @property
    def by_nri(self) -> bool:
        return self.deliverer is Deliverer.NRI


UNDECIDED: Final = DeliveryMode(Deliverer.UNDECIDED, "the agent is starting")


def decide(
    requested: str,
    *,
    validator: ValidatorStatus,
    connected: bool,
    served_pods: Collection[str],
    correctable_kinds: Collection[str],
) -> DeliveryMode:
    """The mode for this value of --delivery, this state of the runtime's validator, and these living pods that a device plugin
    has served: kubelet asks a device plugin for their resources and rejects every other pod while there is none.

    `connected`: the runtime has connected to our NRI plugin. `correctable_kinds`: kinds that are given by variables only.
    """
    if requested == Deliverer.NRI.value:
        return DeliveryMode(Deliverer.NRI, f"--delivery={requested}; {validator.why}", validated=validator.enabled)
    if requested == Deliverer.DEVICE_PLUGIN.value:
        return DeliveryMode(Deliverer.DEVICE_PLUGIN, f"--delivery={requested}")
    if validator.enabled and not served_pods:
        return DeliveryMode(Deliverer.NRI, validator.why, validated=True)
    reason = validator.why
    if validator.enabled:
        reason = f"staying on device plugins until these pods end: {', '.join(sorted(served_pods))}"
    corrected = frozenset(correctable_kinds) if connected else frozenset()
    return DeliveryMode(Deliverer.DEVICE_PLUGIN, reason, nri_corrects=connected, corrected_kinds=corrected)


class CurrentMode:
    """Holds the mode that is in force. The main loop sets it; the thread that answers the runtime reads it, too."""

    def __init__(self, mode: DeliveryMode = UNDECIDED) -> None:
        self._lock = threading.Lock()
        self._mode = mode

    def get(self) -> DeliveryMode:
        with self._lock:
            return self._mode

    def set(self, mode: DeliveryMode) -> None:
        with self._lock:
            self._mode = mode
