"""Plays many cases at the doors: counts answers, bounds their time, keeps every case that failed.

Belongs here: which case comes when, what is counted, progress. Never: what a clean answer is (doors.py).

The case of a number depends on the seed, the door and the number only, so each can be played again alone.
"""

import hashlib
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import FrameType
from typing import Final

from tests.fuzz.doors import Door, all_doors

CORPUS: Final = Path(__file__).parent / "corpus"
LIMIT_S: Final = 2.0  # of processor time for one case; most take less than a millisecond
HANGS_S: Final = 30.0  # then a case is ended
MOST_FAILURES: Final = 5  # of one door; then it is left
EVERY_S: Final = 5.0  # progress
CASES_OF_A_ROUND: Final = 20_000
Say = Callable[[str], None]


class SlowError(AssertionError):
    """A case took too long."""


@dataclass(slots=True)
class Count:
    """What became of the cases of one door."""

    taken: int = 0
    refused: int = 0
    failed: int = 0
    slowest_s: float = 0.0
    failures: list[str] = field(default_factory=list)

    @property
    def cases(self) -> int:
        return self.taken + self.refused + self.failed


def case_of(door: Door, seed: int, number: int) -> bytes:
    return door.make(Random(f"{seed}/{door.name}/{number}"))


def play(door: Door, case: bytes) -> tuple[bool, float]:
    """Whether the door took the case, and how long it took. Raises whatever is no clean answer."""
    started = time.process_time()
    with _ended_after(HANGS_S):
        taken = door.play(case)
    took_s = time.process_time() - started
    if took_s > LIMIT_S:
        raise SlowError(f"{took_s:.1f} s of processor time for {len(case)} bytes; at most {LIMIT_S:g} s are allowed")
    return taken, took_s


@contextmanager
def _ended_after(seconds: float) -> Iterator[None]:
    """Raise in the middle of a case that uses more processor time than this."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise SlowError(f"it did not end within {seconds:g} s of processor time")

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def corpus_of(door: Door) -> list[Path]:
    """The cases that once failed at this door."""
    folder = CORPUS / door.name
    return sorted(file for file in folder.iterdir()) if folder.is_dir() else []


def keep(door: Door, case: bytes, folder: Path = CORPUS) -> Path:
    place = folder / door.name
    place.mkdir(parents=True, exist_ok=True)
    file = place / hashlib.sha256(case).hexdigest()[:16]
    file.write_bytes(case)
    return file


class Run:
    """Many cases at some doors. `say` gets a line of progress every few seconds."""

    def __init__(self, seed: int, *, say: Say, doors: list[Door] | None = None, folder: Path = CORPUS) -> None:
        self.seed = seed
        self.counts: dict[str, Count] = {}
        self._doors = all_doors() if doors is None else doors
        self._say = say
        self._folder = folder
        self._said = self._started = time.monotonic()
        self._played = 0

    def play_all(self, cases: int, first: int = 0) -> bool:
        """Share out so many cases among the doors, in rounds: a run that is interrupted was at each. False if one failed."""
        shares = sum(door.share for door in self._doors)
        rounds = max(1, cases // CASES_OF_A_ROUND)
        for number in range(rounds):
            for door in self._doors:
                here = -(-cases * door.share // (shares * rounds))  # rounded up: never fewer cases than asked for
                self._play_door(door, here, first + number * here, cases)
        return all(not count.failed for count in self.counts.values())

    def _play_door(self, door: Door, cases: int, first: int, all_cases: int) -> None:
        count = self.counts.setdefault(door.name, Count())
        if count.failed >= MOST_FAILURES:
            return
        for number in range(first, first + cases):
            case = case_of(door, self.seed, number)
            try:
                taken, took_s = play(door, case)
            except Exception as error:
                self._failed(door, count, number, case, error)
                if count.failed >= MOST_FAILURES:
                    self._say(f"{door.name}: {count.failed} cases failed; the rest of its cases is left out")
                    break
            else:
                count.taken += taken
                count.refused += not taken
                count.slowest_s = max(count.slowest_s, took_s)
            self._played += 1
            self._progress(door, all_cases)

    def _failed(self, door: Door, count: Count, number: int, case: bytes, error: Exception) -> None:
        count.failed += 1
        file = keep(door, case, self._folder)
        again = f"python -m tests.fuzz --door {door.name} --seed {self.seed} --first {number} --cases 1"
        where = traceback.format_exception(error)[-3:]
        what = f"{door.name} case {number}: {type(error).__name__}: {str(error)[:300]}"
        text = f"{what}; kept in {file}; again: {again}\n{''.join(where)}"
        count.failures.append(text)
        self._say(text)

    def _progress(self, door: Door, all_cases: int) -> None:
        now = time.monotonic()
        if now - self._said >= EVERY_S:
            self._said = now
            pace = self._played / (now - self._started)
            failed = sum(count.failed for count in self.counts.values())
            self._say(
                f"{self._played:,} of {all_cases:,} cases, {pace:,.0f} a second, {failed} failed, now {door.name}"
                f", seed {self.seed}"
            )

    def table(self) -> str:
        lines = [f"{'door':<16} {'cases':>9} {'taken':>9} {'refused':>9} {'failed':>7} {'slowest':>10}"]
        for name, count in self.counts.items():
            slowest = f"{count.slowest_s * 1000:.1f} ms"
            lines.append(f"{name:<16} {count.cases:>9,} {count.taken:>9,} {count.refused:>9,} {count.failed:>7,} {slowest:>10}")
        every = list(self.counts.values())
        total = [sum(getattr(count, part) for count in every) for part in ("cases", "taken", "refused", "failed")]
        lines.append(f"{'all':<16} {total[0]:>9,} {total[1]:>9,} {total[2]:>9,} {total[3]:>7,}")
        return "\n".join(lines)
