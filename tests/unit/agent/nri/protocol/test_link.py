"""Each call has one answer: of the thread that handles it, or of the deadline's thread."""

import contextlib
import threading
from collections.abc import Iterator

from accelshare.agent.nri.protocol.link import Deadline

WAIT_S = 60.0


class Sent:
    """What the clock has said."""

    def __init__(self) -> None:
        self.words: list[bytes] = []
        self.something = threading.Event()

    def __call__(self, words: bytes) -> None:
        self.words.append(words)
        self.something.set()


@contextlib.contextmanager
def minding(sent: Sent) -> Iterator[Deadline]:
    deadline = Deadline(sent)
    deadline.start()
    try:
        yield deadline
    finally:
        deadline.stop()


def test_an_answer_in_time_is_wanted() -> None:
    sent = Sent()
    with minding(sent) as deadline:
        deadline.begin(WAIT_S, lambda: b"late")
        assert deadline.end()
    assert sent.words == []


def test_a_call_that_takes_too_long_is_answered_by_the_clock_and_by_nobody_else() -> None:
    sent = Sent()
    with minding(sent) as deadline:
        deadline.begin(0.0, lambda: b"late")
        assert sent.something.wait(WAIT_S)
        assert not deadline.end()
        deadline.begin(WAIT_S, lambda: b"again")
        assert deadline.end(), "the next call is not the one that was late"
    assert sent.words == [b"late"]


def test_who_was_never_minded_is_wanted() -> None:
    """A request that cannot be read has no deadline of its own."""
    with minding(Sent()) as deadline:
        assert deadline.end()


def test_its_thread_ends_with_it() -> None:
    with minding(Sent()) as deadline:
        pass
    deadline._thread.join(WAIT_S)
    assert not deadline._thread.is_alive()
