"""The results of the node as values.

Belongs here: the shapes of results. Never: how they came to be, or what they are worth.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bench.noise import Noise
from bench.procfs import Machine

NRI: Final = "nri"
DEVICE_PLUGIN: Final = "device-plugin"
WAYS: Final = (NRI, DEVICE_PLUGIN)
VICTIMS: Final = ("agent", "kubelet")


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb of the device plugin interface, called many times."""

    wall_ms: tuple[float, ...]
    cpu_ms: tuple[float, ...]  # the agent's, while the call lasted


@dataclass(frozen=True, slots=True)
class PluginCalls:
    """Pods of one size on a node with so many ids."""

    ids: int
    asks: int
    prefer: Verb
    allocate: Verb
    pod_cpu_ms: float  # all that the agent did for one pod, from its arrival to its end


@dataclass(frozen=True, slots=True)
class Footprint:
    """One start of the agent with nothing to do."""

    rss_mb: float
    private_mb: float
    peak_mb: float
    idle_percent: float  # of one core


@dataclass(frozen=True, slots=True)
class Footprints:
    """Several starts of one kind."""

    way: str
    units: int
    starts: tuple[Footprint, ...]


@dataclass(frozen=True, slots=True)
class PodPair:
    """Two pods, one after the other: from bound to the first line that the container prints."""

    nothing_ms: float
    card_ms: float


@dataclass(frozen=True, slots=True)
class Latency:
    """Calls of one kind that containerd made to the agent, timed by containerd."""

    operation: str
    calls: int
    total_s: float

    @property
    def mean_ms(self) -> float:
        return 1000 * self.total_s / self.calls


@dataclass(frozen=True, slots=True)
class Starting:
    """All rounds of each way, in the order in which they were run, and what the runtime's calls took meanwhile."""

    pairs: Mapping[str, tuple[PodPair, ...]]
    latencies: tuple[Latency, ...]
    containers: int  # made while these calls were counted


@dataclass(frozen=True, slots=True)
class Rush:
    """Equal pods that come at once, and what became of them when somebody was killed in the middle."""

    way: str
    victim: str
    pods: int
    assigned: int  # run, and see just the card of their record
    misassigned: int  # run, and see another
    without_card: int  # ran without a card, whether the agent then replaced them or not
    failed: int  # rejected by kubelet
    pending: int  # still not running when the wait ended
    corrected: int  # records that had to follow what kubelet gave


@dataclass(frozen=True, slots=True)
class NodeResults:
    machine: Machine
    noise: Noise
    versions: Mapping[str, str]
    calls: tuple[PluginCalls, ...] = ()
    footprints: tuple[Footprints, ...] = ()
    starting: Starting | None = None
    rushes: tuple[Rush, ...] = ()
