"""ttrpc: requests and responses on one byte stream. Unary calls only, because NRI has no others.

Belongs here: the packet header, pending calls, how a failure becomes a status. Never: sockets (link.py), methods (plugin.py).
"""

import asyncio
import logging
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from accelshare.agent.nri.protocol.errors import Code, StatusError, WireError
from accelshare.agent.nri.protocol.messages import decode
from accelshare.agent.nri.protocol.ttrpc_pb2 import Request, Response, Status

log = logging.getLogger(__name__)
LARGEST_DATA: Final = 4 * 2**20
LONGEST_TEXT: Final = 4000  # characters of an error that people read
_HEADER: Final = struct.Struct(">IIBB")  # length of the data, call, type, flags


class PacketType(IntEnum):
    """ttrpc's message types. DATA belongs to streaming calls, which NRI does not have."""

    REQUEST = 1
    RESPONSE = 2
    DATA = 3


@dataclass(frozen=True, slots=True)
class Packet:
    """One ttrpc message: the call that it belongs to, its type and its content."""

    call: int
    type: int
    data: bytes


def packet(call: int, type_: PacketType, data: bytes) -> bytes:
    """The bytes of one packet."""
    if len(data) > LARGEST_DATA:
        raise WireError(f"{type_.name.lower()} of {len(data)} bytes; at most {LARGEST_DATA} may be sent")
    return _HEADER.pack(len(data), call, type_, 0) + data


class Packets:
    """Decodes packets from bytes that arrive in pieces."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Packet]:
        """Each packet that is now complete. WireError if the bytes are not packets."""
        self._buffer += data
        while len(self._buffer) >= _HEADER.size:
            length, call, type_, _flags = _HEADER.unpack_from(self._buffer)
            if length > LARGEST_DATA:
                raise WireError(f"packet of call {call} announces {length} bytes; at most {LARGEST_DATA} are allowed")
            end = _HEADER.size + length
            if len(self._buffer) < end:
                return
            content = bytes(self._buffer[_HEADER.size : end])
            del self._buffer[:end]
            yield Packet(call, type_, content)


RequestHandler = Callable[[Request], bytes]  # returns the response's payload or raises


def response_packet(call: int, data: bytes, handler: RequestHandler) -> bytes:
    """The packet that answers this request. Every failure becomes an error response: without one the runtime goes on."""
    method = "?"
    try:
        request = decode(Request, data)
        method = request.method
        return packet(call, PacketType.RESPONSE, Response(payload=handler(request)).SerializeToString())
    except StatusError as error:
        return error_packet(call, error)
    except WireError as error:
        log.warning("call method=%s outcome=failed error=%r", method, str(error))
        return error_packet(call, StatusError(Code.INVALID_ARGUMENT, f"{method}: {error}"))
    except Exception as error:
        log.exception("call method=%s outcome=failed", method)
        return error_packet(call, StatusError(Code.INTERNAL, f"{method}: {type(error).__name__}: {error}"))


def error_packet(call: int, error: StatusError) -> bytes:
    """The packet that answers a call with an error, whatever its text contains and however long it is."""
    text = error.text[:LONGEST_TEXT].encode(errors="backslashreplace").decode()
    return packet(call, PacketType.RESPONSE, Response(status=Status(code=error.code, message=text)).SerializeToString())


class PendingCalls:
    """Our calls that have no response yet."""

    def __init__(self) -> None:
        self._next = 1  # a client's calls have odd numbers
        self._futures: dict[int, asyncio.Future[bytes]] = {}

    def begin(self) -> tuple[int, asyncio.Future[bytes]]:
        """The number of a new call, and the future of its response."""
        call = self._next
        self._next += 2
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._futures[call] = future
        return call, future

    def finish(self, received: Packet) -> None:
        """Deliver a response; one to a call that is no longer pending is dropped."""
        future = self._futures.pop(received.call, None)
        if future is None or future.done():
            return
        try:
            response = decode(Response, received.data)
        except WireError as error:
            future.set_exception(error)
            return
        if response.status.code:
            future.set_exception(StatusError(response.status.code, response.status.message))
        else:
            future.set_result(response.payload)

    def forget(self, call: int) -> None:
        self._futures.pop(call, None)

    def fail(self, error: Exception) -> None:
        """Fail all pending calls: the connection ended."""
        futures, self._futures = self._futures, {}
        for future in futures.values():
            if not future.done():
                future.set_exception(error)
