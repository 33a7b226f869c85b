"""The node's network: an empty bridge with its address, which keeps service addresses on this machine; and its removal.

A bridge, because kernels may lack the dummy link type.
"""

from __future__ import annotations

import contextlib
import ipaddress
import time
from pathlib import Path
from typing import Any, Final

from cluster.errors import ClusterError
from cluster.local.journal import Journal, Kind
from cluster.local.layout import BRIDGE, KERNEL_SETTINGS, NFT_TABLE, NODE_ADDRESS, POD_NETWORK, SERVICE_NETWORK
from cluster.local.shell import run, run_json

_FAMILIES: Final = ("ip", "ip6")
_SETTINGS: Final = Path("/proc/sys")
_LINKS_GO_LIMIT_S: Final = 120.0
_OURS: Final = tuple(ipaddress.IPv4Network(network) for network in (f"{NODE_ADDRESS}/32", SERVICE_NETWORK, POD_NETWORK))


def conflicts() -> list[str]:
    """What on this machine has our addresses, our link's name or kube-proxy's table."""
    found = [f"a link named {BRIDGE} exists"] if _link_exists(BRIDGE) else []
    for route in run_json(["ip", "-j", "-4", "route", "show", "table", "all"]):
        if (network := _network(route.get("dst", ""))) and any(network.subnet_of(ours) for ours in _OURS):
            found.append(
                f"{network} is routed to {route.get('dev', 'somewhere')}, and the cluster needs {', '.join(map(str, _OURS))}"
            )
    found += [f"the nft table {family} {NFT_TABLE} exists: another kube-proxy's" for family in _FAMILIES if _table_exists(family)]
    return found


def make(journal: Journal) -> None:
    """Bridge, address and route; forwarding between pods."""
    for setting in KERNEL_SETTINGS:
        file = _SETTINGS / setting
        if file.exists():
            journal.write(Kind.KERNEL_SETTING, setting, file.read_text().strip())
    for family in _FAMILIES:
        journal.write(Kind.NFT_TABLE, family)
    journal.write(Kind.NETWORK, BRIDGE)
    run(["ip", "link", "add", BRIDGE, "type", "bridge"])
    run(["ip", "address", "add", f"{NODE_ADDRESS}/32", "dev", BRIDGE])
    run(["ip", "link", "set", BRIDGE, "up"])
    run(["ip", "route", "add", SERVICE_NETWORK, "dev", BRIDGE])
    (_SETTINGS / "net/ipv4/ip_forward").write_text("1")


def exists() -> bool:
    return _link_exists(BRIDGE)


def remove_network() -> None:
    """The bridge with its address and route, and what is left of pods' links once their processes are gone."""
    if _link_exists(BRIDGE):
        run(["ip", "link", "delete", BRIDGE])
    deadline = time.monotonic() + _LINKS_GO_LIMIT_S
    # The kernel takes them away with the pods' namespaces; but connections that a killed pod left open, to a peer that is
    # gone too, can hold a namespace for minutes.
    while links := _pod_links():
        for link in links:
            with contextlib.suppress(ClusterError):  # the kernel was faster
                run(["ip", "link", "delete", link])
        if time.monotonic() > deadline:
            raise ClusterError(f"links of pods are still there: {', '.join(links)}; `ip link delete` removes one")
        time.sleep(0.05)


def remove_table(family: str) -> None:
    if _table_exists(family):
        run(["nft", "delete", "table", family, NFT_TABLE])


def restore_setting(setting: str, value: str) -> None:
    file = _SETTINGS / setting
    if file.exists() and file.read_text().strip() != value:
        file.write_text(value)


def _pod_links() -> list[str]:
    """Links that a pod's address is routed to."""
    pods = ipaddress.IPv4Network(POD_NETWORK)
    routes = run_json(["ip", "-j", "-4", "route", "show"])
    return sorted({route["dev"] for route in routes if (to := _network(route.get("dst", ""))) and to.subnet_of(pods)})


def _link_exists(name: str) -> bool:
    return (Path("/sys/class/net") / name).exists()


def _table_exists(family: str) -> bool:
    tables: list[dict[str, Any]] = run_json(["nft", "-j", "list", "tables", family])["nftables"]
    return any(entry.get("table", {}).get("name") == NFT_TABLE for entry in tables)


def _network(text: str) -> ipaddress.IPv4Network | None:
    try:
        return ipaddress.IPv4Network(text)
    except ValueError:  # "default", or another family's
        return None
