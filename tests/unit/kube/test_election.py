"""Who holds a Lease, by the clocks of its holder and of standbys. Nothing is requested and no clock runs."""

import random
from dataclasses import dataclass, field

import pytest

from accelshare.kube.election import DURATION_S, IN_FLIGHT, LONGEST_S, MARGIN_S, SETTLED, Election, Lost, Wait, Write
from accelshare.kube.leases import LeaseObject, LeaseSpec, _Metadata


def lease(version: str, holder: str | None, term: int | None = 0, duration_s: int | None = DURATION_S) -> LeaseObject:
    return LeaseObject(_Metadata(version), LeaseSpec(holder, None, duration_s, term))


def holder(term: int = 0, *, sent_at: float = 0.0) -> Election:
    election = Election("a")
    election.written(Write(None, term, taking=True), "1", sent_at=sent_at)
    return election


def test_a_lease_that_does_not_exist_is_created() -> None:
    assert Election("a").read(None, 0.0) == Write(None, 0, taking=True)


@pytest.mark.parametrize("free", [None, ""])
def test_a_released_lease_is_taken_at_once(free: str | None) -> None:
    assert Election("a").read(lease("7", free, 4), 0.0) == Write("7", 5, taking=True)


def test_a_held_lease_is_taken_only_after_its_duration_without_a_change() -> None:
    standby = Election("b")
    assert standby.read(lease("1", "a"), 100.0) == Wait("a")
    assert standby.read(lease("1", "a"), 100.0 + DURATION_S - 0.01) == Wait("a")
    assert standby.read(lease("1", "a"), 100.0 + DURATION_S) == Write("1", 1, taking=True)


def test_each_renewal_starts_the_standbys_clock_again() -> None:
    standby = Election("b")
    for number in range(10):
        assert standby.read(lease(str(number), "a"), number * (DURATION_S - 0.5)) == Wait("a")


def test_a_take_that_failed_is_repeated_without_another_wait() -> None:
    standby = Election("b")
    standby.read(lease("1", "a"), 0.0)
    assert isinstance(standby.read(lease("1", "a"), 3.0), Write)
    standby.doubt()
    assert isinstance(standby.read(lease("1", "a"), 3.2), Write)


@pytest.mark.parametrize("duration_s", [None, 0, -5, 10**9])
def test_a_duration_that_makes_no_sense_neither_frees_the_lease_nor_blocks_it_for_ever(duration_s: int | None) -> None:
    standby = Election("b")
    assert standby.read(lease("1", "a", duration_s=duration_s), 0.0) == Wait("a")
    assert standby.read(lease("1", "a", duration_s=duration_s), LONGEST_S - 1.0) == Wait("a")
    assert isinstance(standby.read(lease("1", "a", duration_s=duration_s), float(LONGEST_S)), Write)


@pytest.mark.parametrize("term", [2**31 - 1, 2**40, -7])
def test_transitions_that_the_api_server_could_not_count_further_begin_at_0_again(term: int) -> None:
    """The field has 32 bits: a write with a larger number is refused, and nobody could take the Lease any more."""
    write = Election("b").read(lease("1", "", term), 0.0)
    assert write == Write("1", 0, taking=True)


def test_a_holder_stops_a_margin_before_a_standby_can_take_over() -> None:
    election = holder(sent_at=10.0)
    assert election.holds(10.0 + DURATION_S - MARGIN_S - 0.01)
    assert not election.holds(10.0 + DURATION_S - MARGIN_S)


def test_a_holder_renews_without_reading_unless_the_last_write_is_in_doubt() -> None:
    election = holder()
    assert election.renewal() == Write("1", 0, taking=False)
    election.doubt()
    assert election.renewal() is None
    assert election.read(lease("1", "a"), 1.0) == Write("1", 0, taking=False)
    assert election.renewal() == Write("1", 0, taking=False)


def test_a_holder_that_could_not_renew_continues_if_nobody_took_over() -> None:
    """Nobody else decided meanwhile, so what it remembers is right."""
    election = holder()
    assert not election.holds(60.0)
    assert election.read(lease("1", "a"), 60.0) == Write("1", 0, taking=False)
    election.written(Write("1", 0, taking=False), "2", sent_at=60.0)
    assert election.holds(60.1)


@pytest.mark.parametrize(
    "found", [None, lease("5", "b", 1), lease("5", "", 0), lease("5", "a", 2)], ids=["deleted", "taken", "emptied", "taken twice"]
)
def test_a_holder_whose_lease_changed_hands_has_lost_it_for_good(found: LeaseObject | None) -> None:
    election = holder()
    assert isinstance(election.read(found, 0.1), Lost)
    assert not election.holds(0.1)
    assert isinstance(election.read(lease("6", "a", 0), 0.2), Lost)


def test_a_first_write_whose_response_was_lost_is_recognised() -> None:
    election = Election("a")
    assert election.read(lease("3", "a", 4), 0.0) == Write("3", 4, taking=True)


def test_a_released_lease_is_not_held_and_not_renewed() -> None:
    election = holder()
    election.resign()
    assert election.release() == Write("1", 0, taking=False)
    assert not election.holds(0.0)
    assert election.renewal() is None


def test_the_next_holder_learns_whether_the_one_before_had_settled_everything() -> None:
    """Only from the release itself: a note of an earlier one says nothing."""
    for note, settled in {"4": True, "3": False}.items():
        free = lease("7", "", 4)
        free.metadata.annotations = {SETTLED: note}
        in_flight = frozenset[str]() if settled else None
        assert Election("b").read(free, 0.0) == Write("7", 5, taking=True, settled=settled, in_flight=in_flight)


def test_who_takes_the_lease_learns_which_pods_it_named_last() -> None:
    """Only those of the last holder's own term: another version of accelshare may not have written them."""
    for note, in_flight in {"4 u1 u2": frozenset({"u1", "u2"}), "4": frozenset[str](), "3 u1": None, "4 *": None}.items():
        held = lease("7", "a", 4)
        held.metadata.annotations = {IN_FLIGHT: note}
        standby = Election("b")
        assert standby.read(held, 0.0) == Wait("a")
        assert standby.read(held, float(DURATION_S)) == Write("7", 5, taking=True, in_flight=in_flight)


def test_a_release_in_doubt_writes_nothing() -> None:
    election = holder()
    election.doubt()
    election.resign()
    assert election.release() is None
    assert not election.holds(0.0)


def test_a_lease_that_another_took_is_not_released() -> None:
    election = holder()
    election.read(lease("5", "b", 1), 0.1)
    assert election.release() is None


@dataclass
class Stored:
    """The Lease in the API server."""

    version: int = 0
    lease: LeaseObject | None = None

    def write(self, identity: str, write: Write) -> str | None:
        """The new version, or None for a conflict."""
        if (write.version or None) != (self.lease.metadata.version if self.lease is not None else None):
            return None
        self.version += 1
        self.lease = lease(str(self.version), identity, write.term)
        return str(self.version)


@dataclass
class Process:
    election: Election
    offset: float  # of its clock
    sent: list[tuple[Write, float]] = field(default_factory=list)  # writes on their way, with the time of sending


@pytest.mark.parametrize("seed", range(200))
def test_never_two_holders(seed: int) -> None:
    """Processes that pause, lose responses and write late, in any order: at no time do two of them hold the Lease."""
    dice = random.Random(seed)
    stored = Stored()
    processes = [Process(Election(name), dice.uniform(0, 1e6)) for name in "abc"]
    now, terms = 0.0, 0
    for _ in range(400):
        now += dice.choice((0.01, 0.1, 0.3, 1.0, 4.0))
        process = dice.choice(processes)
        election, clock = process.election, now + process.offset
        if process.sent and dice.random() < 0.6:
            write, sent_at = process.sent.pop(0)
            version = stored.write(election.identity, write)
            if version is not None and dice.random() < 0.8:
                election.written(write, version, sent_at=sent_at)
                terms += write.taking
            else:
                election.doubt()
        elif not process.sent:
            step = election.renewal() or election.read(stored.lease, clock)
            if isinstance(step, Write):
                process.sent.append((step, clock))
            elif isinstance(step, Lost):
                processes[processes.index(process)] = Process(Election(f"{election.identity}'"), process.offset)
        held = [each.election.identity for each in processes if each.election.holds(now + each.offset)]
        assert len(held) <= 1, held
    assert terms


def test_who_sees_the_lease_at_an_older_version_has_lost_it() -> None:
    """After etcd was restored, what this process knows is of a history that is gone."""
    before = Election("a")
    before.written(Write(None, 0, taking=True), "1010", sent_at=0.0)
    before.doubt()
    assert isinstance(before.read(lease("1000", "a"), 5.0), Lost)
    standby = Election("b")
    standby.read(lease("1010", "a"), 0.0)
    assert isinstance(standby.read(lease("1000", "a"), 5.0), Lost)
