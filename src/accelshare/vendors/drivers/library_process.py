"""Calls a vendor's library in a helper process: if it crashes or hangs, only that process ends.

Belongs here: starting, calling and ending the helper, and trying the candidates for a library. Never: what is called.

The helper is killed when an answer is late or unreadable, and when the caller is cancelled.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from accelshare.vendors.drivers.driver import DriverError, Listing, NotInstalled, QueryFailed, excerpt
from accelshare.vendors.drivers.library_errors import LibraryError

log = logging.getLogger(__name__)

T = TypeVar("T")

START_S: Final = 30.0  # for Python to start on a busy machine; a library is not yet loaded then
END_S: Final = 2.0  # for the kernel to end a killed process
MOST_ANSWER_BYTES: Final = 1 << 20


class Answer(msgspec.Struct):
    """An answer of the helper: its result, or why there is none."""

    result: msgspec.Raw = msgspec.Raw(b"null")
    failed: str | None = None
    code: int | None = None
    absent: bool = False


class FailedCall(Exception):  # noqa: N818 (the name reads as the error)
    """The helper works, and the call in it failed; `error` says why."""

    def __init__(self, error: QueryFailed) -> None:
        super().__init__(str(error))
        self.error = error


def helper_command() -> tuple[str, ...]:
    """Starts a helper that ends with this process."""
    return sys.executable, "-P", "-m", "accelshare.vendors.drivers.library_main", str(os.getpid())


def read_answer(line: bytes, into: type[T]) -> T:
    """The result in a line of the helper; FailedCall if the call failed, ValueError or MsgspecError if it is no answer."""
    answer = msgspec.json.decode(line, type=Answer)
    if answer.failed is None:
        return msgspec.json.decode(answer.result, type=into)
    if answer.code is not None:
        raise FailedCall(LibraryError(answer.failed, answer.code))
    raise FailedCall((NotInstalled if answer.absent else QueryFailed)(answer.failed))


class LibraryProcess:
    """One helper process at a time, started by the first call. Calls do not overlap."""

    def __init__(self, name: str, *, timeout_s: float) -> None:
        self._name = name
        self._timeout_s = timeout_s
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._unkillable: asyncio.subprocess.Process | None = None

    @property
    def running(self) -> bool:
        return self._process is not None

    async def call(self, what: str, *arguments: object, into: type[T], timeout_s: float | None = None) -> T:
        """The answer; LibraryError or QueryFailed if there is none. After a QueryFailed of this class the helper has ended."""
        async with self._turn:
            if self._process is None:
                await self._start()
            return await self._call(what, arguments, into, timeout_s or self._timeout_s)

    async def close(self) -> None:
        """End the helper, even if it hangs."""
        if self._process is not None:
            await self._end(self._process)

    async def _start(self) -> None:
        if self._unkillable is not None and self._unkillable.returncode is None:
            raise QueryFailed("an earlier helper process still hangs in the library and cannot be killed")
        self._unkillable = None
        starting = asyncio.ensure_future(self._started())
        try:
            self._process = await asyncio.shield(starting)
        except asyncio.CancelledError:  # half a process would leave its pipes behind
            await self._end(await starting)
            raise
        except OSError as error:
            raise QueryFailed(f"its helper process cannot be started: {error.strerror}") from error
        await self._read("start", type(None), START_S)

    async def _started(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *helper_command(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=MOST_ANSWER_BYTES,
            start_new_session=True,  # so that whatever a library starts ends with it
        )

    async def _call(self, what: str, arguments: Sequence[object], into: type[T], timeout_s: float) -> T:
        assert self._process is not None
        assert self._process.stdin is not None
        # A helper that has ended is noticed when its answer is read.
        self._process.stdin.write(msgspec.json.encode([what, *arguments]) + b"\n")
        return await self._read(what, into, timeout_s)

    async def _read(self, what: str, into: type[T], timeout_s: float) -> T:
        process = self._process
        assert process is not None
        try:
            async with asyncio.timeout(timeout_s):
                line = await _line(process, what)
            return read_answer(line, into)
        except TimeoutError:
            await self._end(process)
            raise QueryFailed(f"gave no answer within {timeout_s:g} s and was killed") from None
        except FailedCall as failed:
            raise failed.error from None
        except (ValueError, RecursionError, msgspec.MsgspecError) as error:  # ValueError: a line without end
            await self._end(process)
            raise QueryFailed(f"gave an unreadable answer to {what}: {excerpt(str(error))}") from error
        except BaseException:
            await self._end(process)
            raise

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        if self._process is process:
            self._process = None
        if process.stdin is not None:
            process.stdin.close()
        if process.returncode is None:
            try:
                os.killpg(process.pid, signal.SIGKILL)  # not waited for yet, so the id is still its own
            except ProcessLookupError:
                pass
        try:
            async with asyncio.timeout(END_S):
                await process.wait()
        except TimeoutError:
            self._unkillable = process
            log.warning("cannot kill helper=%s pid=%d", self._name, process.pid)


async def _line(process: asyncio.subprocess.Process, what: str) -> bytes:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if line.endswith(b"\n"):
        return line
    code = await process.wait()
    if code >= 0:
        raise QueryFailed(f"ended its helper process with exit code {code} during {what}")
    raise QueryFailed(f"crashed with {signal.Signals(-code).name} during {what}")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A library to try: its label in messages, its session type, its name or path."""

    label: str
    session: str
    library: str

    @property
    def may_be_there(self) -> bool:
        """A name without a path is looked up by the loader, in the helper process."""
        return "/" not in self.library or Path(self.library).exists()


class NoLibraryAnswered(DriverError):  # noqa: N818 (the name reads as the error)
    """No candidate answered; `codes` are the return codes of those that were loaded and failed."""

    def __init__(self, tried: Sequence[str], codes: frozenset[int], *, absent: bool) -> None:
        super().__init__(tried, absent=absent)
        self.codes = codes


class VendorLibrary:
    """The first of a vendor's libraries that answers, kept open in its helper process until it fails or is closed."""

    def __init__(self, vendor: str, candidates: Sequence[Candidate], *, timeout_s: float) -> None:
        self._candidates = tuple(candidates)
        self._process = LibraryProcess(f"{vendor} library", timeout_s=timeout_s)
        self._open: Candidate | None = None

    @property
    def is_open(self) -> bool:
        return self._open is not None and self._process.running

    async def query(self, what: str, *arguments: object, into: type[T]) -> T:
        """The answer of the open library, else of the first candidate that has one; NoLibraryAnswered if none has."""
        if self.is_open:
            try:
                return await self._process.call(what, *arguments, into=into)
            except QueryFailed:
                await self.close()
        tried: list[str] = []
        codes: set[int] = set()
        absent = True
        for candidate in self._candidates:
            try:
                return await self._open_and_call(candidate, what, arguments, into)
            except QueryFailed as error:
                tried.append(f"{candidate.label}: {error}")
                codes |= {error.code} if isinstance(error, LibraryError) else set()
                absent = absent and isinstance(error, NotInstalled)
        await self.close()
        raise NoLibraryAnswered(tried, frozenset(codes), absent=absent)

    async def call_open(self, what: str, *arguments: object, into: type[T], timeout_s: float) -> T:
        """The answer of the library that is open; QueryFailed if none is."""
        if not self.is_open:
            raise QueryFailed("no library is open")
        return await self._process.call(what, *arguments, into=into, timeout_s=timeout_s)

    async def listing(self) -> Listing:
        return await self.query("listing", into=Listing)

    async def listing_once(self) -> Listing:
        """The listing of a library that was opened for it: libraries count their cards when they are opened."""
        try:
            return await self.listing()
        finally:
            await self.close()

    async def close(self) -> None:
        self._open = None
        await self._process.close()

    async def _open_and_call(self, candidate: Candidate, what: str, arguments: Sequence[object], into: type[T]) -> T:
        if not candidate.may_be_there:
            raise NotInstalled("cannot be loaded: no such file")
        none: Any = type(None)
        await self._process.call("open", candidate.session, candidate.library, into=none)
        answer = await self._process.call(what, *arguments, into=into)
        self._open = candidate
        return answer
