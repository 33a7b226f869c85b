"""Runs calls that may hang: blocking calls on a thread, and a vendor's tool with limits on time and output.

Belongs here: threads that are abandoned, and finding, starting, reading and killing a program with its children. Never: what its
output means.
"""

import asyncio
import os
import selectors
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import IO, Any, Final, TypeVar

from accelshare.vendors.drivers.driver import NotInstalled, QueryFailed, excerpt

T = TypeVar("T")


class BlockingCalls:
    """Calls that must not overlap: a vendor's library, or one of its sessions.

    A thread inside a hanging library cannot be ended, so at most one is ever left behind: later calls fail at once
    until it comes back. Threads are daemons, so that a hanging library does not keep the process alive.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._turn = asyncio.Lock()
        self._running: Future[Any] | None = None
        self._abandoned = False

    async def run(self, call: Callable[[], T], *, timeout_s: float) -> T:
        """What the call returns or raises; QueryFailed if it, or the one before it, does not end in time."""
        async with self._turn:
            # A call whose caller was cancelled may still finish; one that was abandoned has had its time.
            if self._running is not None and not await _ended(self._running, 0 if self._abandoned else timeout_s):
                self._abandoned = True
                raise QueryFailed("an earlier call still hangs")
            future: Future[T] = Future()
            self._running, self._abandoned = future, False
            threading.Thread(target=_fulfil, args=(future, call), name=self._name, daemon=True).start()
            if not await _ended(future, timeout_s):
                self._abandoned = True
                raise QueryFailed(f"gave no answer within {timeout_s:g} s")
            return future.result()


async def _ended(future: "Future[Any]", timeout_s: float) -> bool:
    if future.done():
        return True
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def notify(_: "Future[Any]") -> None:
        try:
            loop.call_soon_threadsafe(ended.set)
        except RuntimeError:  # the loop is closed; nothing waits any more
            pass

    future.add_done_callback(notify)
    try:
        async with asyncio.timeout(timeout_s):
            await ended.wait()
    except TimeoutError:
        return future.done()
    return True


def _fulfil(future: "Future[T]", call: Callable[[], T]) -> None:
    try:
        result = call()
    except BaseException as error:  # raised where the result is awaited
        future.set_exception(error)
    else:
        future.set_result(result)


# The output for a whole node is a few KiB; a tool that prints without end must not fill the memory.
MOST_OUTPUT_BYTES: Final = 1 << 20
# By path, runs that a kill did not end, as when the vendor's kernel module hangs: each keeps a thread and a process.
_unkillable: Final[dict[str, "_Running"]] = {}


@dataclass(frozen=True, slots=True)
class Output:
    """Exit code and output of a tool that ended by itself."""

    code: int
    text: str
    complaint: str

    def checked(self) -> str:
        """The text, if the tool succeeded."""
        if self.code != 0:
            printed = excerpt(self.complaint) if self.complaint.strip() else excerpt(self.text)
            raise QueryFailed(f"ended with exit code {self.code} and printed {printed}")
        return self.text


async def run_tool(tool: str, *args: str, timeout_s: float) -> Output:
    """Runs a tool by name or path to its end; QueryFailed if it is missing, hangs or prints without end."""
    found = shutil.which(tool)
    if found is None:
        raise NotInstalled("no such file" if "/" in tool else "not found on PATH")
    if found in _unkillable and not _unkillable[found].over:
        raise QueryFailed("an earlier run still hangs and cannot be killed")
    running = _Running([found, *args], timeout_s)
    try:
        # The thread keeps the time itself; the margin is for a process that the kernel cannot end.
        return await BlockingCalls(f"tool {tool}").run(running.to_its_end, timeout_s=timeout_s + 2)
    except asyncio.CancelledError:
        running.end()
        raise
    except QueryFailed:
        if not running.over:
            _unkillable[found] = running
        raise


class _Running:
    """One run, which another thread may end."""

    def __init__(self, command: list[str], timeout_s: float) -> None:
        self._command = command
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._cancelled = False
        self.over = False  # nothing of it is left, not even its thread

    def to_its_end(self) -> Output:
        try:
            return self._output()
        finally:
            self.over = True

    def _output(self) -> Output:
        deadline = time.monotonic() + self._timeout_s
        with self._lock:
            if self._cancelled:
                raise QueryFailed("was cancelled")
            try:
                process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,  # so that its children can be ended with it
                )
            except OSError as error:
                raise QueryFailed(f"cannot be started: {error.strerror}") from error
            self._process = process
        with process:
            try:
                text, complaint = self._read(process, deadline)
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired as error:
                raise QueryFailed(f"gave no answer within {self._timeout_s:g} s and was killed") from error
            finally:
                self.end()
        return Output(process.returncode, text.decode("utf-8", "replace"), complaint.decode("utf-8", "replace"))

    def end(self) -> None:
        """Kills the tool and all that it started; a tool that has ended by itself is left alone."""
        with self._lock:
            self._cancelled = True
            if self._process is None or self._process.returncode is not None:
                return
            try:
                os.killpg(self._process.pid, signal.SIGKILL)  # it was not waited for, so the id is still its own
            except ProcessLookupError:
                pass

    def _read(self, process: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bytes]:
        assert process.stdout is not None
        assert process.stderr is not None
        read: dict[IO[bytes], bytearray] = {process.stdout: bytearray(), process.stderr: bytearray()}
        with selectors.DefaultSelector() as selector:
            for stream in read:
                selector.register(stream, selectors.EVENT_READ)
            while selector.get_map():
                left = deadline - time.monotonic()
                if left <= 0:
                    raise subprocess.TimeoutExpired(process.args, self._timeout_s)
                for key, _ in selector.select(left):
                    stream = next(stream for stream in read if stream.fileno() == key.fd)
                    part = os.read(key.fd, 65536)
                    if not part:
                        selector.unregister(stream)
                    read[stream] += part
                    if len(read[stream]) > MOST_OUTPUT_BYTES:
                        raise QueryFailed(f"printed more than {MOST_OUTPUT_BYTES} bytes and was killed")
        return bytes(read[process.stdout]), bytes(read[process.stderr])
