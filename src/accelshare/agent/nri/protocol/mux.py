"""NRI's multiplexer: several byte streams on one socket, in frames of an 8-byte header and a payload.

Belongs here: encoding and decoding frames, without I/O. Never: what the bytes of a stream mean (ttrpc.py).
"""

import struct
from collections.abc import Iterator
from typing import Final

from accelshare.agent.nri.protocol.errors import WireError

PLUGIN: Final = 1  # the stream on which the runtime calls the plugin
RUNTIME: Final = 2  # the stream on which the plugin calls the runtime

LARGEST_PAYLOAD: Final = 4 * 2**20 + 10
# The runtime reads the beginning of a message through a buffer of this size, and closes the connection if a frame does not fit.
# The rest of the message may be one frame of any size; many small frames would fill the runtime's queue of 256.
FIRST_FRAME: Final = 4096

_HEADER: Final = struct.Struct(">II")  # stream, length of the payload


def frames(stream: int, message: bytes) -> bytes:
    """One whole message as frames that a runtime can read."""
    first, rest = message[:FIRST_FRAME], message[FIRST_FRAME:]
    if len(rest) > LARGEST_PAYLOAD:
        raise WireError(f"message of {len(message)} bytes; at most {FIRST_FRAME + LARGEST_PAYLOAD} may be sent")
    if not rest:
        return _HEADER.pack(stream, len(first)) + first
    return b"".join((_HEADER.pack(stream, len(first)), first, _HEADER.pack(stream, len(rest)), rest))


class Frames:
    """Decodes frames from bytes that arrive in pieces."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Stream and payload of each frame that is now complete. WireError if the bytes are not frames."""
        self._buffer += data
        while len(self._buffer) >= _HEADER.size:
            stream, length = _HEADER.unpack_from(self._buffer)
            if length > LARGEST_PAYLOAD:
                raise WireError(f"frame of stream {stream} announces {length} bytes; at most {LARGEST_PAYLOAD} are allowed")
            end = _HEADER.size + length
            if len(self._buffer) < end:
                return
            payload = bytes(self._buffer[_HEADER.size : end])
            del self._buffer[:end]
            yield stream, payload
