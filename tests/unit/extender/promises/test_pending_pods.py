"""Pods wait in kube-scheduler's order, and those that were promised a node keep their place in it."""

from dataclasses import replace

from accelshare.extender.promises.pending_pods import PendingPods
from accelshare.wire.scheduling import SchedulingPod

US = "default-scheduler"


def pod(name: str, *, priority: int = 0, created: str = "2026") -> SchedulingPod:
    return SchedulingPod(name, "default", name, 1, "", (), priority=priority, created=created)


def queue(*names: str) -> PendingPods:
    pods = PendingPods()
    for name in names:
        pods.put(pod(name))
    return pods


def names(pods: PendingPods, ahead: int = 0) -> str:
    return "".join(each.name for each in pods.after(US, ahead))


def test_priority_comes_first_then_arrival() -> None:
    """kube-scheduler's watch shows a pod that was created later first if it was written first."""
    pods = queue("a", "b")
    pods.put(pod("old", created="2025"))
    pods.put(pod("high", priority=1, created="2027"))
    assert names(pods) == "highabold"


def test_pods_that_a_list_shows_are_ordered_by_age() -> None:
    """A list has them in the order of their names, also one after the watch was interrupted."""
    pods = PendingPods()
    for name, created in (("a", "2027"), ("b", "2025"), ("c", "2025")):
        pods.put(pod(name, created=created), listed=True)
    pods.put(pod("d", created="2024"))
    for name, created in (("a", "2027"), ("f", "2029"), ("g", "2028")):
        pods.put(pod(name, created=created), listed=True)
    pods.put(pod("h", created="2024"))
    assert names(pods) == "bcadgfh"


def test_each_scheduler_has_an_order_of_its_own() -> None:
    pods = queue("a", "b")
    pods.put(replace(pod("other", priority=1), scheduler="other"))
    pods.keep_place("a")
    assert (pods.first(US, 9), pods.first("other", 9), pods.first("unknown", 9)) == (["a", "b"], ["other"], [])
    assert (pods.count(US), pods.count("other"), pods.count("unknown")) == (1, 1, 0)
    assert [each.name for each in pods.after("other", 0)] == ["other"]
    assert [each.name for each in pods.after(US, 1)] == ["b"]
    pods.forget("other")
    assert pods.first("other", 9) == []


def test_promised_pods_are_passed_over_and_count_as_before_those_behind_them() -> None:
    pods = queue(*"abcdef")
    pods.keep_place("c")
    assert (names(pods), pods.count(US)) == ("abdef", 5)
    assert names(pods, 2) == "def"
    assert names(pods, 3) == "def"
    assert names(pods, 4) == "ef"
    pods.keep_place("a")
    assert names(pods, 1) == "bdef"
    assert names(pods, 2) == "def"


def test_pods_at_the_head_stay_left_out_however_many_behind_them_are_promised() -> None:
    """A nomination of theirs would come too late."""
    pods = queue(*"abcdef")
    for name in "cdef":
        pods.keep_place(name)
    assert names(pods, 2) == ""
    pods.remove("c")
    assert names(pods, 2) == ""
    assert names(pods, 0) == "ab"


def test_the_first_ones_are_those_that_were_promised_a_node_and_those_that_were_not() -> None:
    pods = queue(*"abcde")
    for name in "bd":
        pods.keep_place(name)
    assert "".join(pods.first(US, 3)) == "abc"
    assert "".join(pods.first(US, 9)) == "abcde"
    pods.remove("a")
    assert pods.first(US, 1) == ["b"]


def test_a_removed_pod_has_no_place() -> None:
    pods = queue(*"abc")
    pods.keep_place("a")
    pods.remove("a")
    pods.remove("b")
    pods.remove("unknown")
    assert (names(pods), names(pods, 1), "b" in pods) == ("c", "", False)


def test_a_pod_that_is_seen_again_keeps_its_place() -> None:
    pods = queue(*"abc")
    pods.put(pod("a"))
    assert names(pods) == "abc"


def test_a_pod_that_comes_back_has_its_place_again_until_it_is_forgotten() -> None:
    pods = queue(*"abc")
    pods.remove("a")
    pods.put(pod("a"))
    assert names(pods) == "abc"
    pods.forget("a")
    pods.put(pod("a"))
    assert names(pods) == "bca"
