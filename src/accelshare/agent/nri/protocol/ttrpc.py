"""ttrpc: calls and their answers on one byte stream. Unary calls only, which is all that NRI has.

Belongs here: the packet header, Request and Response, how an answer that fails becomes a status. Never: sockets (link.py),
what is called (messages.py).
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
LONGEST_TEXT: Final = 4000  # of a status: people read it
_HEADER: Final = struct.Struct(">IIBB")  # length of the data, call, kind, flags


class Kind(IntEnum):
    """What a packet is. Data belongs to streaming calls, which NRI has none of."""

    REQUEST = 1
    RESPONSE = 2
    DATA = 3


@dataclass(frozen=True, slots=True)
class Packet:
    """One message of a stream: which call it belongs to, what it is, and its content."""

    call: int
    kind: int
    data: bytes


def packet(call: int, kind: Kind, data: bytes) -> bytes:
    """The bytes of one packet."""
    if len(data) > LARGEST_DATA:
        raise WireError(f"a {kind.name.lower()} of {len(data)} bytes; at most {LARGEST_DATA} may be sent")
    return _HEADER.pack(len(data), call, kind, 0) + data


class Packets:
    """Bytes as they come, cut into packets."""

    def __init__(self) -> None:
        self._waiting = bytearray()

    def feed(self, data: bytes) -> Iterator[Packet]:
        """Each packet that is now complete. WireError if the bytes are no packets."""
        self._waiting += data
        while len(self._waiting) >= _HEADER.size:
            length, call, kind, _flags = _HEADER.unpack_from(self._waiting)
            if length > LARGEST_DATA:
                raise WireError(f"a packet of call {call} says {length} bytes; at most {LARGEST_DATA} may come")
            end = _HEADER.size + length
            if len(self._waiting) < end:
                return
            content = bytes(self._waiting[_HEADER.size : end])
            del self._waiting[:end]
            yield Packet(call, kind, content)


Answer = Callable[[Request], bytes]


def answered(call: int, data: bytes, answer: Answer) -> bytes:
    """The packet that answers this request. Whatever goes wrong is told to the caller: silence would be taken for consent."""
    method = "?"
    try:
        request = decode(Request, data)
        method = request.method
        return packet(call, Kind.RESPONSE, Response(payload=answer(request)).SerializeToString())
    except StatusError as error:
        return refused(call, error)
    except WireError as error:
        log.warning("call method=%s outcome=failed error=%r", method, str(error))
        return refused(call, StatusError(Code.INVALID_ARGUMENT, f"{method}: {error}"))
    except Exception as error:
        log.exception("call method=%s outcome=failed", method)
        return refused(call, StatusError(Code.INTERNAL, f"{method}: {type(error).__name__}: {error}"))


def refused(call: int, error: StatusError) -> bytes:
    """The packet that answers a call with an error."""
    # A text for people of any length and content is cut to one that fits, and what is no character is shown as such.
    text = error.text[:LONGEST_TEXT].encode(errors="backslashreplace").decode()
    return packet(call, Kind.RESPONSE, Response(status=Status(code=error.code, message=text)).SerializeToString())


class Calls:
    """The calls of ours that wait for an answer."""

    def __init__(self) -> None:
        self._next = 1  # a client's calls have odd numbers
        self._waiting: dict[int, asyncio.Future[bytes]] = {}

    def begin(self) -> tuple[int, asyncio.Future[bytes]]:
        """The number of a new call, and where its answer will be."""
        call = self._next
        self._next += 2
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[call] = future
        return call, future

    def finish(self, answer: Packet) -> None:
        """An answer has come; one that nobody waits for any more is dropped."""
        future = self._waiting.pop(answer.call, None)
        if future is None or future.done():
            return
        try:
            response = decode(Response, answer.data)
        except WireError as error:
            future.set_exception(error)
            return
        if response.status.code:
            future.set_exception(StatusError(response.status.code, response.status.message))
        else:
            future.set_result(response.payload)

    def forget(self, call: int) -> None:
        self._waiting.pop(call, None)

    def end(self, error: Exception) -> None:
        """No answer will come any more."""
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error)
