"""The agent's HTTP port: liveness, readiness, metrics, and who uses the cards.

Belongs here: the pages, and bounds on what a client may cost: connections, bytes and time. Never: anything that changes state.
"""

from collections.abc import Callable, Mapping
from typing import Final

from accelshare.agent.discovery.device_inventory import DeviceInventory
from accelshare.agent.discovery.device_monitor import DeviceMonitor
from accelshare.agent.metrics import AgentMetrics
from accelshare.http.messages import JSON, TEXT, HttpRequest, Response
from accelshare.http.server import Server, listen
from accelshare.wire import usage
from accelshare.wire.usage import NodeUse

StatusPage = Callable[[], tuple[int, bytes]]
MAX_CONNECTIONS: Final = 64
MAX_HEAD_BYTES: Final = 16 * 1024
MAX_BODY_BYTES: Final = 4096  # probes send no body
LIMIT_S: Final = 10.0  # for an idle connection, for sending a request, and without a byte of the response read


def serve(host: str | None, port: int, pages: Mapping[str, StatusPage], *, limit_s: float = LIMIT_S) -> Server:
    """Serve GET on these paths; without a host at every address of the machine."""

    def handle(request: HttpRequest) -> Response:
        page = pages.get(request.path)
        status, body = page() if page is not None else (404, f"the paths are {', '.join(pages)}".encode())
        return Response(status, body, JSON if request.path == usage.PATH and status == 200 else TEXT)

    server = Server(
        handle,
        listen(host or "", port),
        max_body_bytes=MAX_BODY_BYTES,
        max_head_bytes=MAX_HEAD_BYTES,
        max_connections=MAX_CONNECTIONS,
        keep_alive_s=limit_s,
        unread_s=limit_s,
    )
    server.start()
    return server


def pages(
    devices: DeviceInventory,
    metrics: AgentMetrics,
    monitors: Mapping[str, DeviceMonitor],
    *,
    is_current: Callable[[], bool],
    latest_use: Callable[[], NodeUse | None] | None = None,
) -> dict[str, StatusPage]:
    """`is_current`: the watch of this node's pods is current. `latest_use`: the last sample; without it there is no such page."""

    def ready() -> tuple[int, bytes]:
        if not is_current():
            return 503, b"the watch of this node's pods is interrupted"
        # A kind with a problem of its own is reported on the Node, and must not make the other kinds unready.
        away = [name for name in devices.kinds if not devices.delivers.get(name, False) and name not in devices.problems]
        if not devices.kinds:
            return 503, b"no cards found yet"
        return (503, f"not delivering: {', '.join(away)}".encode()) if away else (200, b"ok")

    def use() -> tuple[int, bytes]:
        latest = latest_use() if latest_use is not None else None
        return (503, b"nothing has been sampled yet") if latest is None else (200, usage.write(latest))

    def numbers() -> tuple[int, bytes]:
        if latest_use is not None:
            metrics.show_usage(latest_use())
        metrics.show_use(devices.kinds.values(), {name: monitor.used_mib() for name, monitor in monitors.items()})
        return 200, metrics.text()

    shown = {"/livez": lambda: (200, b"ok"), "/readyz": ready, "/metrics": numbers}
    return shown if latest_use is None else {**shown, usage.PATH: use}
