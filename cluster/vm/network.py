"""The network of the virtual node: one tap device in a network namespace that ends with its last process.

Nobody has to remove anything: the tap, its address and all connections are gone when the processes are, however they end.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from cluster.errors import ClusterError
from cluster.local.shell import run, run_json
from cluster.vm.layout import HOST_ADDRESS, PREFIX, TAP


def in_namespace(command: Sequence[str]) -> list[str]:
    """The same command, run in a new network namespace."""
    return [shutil.which("unshare") or "unshare", "--net", *command]


def make_tap() -> None:
    """The machine's end of the node's network; safe to repeat. Raises in a network that has other links."""
    links = run_json(["ip", "-json", "link", "show"])
    if others := [link["ifname"] for link in links if link["ifname"] not in ("lo", TAP) and "UP" in link["flags"]]:
        raise ClusterError(
            f"a virtual node needs a network namespace of its own, and this one has {', '.join(others)}: use `unshare --net`"
        )
    if any(link["ifname"] == TAP for link in links):
        return
    run(["ip", "link", "set", "lo", "up"])
    run(["ip", "tuntap", "add", TAP, "mode", "tap"])
    run(["ip", "address", "add", f"{HOST_ADDRESS}/{PREFIX}", "dev", TAP])
    run(["ip", "link", "set", TAP, "up"])
