"""When kube-scheduler counts as restarted and healthy."""

from collections.abc import Sequence

import pytest

from accelshare.install.scheduler.health import HealthCheck, Patience, wait_for_new
from accelshare.install.scheduler.leadership import LeaseObserver
from accelshare.kube.leases import LeaseSpec

OLD = HealthCheck(True, "old", "old")
NEW = HealthCheck(True, "new", "new")
GONE = HealthCheck(False, "connection refused", gone=True)
SLOW = HealthCheck(False, "timed out")
SICK = HealthCheck(False, "500", "new")


class Scripted:
    """Shows one look after the other, the last one for ever; each takes a second. Not ready until that second."""

    def __init__(self, looks: Sequence[HealthCheck], ready_at_s: float = 0.0) -> None:
        self.looks = list(looks)
        self.ready_at_s = ready_at_s
        self.now = 0.0

    def check_health(self) -> HealthCheck:
        self.now += 1.0
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    def not_ready(self) -> str | None:
        return "503 handlers are not fully synchronized" if self.now < self.ready_at_s else None

    def last_log_lines(self) -> str:
        return ""


def waited(
    *looks: HealthCheck,
    before: HealthCheck = OLD,
    restarted: bool = False,
    lease: LeaseObserver | None = None,
    ready_at_s: float = 0.0,
) -> str | None:
    scheduler = Scripted(looks, ready_at_s)
    patience = Patience(20.0, 2.0, clock=lambda: scheduler.now, sleep=lambda _seconds: None)
    return wait_for_new(scheduler, before, patience, restarted=restarted, lease=lease)


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
def test_a_new_and_healthy_one(looks: Sequence[HealthCheck]) -> None:
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
def test_what_is_no_success(looks: Sequence[HealthCheck], words: str) -> None:
    reason = waited(*looks)
    assert reason is not None
    assert words in reason


def test_one_that_was_down_before_is_new_when_it_answers() -> None:
    assert waited(OLD, before=GONE) is None


@pytest.mark.parametrize("before", [HealthCheck(False, "500", "old"), SLOW])
def test_one_that_was_only_unhealthy_or_busy_before_may_be_the_former_one(before: HealthCheck) -> None:
    """Then nothing is proved: kubelet has yet to replace it, and what comes after may be worse."""
    assert "has not replaced the former one" in (waited(OLD, before=before) or "")
    assert waited(OLD, GONE, NEW, before=before) is None
    assert waited(OLD, NEW, before=before) is None


def test_after_our_own_restart_no_other_certificate_is_needed() -> None:
    assert waited(OLD, restarted=True) is None


# The leader's Lease.


def observer(*renewals: tuple[str, str], delayed: bool = False) -> LeaseObserver:
    """One Lease (holder, time) after the other as cp-1 reads it, the last one for ever; an empty time: it cannot be read."""
    left = list(renewals)

    def read() -> LeaseSpec | None:
        holder, time = left.pop(0) if len(left) > 1 else left[0]
        return LeaseSpec(holder, time) if time else None

    return LeaseObserver(read, host_name="cp-1", ready_only_as_leader=delayed)


def ours(*times: str) -> LeaseObserver:
    return observer(*(("cp-1_5d3a", time) for time in times))


def test_a_healthy_one_whose_lease_is_not_renewed_does_not_schedule() -> None:
    """Its caches never fill, say because it lacks a right: /healthz is ok all the same, and no pod is ever scheduled."""
    reason = waited(GONE, NEW, lease=ours("10:00"))
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
    lease = ours(*times)
    assert waited(GONE, NEW, lease=lease) is None
    assert lease.other_host == ""


def test_a_lease_that_is_never_seen_is_no_sign() -> None:
    assert waited(GONE, NEW, lease=ours("")) is not None


def test_renewals_by_the_former_one_do_not_count() -> None:
    """It is asked for only once the new one is there."""
    asked = iter([LeaseSpec("cp-1_5d3a", "10:00"), LeaseSpec("cp-1_5d3a", "10:02")])
    assert waited(OLD, OLD, OLD, lease=LeaseObserver(lambda: next(asked), host_name="cp-1")) is not None
    assert [lease.renew_time for lease in asked] == ["10:00", "10:02"]


def test_a_lease_that_its_holder_releases_is_not_renewed() -> None:
    """kube-scheduler writes a time and no holder when it ends, so nobody leads."""
    reason = waited(GONE, NEW, lease=observer(("cp-2_77aa", "10:00"), ("", "10:01")))
    assert reason is not None
    assert "Lease was not renewed" in reason


# The Lease of another host.


def test_beside_a_leader_on_another_host_the_new_one_is_a_standby() -> None:
    lease = observer(("cp-2_77aa", "10:00"), ("cp-2_77aa", "10:02"))
    assert waited(GONE, NEW, lease=lease) is None
    assert lease.other_host == "cp-2"


def test_renewals_by_another_host_do_not_make_up_for_caches_that_never_fill() -> None:
    """The other host schedules, and this one would schedule nothing if it had to take over."""
    reason = waited(GONE, NEW, lease=observer(("cp-2_77aa", "10:00"), ("cp-2_77aa", "10:02")), ready_at_s=99.0)
    assert reason is not None
    assert "is not ready" in reason
    assert "handlers are not fully synchronized" in reason


def test_a_standby_is_waited_for_until_it_is_ready() -> None:
    lease = observer(("cp-2_77aa", "10:00"), ("cp-2_77aa", "10:02"))
    assert waited(GONE, NEW, lease=lease, ready_at_s=12.0) is None


def test_a_standby_that_fills_its_caches_only_as_leader_is_not_asked_whether_it_is_ready() -> None:
    """delayCacheUntilActive in its configuration."""
    renewals = [("cp-2_77aa", "10:00"), ("cp-2_77aa", "10:02")]
    assert waited(GONE, NEW, lease=observer(*renewals, delayed=True), ready_at_s=99.0) is None
    assert waited(GONE, NEW, lease=observer(("cp-1_5d3a", "10:00"), ("cp-1_5d3a", "10:02"), delayed=True), ready_at_s=99.0)


def test_the_new_one_that_takes_the_lease_over_leads() -> None:
    lease = observer(("cp-2_77aa", "10:00"), ("cp-2_77aa", "10:02"), ("cp-1_5d3a", "10:20"))
    assert waited(GONE, NEW, lease=lease, ready_at_s=9.0) is None
    assert lease.other_host == ""


@pytest.mark.parametrize(
    ("holder", "host"),
    [("cp-1_5d3a", ""), ("cp-1", ""), ("cp_1_5d3a", "cp_1"), ("cp-11_5d3a", "cp-11"), ("other", "other")],
)
def test_the_host_is_what_stands_before_the_last_underscore(holder: str, host: str) -> None:
    lease = observer((holder, "10:00"), (holder, "10:02"))
    lease.observe()
    lease.observe()
    assert lease.other_host == host
