"""Made-up results of a benchmark run."""

from bench.figures import Spread
from bench.node.results import (
    DEVICE_PLUGIN,
    NRI,
    Footprint,
    Footprints,
    Latency,
    NodeResults,
    PluginCalls,
    PodPair,
    Rush,
    Starting,
    Verb,
)
from bench.noise import Noise
from bench.procfs import Machine

NOISY = Noise(wall=Spread(0.04, 0.036, 0.052), cpu=Spread(0.04, 0.04, 0.044), samples=12, load_before=0.25, load_after=1.5)
MACHINE = Machine("a CPU", 2, 8.0, "6.18")
NOTHING = NodeResults(MACHINE, NOISY, {})


def at_rest(*, rss_mb: float = 50.0, idle_percent: float = 0.1) -> Footprints:
    return Footprints(NRI, 128, (Footprint(rss_mb, 30.0, 60.0, idle_percent),) * 3)


def started(*, total_s: float = 0.01) -> Starting:
    """Four containers; the runtime waited so long for all of them together."""
    pairs = {NRI: (PodPair(500.0, 510.0), PodPair(400.0, 440.0)), DEVICE_PLUGIN: (PodPair(500.0, 600.0), PodPair(500.0, 550.0))}
    latencies = (Latency("CreateContainer", 4, total_s * 3 / 4), Latency("StartContainer", 4, total_s / 4))
    return Starting(pairs, latencies, containers=4)


def rushed(way: str = NRI, victim: str = "agent", *, failed: int = 0) -> Rush:
    return Rush(way, victim, pods=60, assigned=60 - failed, misassigned=0, without_card=0, failed=failed, pending=0, corrected=2)


def whole() -> NodeResults:
    verb = Verb(tuple(float(ms) for ms in range(1, 201)), (1.5,) * 200)
    return NodeResults(
        MACHINE,
        NOISY,
        {"Python": "3.11.7"},
        calls=(PluginCalls(32_256, 504, verb, verb, 12.5),),
        footprints=(at_rest(),),
        starting=started(),
        rushes=(rushed(), rushed(), rushed(DEVICE_PLUGIN, "kubelet", failed=7)),
    )
