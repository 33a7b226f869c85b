"""`python -m tests.e2e.nri.mortal SOCKET WHEN`: a plugin process that kills itself with SIGKILL during a call.

WHEN is `create` (before its CreateContainer response), `validate` (after it) or `never`; `stop-create` sends SIGSTOP instead.
"""

import asyncio
import os
import signal
import sys
import threading
from pathlib import Path

from accelshare.agent.nri.protocol.connection import serve
from accelshare.agent.nri.protocol.nri_pb2 import Container, ContainerAdjustment, PodSandbox
from tests.contract.agent.nri.cards import Cards
from tests.contract.agent.nri.plugins import creation_and_validation


class Mortal(Cards):
    def __init__(self, when: str) -> None:
        super().__init__()
        self._when = when

    def create_container(self, pod: PodSandbox, container: Container) -> ContainerAdjustment:
        if self._when == "create":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._when == "stop-create":
            # To this thread: it stops before its next step. Another thread may take a while to stop the whole process.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        return super().create_container(pod, container)

    def validate_container(self, pod: PodSandbox, container: Container, adjust: ContainerAdjustment) -> None:
        if self._when == "validate":
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    socket, when = sys.argv[1:]
    work = serve(
        Path(socket),
        "accelshare",
        10,
        Mortal(when),
        select_events=creation_and_validation,
        on_connected=lambda *_: print(flush=True),
    )
    asyncio.run(work)


if __name__ == "__main__":
    main()
