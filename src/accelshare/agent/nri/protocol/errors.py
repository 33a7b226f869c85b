"""Errors of the NRI connection.

    NriError
    ├── WireError     the peer sent bytes that break the protocol; the connection cannot go on
    ├── GoneError     the connection ended before the response came
    ├── LateError     the response did not come in time
    └── StatusError   the peer answered a call with an error

Never: refusing a container, which is a handler's answer (`Refuse` in plugin.py).
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
    """Anything that fails between plugin and runtime."""


class WireError(NriError):
    """Bytes that cannot be decoded or sent."""


class GoneError(NriError):
    """The peer has closed the connection."""


class LateError(NriError):
    """No response in time."""


class StatusError(NriError):
    """An error response: a code and a text for people."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
