"""Checks for programs, ports and networks of this machine that conflict with the local cluster. Read-only."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from cluster.errors import ClusterError
from cluster.local import network, processes
from cluster.local.layout import PORTS

# Two kubelets on one machine take each other's pods for orphans. The others have a kubelet inside.
_KUBELETS: Final = frozenset({"kubelet", "hyperkube", "k3s", "k3s-server", "k3s-agent", "rke2", "kubelite", "k0s"})
_LISTENING: Final = "0A"  # TCP_LISTEN, include/net/tcp_states.h


def refuse_other_systems() -> None:
    """Before anything is built."""
    if sys.platform != "linux":
        raise ClusterError(f"the local cluster runs real containers, so it needs Linux; this is {sys.platform}")
    if os.geteuid() != 0:
        raise ClusterError("the local cluster makes namespaces, cgroups and network links, so it needs root: try `sudo make up`")


def refuse_conflicts(nodes: int = 1) -> None:
    """All reasons at once."""
    reasons = [*_kubelets(), *_ports(), *network.conflicts(nodes)]
    if reasons:
        listed = "".join(f"\n  - {reason}" for reason in reasons)
        raise ClusterError(f"the local cluster would get in the way of what is here already, so nothing was touched:{listed}")


def _kubelets() -> list[str]:
    return [
        f"{name} runs as process {pid}: two kubelets on one machine end each other's pods"
        for pid in processes.everyone()
        if (name := processes.name(pid)) in _KUBELETS and processes.identity(pid) is not None
    ]


def _ports() -> list[str]:
    taken: dict[int, str] = {}
    for table in ("tcp", "tcp6"):
        file = Path("/proc/net") / table
        for line in file.read_text().splitlines()[1:] if file.exists() else []:
            _, local, _, state, *fields = line.split()
            port = int(local.rpartition(":")[2], 16)
            if state == _LISTENING and port in PORTS:
                taken.setdefault(port, fields[5])
    return [f"port {port}, which {PORTS[port]} needs, is taken{_by_whom(inode)}" for port, inode in sorted(taken.items())]


def _by_whom(inode: str) -> str:
    for pid in processes.everyone():
        try:
            files = [str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue
        if f"socket:[{inode}]" in files:
            return f" by process {pid} ({processes.name(pid)})"
    return ""
