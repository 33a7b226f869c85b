"""NRI's frames: several byte streams on one socket, each frame 8 bytes of header and its payload.

Belongs here: payload ⇄ frames, without I/O. Never: what the bytes of a stream mean (ttrpc.py).
"""

import struct
from collections.abc import Iterator
from typing import Final

from accelshare.agent.nri.protocol.errors import WireError

PLUGIN: Final = 1  # the stream on which the runtime calls the plugin
RUNTIME: Final = 2  # the stream on which the plugin calls the runtime

LARGEST_PAYLOAD: Final = 4 * 2**20 + 10
# The runtime reads a message's beginning through a buffer of this size, and closes the connection when a frame does not fit.
# The rest of a message may be one frame of any size. Many small frames instead would fill its queue of 256.
FIRST_FRAME: Final = 4096

_HEADER: Final = struct.Struct(">II")  # stream, length of the payload


def frames(stream: int, message: bytes) -> bytes:
    """One whole message as the frames that a runtime can read."""
    first, rest = message[:FIRST_FRAME], message[FIRST_FRAME:]
    if len(rest) > LARGEST_PAYLOAD:
        raise WireError(f"a message of {len(message)} bytes; at most {FIRST_FRAME + LARGEST_PAYLOAD} may be sent")
    if not rest:
        return _HEADER.pack(stream, len(first)) + first
    return b"".join((_HEADER.pack(stream, len(first)), first, _HEADER.pack(stream, len(rest)), rest))


class Frames:
    """Bytes as they come, cut into frames."""

    def __init__(self) -> None:
        self._waiting = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Each frame that is now complete: its stream and payload. WireError if the bytes are no frames."""
        self._waiting += data
        while len(self._waiting) >= _HEADER.size:
            stream, length = _HEADER.unpack_from(self._waiting)
            if length > LARGEST_PAYLOAD:
                raise WireError(f"a frame of stream {stream} says {length} bytes; at most {LARGEST_PAYLOAD} may come")
            end = _HEADER.size + length
            if len(self._waiting) < end:
                return
            payload = bytes(self._waiting[_HEADER.size : end])
            del self._waiting[:end]
            yield stream, payload
