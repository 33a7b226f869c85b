"""Each call has one answer: of the thread that handles it, or of the deadline's thread."""

import contextlib
import threading
from collections.abc import Iterator

from accelshare.agent.nri.protocol.link import Deadline

WAIT_S = 60.0


class Sent:
    """The errors that the deadline has sent."""

    def __init__(self) -> None:
        self.errors: list[bytes] = []
        self.any_sent = threading.Event()

    def __call__(self, error: bytes) -> None:
        self.errors.append(error)
        self.any_sent.set()


@contextlib.contextmanager
def running_deadline(sent: Sent) -> Iterator[Deadline]:
    deadline = Deadline(sent)
    deadline.start()
    try:
        yield deadline
    finally:
        deadline.stop()


def test_an_answer_in_time_is_sent() -> None:
    sent = Sent()
    with running_deadline(sent) as deadline:
        deadline.begin(WAIT_S, lambda: b"late")
        assert deadline.end()
    assert sent.errors == []


def test_a_call_that_takes_too_long_is_answered_by_the_deadline_only() -> None:
    sent = Sent()
    with running_deadline(sent) as deadline:
        deadline.begin(0.0, lambda: b"late")
        assert sent.any_sent.wait(WAIT_S)
        assert not deadline.end()
        deadline.begin(WAIT_S, lambda: b"again")
        assert deadline.end(), "the next call is not the one that was late"
    assert sent.errors == [b"late"]


def test_a_call_without_a_limit_is_answered() -> None:
    """A request that cannot be decoded has no limit."""
    with running_deadline(Sent()) as deadline:
        assert deadline.end()


def test_its_thread_ends_with_it() -> None:
    with running_deadline(Sent()) as deadline:
        pass
    deadline._thread.join(WAIT_S)
    assert not deadline._thread.is_alive()
