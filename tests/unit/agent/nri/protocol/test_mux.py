import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelshare.agent.nri.protocol.errors import WireError
from accelshare.agent.nri.protocol.mux import LARGEST_PAYLOAD, PLUGIN, Frames, frames


def test_a_long_message_begins_with_a_frame_that_fits_into_the_runtimes_buffer() -> None:
    """A first frame of more than 4096 bytes would close the connection, and the container would start without its card."""
    for size in (1, 4096, 4097, 20_000, 1_000_000, 4 * 2**20 + 10):
        message = bytes(size)
        cut = list(Frames().feed(frames(PLUGIN, message)))
        assert len(cut[0][1]) <= 4096
        assert len(cut) <= 2, "many frames would fill the runtime's queue"
        assert b"".join(payload for _, payload in cut) == message


@given(st.lists(st.tuples(st.integers(0, 5), st.binary(max_size=40)), max_size=8), st.integers(1, 20))
def test_frames_come_out_as_they_went_in_however_they_are_cut(sent: list[tuple[int, bytes]], size: int) -> None:
    raw = b"".join(frames(stream, payload) for stream, payload in sent)
    reader = Frames()
    received = [frame for i in range(0, len(raw), size) for frame in reader.feed(raw[i : i + size])]
    assert received == sent


@given(st.lists(st.binary(max_size=64), max_size=20))
def test_any_bytes_are_frames_or_a_wire_error(chunks: list[bytes]) -> None:
    reader = Frames()
    try:
        for chunk in chunks:
            list(reader.feed(chunk))
    except WireError:
        pass


def test_another_protocol_is_refused_at_its_first_bytes() -> None:
    """The link does not wait for the 791 MB that they seem to announce."""
    with pytest.raises(WireError, match=f"791752241 bytes; at most {LARGEST_PAYLOAD}"):
        list(Frames().feed(b"HTTP/1.1 400 Bad Request"))


def test_a_message_that_no_runtime_would_take_is_not_sent() -> None:
    with pytest.raises(WireError, match=f"at most {4096 + LARGEST_PAYLOAD}"):
        frames(PLUGIN, bytes(4096 + LARGEST_PAYLOAD + 1))
