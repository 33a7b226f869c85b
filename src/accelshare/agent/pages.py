"""What the agent's port answers: whether it lives, whether it delivers, and its numbers.

Belongs here: a page for each path. Never: the port itself (status.py).
"""

from collections.abc import Callable, Mapping

from accelshare.agent.discovery.device_inventory import DeviceInventory
from accelshare.agent.discovery.device_monitor import DeviceMonitor
from accelshare.agent.metrics import Metrics
from accelshare.agent.status import Page


def pages(
    devices: DeviceInventory, metrics: Metrics, monitors: Mapping[str, DeviceMonitor], *, hears: Callable[[], bool]
) -> dict[str, Page]:
    """`hears`: the watch of this node's pods is current."""

    def ready() -> tuple[int, bytes]:
        if not hears():
            return 503, b"the watch of this node's pods is interrupted"
        # A kind's own problem is told on the node, and must not take the other kinds away with it.
        away = [name for name in devices.kinds if not devices.delivers.get(name, False) and name not in devices.problems]
        if not devices.kinds:
            return 503, b"no cards found yet"
        return (503, f"not delivering: {', '.join(away)}".encode()) if away else (200, b"ok")

    def numbers() -> tuple[int, bytes]:
        metrics.show_use(devices.kinds.values(), {name: monitor.used_mib() for name, monitor in monitors.items()})
        return 200, metrics.text()

    return {"/livez": lambda: (200, b"ok"), "/readyz": ready, "/metrics": numbers}
