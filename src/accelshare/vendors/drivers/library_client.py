"""Calls a vendor's library from any thread, within a time limit: the helper process of its own stays open between calls.

Belongs here: the thread that owns the helper, and its queue of calls. Never: what is called; asyncio (`library_process.py`).

A call whose caller does not wait any more is not started. A helper that hangs, crashes or answers nonsense is killed, and the
next call opens another one. Opening a library can take seconds; it goes on when the caller has given up, so that a later call
succeeds.
"""

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

import msgspec

from accelshare.vendors.drivers.driver import NotInstalled, QueryFailed, excerpt
from accelshare.vendors.drivers.library_errors import DRIVER_MISMATCH, DRIVER_NOT_LOADED, LOST, UNINITIALIZED, LibraryError
from accelshare.vendors.drivers.library_process import (
    MOST_ANSWER_BYTES,
    START_S,
    Candidate,
    FailedCall,
    helper_command,
    read_answer,
)

T = TypeVar("T")
# Not about the call: the library must be opened again.
_BROKEN: Final = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, DRIVER_MISMATCH, LOST})


@runtime_checkable
class HasLimitLibrary(Protocol):
    """A driver whose library sets limits on cgroups, by the calls `set_memory_limit`, `memory_limit` and `memory_used`."""

    def limit_library(self) -> "LibraryClient":
        """A client of its own, so that limits do not wait for other queries."""
        ...


@dataclass(frozen=True, slots=True)
class _Call:
    what: str
    arguments: tuple[object, ...]
    into: Any
    answer: "Future[Any]"


class LibraryClient:
    """The first of these libraries that can be opened."""

    def __init__(self, name: str, candidates: Sequence[Candidate], *, timeout_s: float) -> None:
        """`timeout_s`: after that the helper is killed; a caller may wait for less."""
        self._name = name
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._helper = _Helper(tuple(candidates), timeout_s)
        self._start_lock = threading.Lock()  # any thread may make the first call
        self._thread: threading.Thread | None = None

    def call(self, what: str, *arguments: object, into: Any, timeout_s: float) -> Any:
        """The answer; QueryFailed if there is none in time."""
        with self._start_lock:
            if self._thread is None:
                # One thread for the helper's whole life: the kernel ends the helper with the thread that started it.
                self._thread = threading.Thread(target=self._helper.run, args=(self._calls,), name=self._name, daemon=True)
                self._thread.start()
        call = _Call(what, arguments, into, Future())
        self._calls.put(call)
        try:
            return call.answer.result(timeout_s)
        except TimeoutError:
            call.answer.cancel()
            raise QueryFailed(f"{what}: no answer within {timeout_s:.2g} s") from None

    def close(self) -> None:
        """End the helper; waits for the call that it is in."""
        with self._start_lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._calls.put(None)
            thread.join()


class _Helper:
    """The thread's side: one helper process at a time."""

    def __init__(self, candidates: tuple[Candidate, ...], timeout_s: float) -> None:
        self._candidates = candidates
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, calls: "SimpleQueue[_Call | None]") -> None:
        while (call := calls.get()) is not None:
            if not call.answer.set_running_or_notify_cancel():
                continue
            try:
                call.answer.set_result(self._answer(call))
            except Exception as error:
                call.answer.set_exception(error)
        self._end()

    def _answer(self, call: _Call) -> Any:
        if self._process is not None:
            try:
                return self._ask(call.what, call.arguments, call.into)
            except FailedCall as failed:
                if not isinstance(failed.error, LibraryError) or failed.error.code not in _BROKEN:
                    raise failed.error from None
                self._end()  # the driver was loaded again, for example
            except QueryFailed:
                pass  # the helper has ended since
        self._open()
        try:
            return self._ask(call.what, call.arguments, call.into)
        except FailedCall as failed:
            raise failed.error from None

    def _open(self) -> None:
        tried: list[str] = []
        absent = True
        for candidate in self._candidates:
            if not candidate.may_be_there:
                tried.append(f"{candidate.label}: cannot be loaded: no such file")
                continue
            try:
                if self._process is None:
                    self._start()
                self._ask("open", (candidate.session, candidate.library), type(None))
            except (QueryFailed, FailedCall) as error:
                tried.append(f"{candidate.label}: {error}")
                absent = absent and isinstance(error, FailedCall) and isinstance(error.error, NotInstalled)
            else:
                return
        self._end()
        raise (NotInstalled if absent else QueryFailed)("; ".join(tried) or "no library is known")

    def _start(self) -> None:
        try:
            self._process = subprocess.Popen(
                helper_command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,  # so that whatever a library starts ends with it
            )
        except OSError as error:
            raise QueryFailed(f"its helper process cannot be started: {error.strerror}") from error
        self._read("start", type(None), START_S)

    def _ask(self, what: str, arguments: Sequence[object], into: type[T]) -> T:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode([what, *arguments]) + b"\n")
        except OSError:
            pass  # a helper that has ended is noticed when its answer is read
        return self._read(what, into, self._timeout_s)

    def _read(self, what: str, into: type[T], timeout_s: float) -> T:
        try:
            return read_answer(self._line(what, timeout_s), into)
        except FailedCall:
            raise
        except (ValueError, msgspec.MsgspecError) as error:
            self._end()
            raise QueryFailed(f"gave an unreadable answer to {what}: {excerpt(str(error))}") from error
        except BaseException:
            self._end()
            raise

    def _line(self, what: str, timeout_s: float) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        file = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(file, select.POLLIN)
        line, deadline = b"", time.monotonic() + timeout_s
        while not line.endswith(b"\n"):
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not poll.poll(left_s * 1000):
                raise QueryFailed(f"gave no answer to {what} within {timeout_s:g} s and was killed")
            part = os.read(file, 65536)
            if not part:
                raise QueryFailed(f"its helper process ended during {what}")
            line += part
            if len(line) > MOST_ANSWER_BYTES:
                raise QueryFailed(f"gave an answer to {what} of more than {MOST_ANSWER_BYTES} bytes")
        return line

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        if process.poll() is None:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            try:
                process.wait(timeout=2)
            except subprocess.TimeoutExpired:
                pass  # it hangs in the kernel; it ends when that returns
