"""The sockets on which callers come, and how many callers the process can have.

Belongs here: which addresses they are bound to, the limit of open files. Never: who comes, and what they are told (port.py).
"""

import socket
import sys
from typing import Any, Final, NamedTuple

# Files that are not callers' or their binds': standard streams, the loop's own, two ports, the log, two watches, events, fences.
OWN_FILES: Final = 40
MOST_CALLERS: Final = 1000
MOST_PROBES: Final = 100


class CannotServeError(Exception):
    """The port cannot be had; the message says which and why."""


class MostCallers(NamedTuple):
    """How many callers each port may have at once."""

    serving: int
    probing: int


def most_callers() -> MostCallers:
    """As many as leave each caller's bind a connection to the API server, under the limit of open files, which is raised."""
    files = _open_files() - OWN_FILES
    probing = min(MOST_PROBES, max(2, files // 8))
    return MostCallers(min(MOST_CALLERS, max(4, (files - probing) // 2)), probing)


def _open_files() -> int:
    if sys.platform == "win32":
        return OWN_FILES + 2 * MOST_CALLERS + MOST_PROBES
    import resource

    wanted = OWN_FILES + 2 * MOST_CALLERS + MOST_PROBES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else soft


def listen(host: str, port: int) -> socket.socket:
    """Bound to this host's address, or without a host to every address of the machine, IPv6 and IPv4."""
    try:
        everywhere = not host and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if everywhere else socket.AF_UNSPEC
        found = socket.getaddrinfo(host or None, port, family, socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        return _bound(socket.socket(family, kind, protocol), address, everywhere=everywhere)
    except OSError as error:
        raise CannotServeError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error


def _bound(listening: socket.socket, address: Any, *, everywhere: bool) -> socket.socket:
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Inherited by each connection; without it an answer can wait 40 ms for the peer's acknowledgement.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if everywhere:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.bind(address)
    except OSError:
        listening.close()
        raise
    return listening
