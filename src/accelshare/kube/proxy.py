"""Which HTTP proxy, if any, the environment puts between us and a server. The rules are Go's, because kubectl's are.

Belongs here: HTTPS_PROXY, HTTP_PROXY and NO_PROXY. Never: urllib's reading of them, which knows no CIDR, so that
`NO_PROXY=10.96.0.0/12` would send every request of a pod to the proxy.
"""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit


def from_environment(server: str, environ: Mapping[str, str]) -> str | None:
    """The proxy's URL for this server, or None to go there directly."""
    parts = urlsplit(server)
    host, scheme = (parts.hostname or "").rstrip("."), parts.scheme
    proxy = _either(environ, f"{scheme}_proxy")
    if not proxy or _is_local(host):
        return None
    port = parts.port or (443 if scheme == "https" else 80)
    if any(_exempts(rule, host, port) for rule in _either(environ, "no_proxy").split(",")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _either(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name.upper()) or environ.get(name) or ""


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None


def _is_local(host: str) -> bool:
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def _exempts(rule: str, host: str, port: int) -> bool:
    rule = rule.strip().lower()
    if rule in ("", "*"):
        return rule == "*"
    address = _address(host)
    if "/" in rule:
        try:
            return address is not None and address in ipaddress.ip_network(rule, strict=False)
        except ValueError:
            return False
    if _address(rule) is None and rule.rpartition(":")[2].isdigit():
        rule, _, wanted = rule.rpartition(":")
        if int(wanted) != port:
            return False
    if address is not None:
        return address == _address(rule)
    if rule.startswith(("*.", ".")):
        return host.endswith(rule.lstrip("*"))
    return host == rule or host.endswith(f".{rule}")
