"""A fixed number of hostile inputs at every door, and everything that ever failed. `make fuzz` plays as many as you want."""

import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from tests.fuzz import __main__ as fuzz_main
from tests.fuzz import run as fuzz_run
from tests.fuzz.doors import Door, all_doors
from tests.fuzz.run import CORPUS, Run, SlowError, case_of, corpus_of, play

DOORS = all_doors()
CASES = 2_000  # of all doors together: seconds
SEED = 20_261


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Damaged input is logged, and handlers would take most of the time."""
    logger = logging.getLogger("accelshare")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_correct_input_is_taken(door: Door) -> None:
    """Otherwise the damaged one would not come further than the first check."""
    answers = [play(door, sample)[0] for sample in door.samples]
    assert any(answers)


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_damaged_input_gets_a_clean_answer(door: Door, tmp_path: Path) -> None:
    """Taken, or refused with the door's own error, within the time limit; the door's state stays."""
    lines: list[str] = []
    shares = sum(each.share for each in DOORS)
    run = Run(SEED, say=lines.append, doors=[door], folder=tmp_path)
    assert run.play_all(max(5, CASES * door.share // shares)), "\n".join(lines)


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_what_once_failed_gets_a_clean_answer(door: Door) -> None:
    for file in corpus_of(door):
        play(door, file.read_bytes())


def test_every_kept_case_belongs_to_a_door() -> None:
    assert {folder.name for folder in CORPUS.iterdir() if folder.is_dir()} <= {door.name for door in DOORS}


class Broken(Door):
    """A door that fails at every input with a zero byte."""

    name, share = "broken", 1

    @property
    def samples(self) -> Sequence[bytes]:
        return [b"sample"]

    def play(self, case: bytes) -> bool:
        if b"\x00" in case:
            raise KeyError("zero")
        return True


def test_a_failure_is_kept_and_can_be_played_again_alone(tmp_path: Path) -> None:
    lines: list[str] = []
    run = Run(3, say=lines.append, doors=[Broken()], folder=tmp_path)
    assert not run.play_all(1000)
    assert run.counts["broken"].failed == fuzz_run.MOST_FAILURES
    assert "again: python -m tests.fuzz --door broken --seed 3 --first " in lines[0]
    number = int(lines[0].split("--first ")[1].split()[0])
    case = case_of(Broken(), 3, number)
    assert case in [file.read_bytes() for file in (tmp_path / "broken").iterdir()]
    assert not Run(3, say=lines.append, doors=[Broken()], folder=tmp_path).play_all(1, first=number)
    assert "broken" in run.table()


class Slow(Broken):
    """A door that takes a twentieth of a second for each input."""

    def play(self, case: bytes) -> bool:
        begun = time.process_time()
        while time.process_time() - begun < 0.05:
            pass
        return super().play(case)


def test_a_slow_answer_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_run, "LIMIT_S", 0.001)
    with pytest.raises(SlowError):
        play(Slow(), b"")


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_the_same_seed_makes_the_same_cases(door: Door) -> None:
    assert [case_of(door, 5, number) for number in range(5)] == [case_of(door, 5, number) for number in range(5)]
    assert door.make(Random("a")) != door.make(Random("b")) or door.make(Random("a")) != door.make(Random("c"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cases", "-3"], "--cases is -3; it must be at least 1"),
        (["--cases", "0"], "--cases is 0; it must be at least 1"),
        (["--first", "-1"], "--first is -1; it must be at least 0"),
        (["--door", "profiles", "--door", "cellar"], "there is no door 'cellar'; there are "),
    ],
)
def test_a_run_that_would_not_try_what_was_asked_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzz_main, "all_doors", lambda: DOORS)
    with pytest.raises(SystemExit):
        fuzz_main.main(arguments)
    assert message in capsys.readouterr().err
