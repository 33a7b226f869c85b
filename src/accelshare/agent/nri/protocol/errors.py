"""What can go wrong between plugin and runtime.

    NriError
    ├── WireError     the peer sent bytes that no peer may send: the connection is of no use any more
    ├── GoneError     the connection ended before the answer came
    ├── LateError     the answer did not come in time
    └── StatusError   the peer answered a call with an error

Never: refusing a container, which is a handler's answer (handler.py).
"""

from enum import IntEnum


class Code(IntEnum):
    """The status codes that NRI's two sides use; the numbers are gRPC's."""

    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13


class NriError(Exception):
    """Anything that went wrong while speaking NRI."""


class WireError(NriError):
    """Bytes that cannot be read."""


class GoneError(NriError):
    """The peer has closed the connection."""


class LateError(NriError):
    """No answer in time."""


class StatusError(NriError):
    """An answer that is an error: a code and a text for people."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
