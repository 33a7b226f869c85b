"""containerd's metrics page gives the time of its calls to the agent; calls to other plugins are not counted."""

from bench.node.latency import between, latencies
from bench.node.results import Latency

PAGE = """\
# TYPE containerd_nri_plugin_latency_seconds histogram
containerd_nri_plugin_latency_seconds_bucket{operation="CreateContainer",plugin="10-accelshare",le="0.005"} 3
containerd_nri_plugin_latency_seconds_sum{operation="CreateContainer",plugin="10-accelshare"} 0.008
containerd_nri_plugin_latency_seconds_count{operation="CreateContainer",plugin="10-accelshare"} 4
containerd_nri_plugin_latency_seconds_sum{operation="StartContainer",plugin="10-accelshare"} 0.001
containerd_nri_plugin_latency_seconds_count{operation="StartContainer",plugin="10-accelshare"} 1
containerd_nri_plugin_latency_seconds_sum{operation="CreateContainer",plugin="20-other"} 5
containerd_nri_plugin_latency_seconds_count{operation="CreateContainer",plugin="20-other"} 5
containerd_nri_plugin_invocations_total{operation="CreateContainer",plugin="10-accelshare",status="success"} 4
"""


def test_only_the_named_plugins_calls_are_read() -> None:
    found = latencies(PAGE, "accelshare")
    assert found == {
        "CreateContainer": Latency("CreateContainer", 4, 0.008),
        "StartContainer": Latency("StartContainer", 1, 0.001),
    }
    assert found["CreateContainer"].mean_ms == 2.0


def test_a_page_without_them_has_none() -> None:
    assert latencies("# nothing\n", "accelshare") == {}


def test_only_what_came_to_it_counts() -> None:
    before = {"CreateContainer": Latency("CreateContainer", 3, 0.5), "StartContainer": Latency("StartContainer", 1, 0.25)}
    after = {
        "CreateContainer": Latency("CreateContainer", 5, 0.75),
        "StartContainer": Latency("StartContainer", 1, 0.25),
        "Synchronize": Latency("Synchronize", 1, 0.125),
    }
    assert between(before, after) == (Latency("CreateContainer", 2, 0.25), Latency("Synchronize", 1, 0.125))
