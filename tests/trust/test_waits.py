"""A wait is measured from the first look at which a pod fits until the next bind, with every fault of that time."""

from tests.trust.waits import Waits


def test_all_faults_of_a_wait_are_named_also_those_that_are_over() -> None:
    waits = Waits()
    for now, active in ((0.0, ["etcd: SIGKILL"]), (5.0, ["etcd: SIGKILL", "agent: SIGKILL"]), (9.0, []), (10.0, ["last"])):
        waits.look(now, fits=True, binds=0, active=active)
    assert (waits.longest_s, waits.longest_faults) == (10.0, ("etcd: SIGKILL", "agent: SIGKILL", "last"))


def test_what_is_left_after_the_last_fault_is_measured_too() -> None:
    waits = Waits()
    for now, active in ((0.0, ["one"]), (4.0, ["one"]), (7.0, []), (8.0, ["two"]), (10.0, [])):
        waits.look(now, fits=True, binds=0, active=active)
    assert (waits.longest_s, waits.longest_quiet_s) == (10.0, 3.0)


def test_a_bind_and_a_moment_in_which_nothing_fits_end_a_wait() -> None:
    waits = Waits()
    waits.look(0.0, fits=True, binds=0, active=["before"])
    waits.look(3.0, fits=True, binds=1, active=[])
    waits.look(5.0, fits=False, binds=1, active=[])
    waits.look(6.0, fits=True, binds=1, active=["after"])
    waits.look(8.0, fits=True, binds=1, active=[])
    assert (waits.longest_s, waits.longest_faults) == (2.0, ("after",))


def test_nothing_is_measured_while_no_pod_fits() -> None:
    waits = Waits()
    for now in range(100):
        waits.look(float(now), fits=False, binds=0, active=["etcd: SIGKILL"])
    assert (waits.longest_s, waits.longest_quiet_s) == (0.0, 0.0)
