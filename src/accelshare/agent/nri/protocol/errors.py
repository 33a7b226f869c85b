"""Errors of the NRI connection. Never: refusing a container, which is a handler's answer (`Refuse` in plugin.py)."""

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
    """The peer sent bytes that break the protocol, or a message cannot be sent; the connection cannot go on."""


class GoneError(NriError):
    """The connection ended before the response came."""


class LateError(NriError):
    """The response did not come in time."""


class StatusError(NriError):
    """The peer answered a call with an error: a code and a text for people."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
