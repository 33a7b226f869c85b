"""HTTP/2's frames and the header blocks of responses (RFC 9113, RFC 7541).

Belongs here: from bytes to frames and back, without I/O and without the state of a connection. Never: what a frame changes.

Header blocks of requests are read by the hpack library. Those of responses are written here, as literals that leave the
client's table as it is, so they need no state. The h2 library would do all of this at several times the CPU
(`python -m bench.http_stacks`).
"""

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

import hpack

from accelshare.http.messages import Response, date

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MAX_WINDOW: Final = 2**31 - 1
DEFAULT_WINDOW: Final = 65_535
DEFAULT_FRAME_BYTES: Final = 16_384
MAX_FRAME_BYTES: Final = 2**24 - 1
MAX_REPEATED_HEADS: Final = 64  # kube-scheduler has one for each verb and length of the body
MAX_REPEATED_FIELDS: Final = 32
MAX_REPEATED_COST_BYTES: Final = 2048  # of each; those of kube-scheduler take some 1,200
HEADER_COST_BYTES: Final = 100  # of a header in memory, beside its text
MAX_LENGTH_DIGITS: Final = 18
RawHeaders: TypeAlias = tuple[tuple[bytes, bytes], ...]
# The bytes between these two are fields of the table (RFC 7541, section 6.1) whose index is complete.
_INDEXED: Final = 0x80
_LONG_INDEX: Final = 0xFF
HEAD: Final = struct.Struct(">HBBBI")  # length in two parts, kind, flags, stream
_SETTING: Final = struct.Struct(">HI")
_NUMBER: Final = struct.Struct(">I")

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
WITH_PRIORITY: Final = 0x20

HEADER_TABLE_SIZE: Final = 0x1
MAX_CONCURRENT_STREAMS: Final = 0x3
INITIAL_WINDOW_SIZE: Final = 0x4
MAX_FRAME_SIZE: Final = 0x5
MAX_HEADER_LIST_SIZE: Final = 0x6


class ErrorCode(IntEnum):
    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    COMPRESSION_ERROR = 0x9
    ENHANCE_YOUR_CALM = 0xB
    HTTP_1_1_REQUIRED = 0xD


class Http2Error(Exception):
    """The connection cannot go on: the client broke the protocol, or costs too much."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes


class RequestHead(NamedTuple):
    """A request without its body."""

    method: str  # empty: the client has sent no valid head of a request
    target: str
    headers: RawHeaders
    length: int | None  # of the body, if the client has declared it
    cost: int  # bytes in memory


NO_HEAD: Final = RequestHead("", "", (), None, 0)


class FrameReader:
    """Splits what a client sends into complete frames."""

    def __init__(self, *, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._expected = PREFACE  # what is still to come of it
        self._incomplete = b""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that this completes. Raises Http2Error if it is not HTTP/2 or a frame is too long."""
        if self._incomplete:
            data = self._incomplete + data
        at = 0
        if self._expected:
            at = min(len(data), len(self._expected))
            if data[:at] != self._expected[:at]:
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, "the connection does not begin with HTTP/2's preface")
            self._expected = self._expected[at:]
        self._incomplete = b""
        while at + HEAD.size <= len(data):
            high, low, kind, flags, stream = HEAD.unpack_from(data, at)
            size = (high << 8) + low
            if size > self._max_frame_bytes:
                raise Http2Error(
                    ErrorCode.FRAME_SIZE_ERROR, f"a frame of {size} bytes; at most {self._max_frame_bytes} are allowed"
                )
            end = at + HEAD.size + size
            if end > len(data):
                break
            yield Frame(kind, flags, stream & MAX_WINDOW, data[at + HEAD.size : end])
            at = end
        self._incomplete = data[at:]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    size = len(payload)
    return HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


def settings(values: dict[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(name, value) for name, value in values.items()))


def read_settings(payload: bytes) -> Iterator[tuple[int, int]]:
    if len(payload) % _SETTING.size:
        raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, f"settings of {len(payload)} bytes; each has {_SETTING.size}")
    return _SETTING.iter_unpack(payload)


def window_update(stream: int, size: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, _NUMBER.pack(size))


def reset(stream: int, code: ErrorCode) -> bytes:
    return frame(RST_STREAM, 0, stream, _NUMBER.pack(code))


def go_away(last_stream: int, code: ErrorCode, text: str = "") -> bytes:
    return frame(GOAWAY, 0, 0, _NUMBER.pack(last_stream) + _NUMBER.pack(code) + text.encode())


def read_number(payload: bytes, what: str) -> int:
    """A frame that has one number of 31 bits."""
    if len(payload) != _NUMBER.size:
        raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, f"a {what} of {len(payload)} bytes; it must have {_NUMBER.size}")
    number: int = _NUMBER.unpack(payload)[0]
    return number & MAX_WINDOW


def content(received: Frame) -> bytes:
    """The payload without its padding and, in HEADERS, without the obsolete priority."""
    if not received.flags & (PADDED | WITH_PRIORITY):
        return received.payload
    start, end = 0, len(received.payload)
    if received.flags & PADDED:
        start, end = 1, end - (received.payload[0] if received.payload else 1)
    if received.kind == HEADERS and received.flags & WITH_PRIORITY:
        start += 5
    if start > end:
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a frame whose padding is longer than itself")
    return received.payload[start:end]


class HeadReader:
    """Decodes the header blocks of one connection, with bounds on what they become."""

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._decoder = hpack.Decoder(max_header_list_size=max_bytes)
        self._repeated: dict[bytes, RequestHead] = {}

    def read(self, block: bytes) -> RequestHead:
        """Raises Http2Error if it cannot be decoded.

        kube-scheduler's requests soon consist of fields that are in the table, one byte each. Such a block changes nothing in
        the table, so it means the same until another one does.
        """
        known = self._repeated.get(block)
        if known is not None:
            return known
        try:
            head = _request_head([(bytes(name), bytes(value)) for name, value in self._decoder.decode(block, raw=True)])
        except hpack.OversizedHeaderListError as error:
            text = f"the request's head is longer than {self._max_bytes} bytes"
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, text) from error
        except hpack.HPACKError as error:
            raise Http2Error(ErrorCode.COMPRESSION_ERROR, f"headers cannot be decoded: {error}") from error
        if block and min(block) > _INDEXED and max(block) < _LONG_INDEX:
            is_small = len(block) <= MAX_REPEATED_FIELDS and head.cost <= MAX_REPEATED_COST_BYTES
            if is_small and len(self._repeated) < MAX_REPEATED_HEADS:
                self._repeated[block] = head
        else:
            self._repeated.clear()
        return head


def _request_head(fields: Sequence[tuple[bytes, bytes]]) -> RequestHead:
    cost = sum(len(name) + len(value) + HEADER_COST_BYTES for name, value in fields)
    pseudo: dict[bytes, bytes] = {}
    headers: list[tuple[bytes, bytes]] = []
    length: int | None = None
    is_valid = True
    for name, value in fields:
        if name[:1] != b":":
            headers.append((name, value))
        else:
            is_valid = is_valid and not headers and name not in pseudo
            pseudo[name] = value
        if name == b"content-length":
            is_valid = is_valid and length is None and value.isdigit() and len(value) <= MAX_LENGTH_DIGITS
            length = int(value) if is_valid else None
    method, target = pseudo.get(b":method", b""), pseudo.get(b":path", b"")
    if not is_valid or not method or not target:
        return NO_HEAD._replace(cost=cost)
    return RequestHead(method.decode("latin-1"), target.decode("latin-1"), tuple(headers), length, cost)


# "The table is empty": a client that has changed the size of its table expects an answer (RFC 7541, section 4.2).
NO_TABLE: Final = b"\x20"
# Indexes in HPACK's static table, RFC 7541 appendix A.
_STATUS: Final = 8
_STATUSES: Final = {200: b"\x88", 400: b"\x8c", 404: b"\x8d", 500: b"\x8e"}
_CONTENT_LENGTH, _CONTENT_TYPE, _DATE = 28, 31, 33


def response_head(response: Response) -> bytes:
    """The header block of a response whose size is known."""
    return _fixed_head(response.status, response.content_type, response.headers, date()) + _content_length(response.size)


@lru_cache(maxsize=64)
def _fixed_head(status: int, content_type: str, headers: tuple[str, ...], now: str) -> bytes:
    block = _STATUSES.get(status) or _literal(_STATUS, str(status))
    return block + _literal(_CONTENT_TYPE, content_type) + _literal(_DATE, now) + _others(headers)


@lru_cache(maxsize=256)
def _content_length(size: int) -> bytes:
    return _literal(_CONTENT_LENGTH, str(size))


def _others(headers: Sequence[str]) -> bytes:
    block = b""
    for header in headers:
        name, _, value = header.partition(":")
        block += b"\x00" + _text(name.strip().lower()) + _text(value.strip())
    return block


def _literal(name: int, value: str) -> bytes:
    """A header with a name of the static table, which no table remembers."""
    return _integer(name, 4) + _text(value)


def _text(value: str) -> bytes:
    encoded = value.encode("latin-1")
    return _integer(len(encoded), 7) + encoded


def _integer(value: int, bits: int) -> bytes:
    """RFC 7541, section 5.1; the bits before the prefix are 0."""
    most = (1 << bits) - 1
    if value < most:
        return bytes((value,))
    encoded, value = bytearray((most,)), value - most
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
