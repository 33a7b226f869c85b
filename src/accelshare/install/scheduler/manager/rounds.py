"""Look again and again, until told to stop.

Belongs here: the rhythm, signals, what an unreachable cluster means (wait a little longer). Never: what a look does.
"""

import asyncio
import contextlib
import logging
import signal
from typing import Final

from accelshare.install.scheduler.manager.node_reconciler import NodeReconciler
from accelshare.kube.errors import KubeError

log = logging.getLogger(__name__)
LONGEST_S: Final = 60.0


async def run(reconciler: NodeReconciler, *, node: str, every_s: float) -> None:
    """Until SIGTERM or SIGINT; what is under way then is finished first."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for received in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(received, stop.set)
    log.info("started node=%s every_s=%g", node, every_s)
    wait_s = every_s
    while not stop.is_set():
        try:
            await reconciler.look()
            wait_s = every_s
        except KubeError as error:
            log.warning("look node=%s outcome=no-answer problem=%r", node, str(error))
            wait_s = min(LONGEST_S, 2 * wait_s)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), wait_s)
    log.info("stopped node=%s", node)
