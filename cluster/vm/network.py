"""The network of the virtual node: one tap device in a network namespace that ends with its last process.

Nobody has to remove anything: the tap, its address and all connections are gone when the processes are, however they end.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from cluster.errors import ClusterError
from cluster.local.shell import run, run_json
from cluster.vm.layout import HOST_ADDRESS, PREFIX, TAP


def in_namespace(command: Sequence[str]) -> list[str]:
    """The same command, run in a new network namespace."""
    return [shutil.which("unshare") or "unshare", "--net", *command]


def make_tap() -> None:
    """The machine's end of the node's network; safe to repeat. Raises outside of a namespace of our own."""
    if not _own_namespace():
        raise ClusterError("a virtual node needs a network namespace of its own: run this with `unshare --net`")
    if any(link["ifname"] == TAP for link in run_json(["ip", "-json", "link", "show"])):
        return
    run(["ip", "link", "set", "lo", "up"])
    run(["ip", "tuntap", "add", TAP, "mode", "tap"])
    run(["ip", "address", "add", f"{HOST_ADDRESS}/{PREFIX}", "dev", TAP])
    run(["ip", "link", "set", TAP, "up"])


def _own_namespace() -> bool:
    return Path("/proc/self/ns/net").readlink() != Path("/proc/1/ns/net").readlink()
