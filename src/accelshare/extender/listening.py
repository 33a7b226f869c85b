"""The socket on which callers come.

Belongs here: which addresses it is bound to. Never: who comes, and what they are told (port.py).
"""

import socket
from typing import Any


class CannotServeError(Exception):
    """The port cannot be had; the message says which and why."""


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
