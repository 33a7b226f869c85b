"""The cluster's network: a bridge with the first node's address, which keeps service addresses on this machine; and its removal.

A bridge, because kernels may lack the dummy link type. It is empty unless there are further nodes: each has a pair of links
between the bridge and its own network namespace.
"""

from __future__ import annotations

import contextlib
import ipaddress
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from cluster.errors import ClusterError
from cluster.local.journal import Journal, Kind
from cluster.local.layout import (
    BRIDGE,
    KERNEL_SETTINGS,
    NFT_TABLE,
    NODE_ADDRESS,
    NODE_NETWORK,
    POD_NETWORK,
    SERVICE_NETWORK,
    Layout,
)
from cluster.local.shell import run, run_json

_FAMILIES: Final = ("ip", "ip6")
_SETTINGS: Final = Path("/proc/sys")
_LINKS_GO_LIMIT_S: Final = 120.0
_LINK: Final = "eth0"  # of a further node


def conflicts(nodes: int = 1) -> list[str]:
    """What on this machine has our addresses, the names of our links or kube-proxy's table."""
    found = [f"a link named {link} exists" for link in _links()]
    nodes_network = f"{NODE_ADDRESS}/32" if nodes == 1 else NODE_NETWORK
    ours = [ipaddress.IPv4Network(network) for network in (nodes_network, SERVICE_NETWORK, POD_NETWORK)]
    for route in run_json(["ip", "-j", "-4", "route", "show", "table", "all"]):
        if (network := _network(route.get("dst", ""))) and any(network.subnet_of(each) for each in ours):
            found.append(
                f"{network} is routed to {route.get('dev', 'somewhere')}, and the cluster needs {', '.join(map(str, ours))}"
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


def connect(layout: Layout, nodes: int, holder: int) -> list[str]:
    """Links the bridge with a further node's network namespace, which is this process's, and routes its pods' addresses there.

    Returns the commands for `ip -batch` that give it its address and its routes to the other nodes' pods, to be run inside. Its
    own kube-proxy has to translate addresses of services: nothing on the bridge answers for them.
    """
    link = f"{BRIDGE}n{layout.number}"
    run(["ip", "link", "add", link, "type", "veth", "peer", "name", _LINK, "netns", str(holder)])
    run(["ip", "link", "set", link, "master", BRIDGE, "up"])
    run(["ip", "route", "add", f"{layout.address}/32", "dev", BRIDGE])
    run(["ip", "route", "add", layout.pod_network, "via", layout.address])
    others = [layout.node(number) for number in range(1, nodes + 1) if number != layout.number]
    return [
        f"address add {layout.address}/{ipaddress.IPv4Network(NODE_NETWORK).prefixlen} dev {_LINK}",
        f"link set {_LINK} up",
        f"route add {SERVICE_NETWORK} dev {_LINK}",
        *(f"route add {other.pod_network} via {other.address}" for other in others),
    ]


def exists() -> bool:
    return bool(_links())


def remove_network() -> None:
    """The bridge with its address and routes, the links of further nodes, and those that pods left with their processes gone."""
    _delete(_links())
    deadline = time.monotonic() + _LINKS_GO_LIMIT_S
    # The kernel takes them away with the pods' namespaces; but connections that a killed pod left open, to a peer that is
    # gone too, can hold a namespace for minutes.
    while links := [*_links(), *_pod_links()]:
        _delete(links)
        if time.monotonic() > deadline:
            raise ClusterError(f"links are still there: {', '.join(links)}; `ip link delete` removes one")
        time.sleep(0.05)


def remove_table(family: str) -> None:
    if _table_exists(family):
        run(["nft", "delete", "table", family, NFT_TABLE])


def restore_setting(setting: str, value: str) -> None:
    file = _SETTINGS / setting
    if file.exists() and file.read_text().strip() != value:
        file.write_text(value)


def _delete(links: Sequence[str]) -> None:
    for link in links:
        with contextlib.suppress(ClusterError):  # the kernel was faster
            run(["ip", "link", "delete", link])


def _links() -> list[str]:
    """The bridge, and the links of further nodes."""
    return sorted(path.name for path in Path("/sys/class/net").glob(f"{BRIDGE}*"))


def _pod_links() -> list[str]:
    """Links that a pod's address is routed to."""
    pods = ipaddress.IPv4Network(POD_NETWORK)
    routes = run_json(["ip", "-j", "-4", "route", "show"])
    return sorted({route["dev"] for route in routes if (to := _network(route.get("dst", ""))) and to.subnet_of(pods)})


def _table_exists(family: str) -> bool:
    tables: list[dict[str, Any]] = run_json(["nft", "-j", "list", "tables", family])["nftables"]
    return any(entry.get("table", {}).get("name") == NFT_TABLE for entry in tables)


def _network(text: str) -> ipaddress.IPv4Network | None:
    try:
        return ipaddress.IPv4Network(text)
    except ValueError:  # "default", or another family's
        return None
