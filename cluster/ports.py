"""Free ports of 127.0.0.1 for programs that we start.

Each process has its own block of ports, of those that kernels use neither for outgoing connections nor for port 0, and
that Kubernetes gives to no Service: a port stays free for its program while that is not up yet, or is away.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from functools import cache
from itertools import cycle, islice
from typing import Final

from cluster.errors import ClusterError

_PORTS: Final = range(20000, 30000)
_BLOCK: Final = 250


def free_port() -> int:
    """A port that is free at this moment, and that no other process gets from here while this one lives."""
    for port in islice(_own_ports(), _BLOCK):
        if _is_free(port):
            return port
    raise ClusterError(f"none of the {_BLOCK} ports of this process, which are between {_PORTS[0]} and {_PORTS[-1]}, is free")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


@cache
def _own_ports() -> Iterator[int]:
    """Round and round."""
    blocks = [_PORTS[first : first + _BLOCK] for first in range(0, len(_PORTS), _BLOCK)]
    if sys.platform != "linux":
        return cycle(blocks[os.getpid() % len(blocks)])
    for block in blocks:
        if _claim(f"accelshare-ports-{block[0]}"):
            return cycle(block)
    raise ClusterError(f"{len(blocks)} other processes have taken all ports between {_PORTS[0]} and {_PORTS[-1]} for themselves")


def _claim(name: str) -> bool:
    """A name that the kernel forgets with its holder; known where the ports are known too, in one network namespace."""
    lock = socket.socket(socket.AF_UNIX)
    try:
        lock.bind(f"\0{name}")
    except OSError:
        lock.close()
        return False
    lock.detach()  # open until the process ends
    return True
