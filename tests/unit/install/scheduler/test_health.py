"""When the new scheduler is believed to be the new one, and well."""

from collections.abc import Callable, Sequence

import pytest

from accelshare.install.scheduler.health import Look, Patience, wait_for_new

OLD = Look(True, "old", "old")
NEW = Look(True, "new", "new")
GONE = Look(False, "connection refused", gone=True)
SLOW = Look(False, "timed out")
SICK = Look(False, "500", "new")


class Scripted:
    """Shows one look after the other, the last one for ever; each takes a second."""

    def __init__(self, looks: Sequence[Look]) -> None:
        self.looks = list(looks)
        self.now = 0.0

    def look(self) -> Look:
        self.now += 1.0
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    def last_log_lines(self) -> str:
        return ""


def waited(*looks: Look, before: Look = OLD, restarted: bool = False, renew_time: Callable[[], str] | None = None) -> str | None:
    scheduler = Scripted(looks)
    patience = Patience(20.0, 2.0, clock=lambda: scheduler.now, sleep=lambda _seconds: None)
    return wait_for_new(scheduler, before, patience, restarted=restarted, renew_time=renew_time)


@pytest.mark.parametrize(
    "looks",
    [
        (OLD, OLD, NEW),  # another certificate
        (OLD, GONE, OLD),  # the same certificate, from a file, but nobody was there in between
        (OLD, SLOW, NEW),
        (GONE, GONE, SICK, NEW),
        (NEW, SICK, NEW),  # steady only afterwards
    ],
)
def test_a_new_and_healthy_one(looks: Sequence[Look]) -> None:
    assert waited(*looks) is None


@pytest.mark.parametrize(
    ("looks", "words"),
    [
        ((OLD,), "has not replaced the former one"),
        ((OLD, SLOW, OLD), "has not replaced the former one"),  # busy is not gone
        ((OLD, GONE), "connection refused"),
        ((NEW, SICK), "500"),
        ((NEW, GONE, *([NEW, GONE] * 20)), "was not healthy within 20 s"),  # one that crashes again and again
    ],
)
def test_what_is_no_success(looks: Sequence[Look], words: str) -> None:
    reason = waited(*looks)
    assert reason is not None
    assert words in reason


def test_one_that_was_down_before_is_new_when_it_answers() -> None:
    assert waited(OLD, before=GONE) is None


@pytest.mark.parametrize("before", [Look(False, "500", "old"), SLOW])
def test_one_that_was_only_unhealthy_or_busy_before_may_be_the_former_one(before: Look) -> None:
    """Then nothing is proved: kubelet has yet to replace it, and what comes after may be worse."""
    assert "has not replaced the former one" in (waited(OLD, before=before) or "")
    assert waited(OLD, GONE, NEW, before=before) is None
    assert waited(OLD, NEW, before=before) is None


def test_after_our_own_restart_no_other_certificate_is_needed() -> None:
    assert waited(OLD, restarted=True) is None


# The leader's Lease.


def stamps(*times: str) -> Callable[[], str]:
    """One renewal after the other, the last one for ever."""
    left = list(times)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def test_a_healthy_one_whose_lease_is_not_renewed_does_not_schedule() -> None:
    """Its caches never fill, say because it lacks a right: /healthz is ok all the same, and no pod is ever scheduled."""
    reason = waited(GONE, NEW, renew_time=stamps("10:00"))
    assert reason is not None
    assert "does not schedule" in reason
    assert "Lease was not renewed within 20 s" in reason


@pytest.mark.parametrize(
    "times",
    [
        ("10:00", "10:00", "10:15"),  # the former one's last word, until it has run out
        ("", "10:00", "", "10:02"),  # the API server was away
        ("10:00", "10:02", "10:02"),
    ],
)
def test_a_renewal_while_the_new_one_is_healthy_is_enough(times: Sequence[str]) -> None:
    assert waited(GONE, NEW, renew_time=stamps(*times)) is None


def test_a_lease_that_is_never_seen_is_no_sign() -> None:
    assert waited(GONE, NEW, renew_time=stamps("")) is not None


def test_renewals_by_the_former_one_do_not_count() -> None:
    """It is asked for only once the new one is there."""
    asked = iter(["10:00", "10:02"])
    assert waited(OLD, OLD, OLD, renew_time=lambda: next(asked)) is not None
    assert list(asked) == ["10:00", "10:02"]
