"""What asyncio's transports lack."""

import asyncio
import socket
import struct
from typing import Final

_NO_LINGER: Final = struct.pack("ii", 1, 0)


def discard_unread(transport: asyncio.Transport | None) -> None:
    """Make the kernel discard what the client has not read when this transport is aborted."""
    if transport is None or transport.is_closing():
        return
    connection: socket.socket | None = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
