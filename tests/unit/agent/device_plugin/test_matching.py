"""An anonymous request is matched to the right pod, or to none."""

from accelshare.agent.device_plugin.matching import Match, RequestMatcher
from accelshare.wire.node_pods import ContainerNeeds


def part(container: str, *amounts: int, kind: str = "gpu", whole: bool = False) -> ContainerNeeds:
    return ContainerNeeds(container, tuple((kind, whole, amount) for amount in amounts))


def want(amount: int, *, kind: str = "gpu", whole: bool = False) -> tuple[str, bool, int]:
    return (kind, whole, amount)


def serve(queue: RequestMatcher, amount: int) -> str:
    match = queue.match(want(amount))
    assert match is not None
    queue.serve(match)
    return f"{match.uid}/{match.container}"


def test_equals_are_served_in_the_order_of_their_arrival() -> None:
    queue = RequestMatcher()
    for uid in ("b", "a", "c"):
        queue.add(uid, [part("main", 4)])
    assert [serve(queue, 4) for _ in range(3)] == ["b/main", "a/main", "c/main"]
    assert queue.match(want(4)) is None


def test_a_request_matches_the_first_pod_of_its_amount() -> None:
    queue = RequestMatcher()
    queue.add("small", [part("main", 2)])
    queue.add("large", [part("main", 8)])
    assert serve(queue, 8) == "large/main"
    assert queue.match(want(3)) is None
    assert queue.match(want(2, kind="npu")) is None
    assert queue.match(want(2, whole=True)) is None


def test_a_pod_is_served_completely_before_the_next() -> None:
    queue = RequestMatcher()
    queue.add("a", [part("init", 4), part("one", 2), part("two", 2)])
    queue.add("b", [part("main", 2)])
    assert serve(queue, 4) == "a/init"
    assert [serve(queue, 2) for _ in range(3)] == ["a/one", "a/two", "b/main"]
    assert len(queue) == 0


def test_the_resources_of_a_container_are_matched_in_any_order() -> None:
    queue = RequestMatcher()
    queue.add("a", [ContainerNeeds("main", (want(4), want(1, whole=True)))])
    queue.serve(Match("a", "main", want(1, whole=True)))
    assert queue.match(want(1, whole=True)) is None
    assert serve(queue, 4) == "a/main"


def test_a_pod_that_left_in_the_middle_does_not_stop_the_others() -> None:
    queue = RequestMatcher()
    queue.add("a", [part("one", 2), part("two", 2)])
    queue.add("b", [part("main", 2)])
    assert serve(queue, 2) == "a/one"
    queue.remove("a")
    assert serve(queue, 2) == "b/main"


def test_a_pod_in_progress_that_does_not_fit_does_not_block_others() -> None:
    queue = RequestMatcher()
    queue.add("a", [part("one", 2), part("two", 3)])
    queue.add("b", [part("main", 2)])
    assert serve(queue, 2) == "a/one"
    assert serve(queue, 2) == "b/main"
    assert serve(queue, 3) == "a/two"


def test_a_pod_added_again_keeps_its_place_and_progress() -> None:
    queue = RequestMatcher()
    queue.add("a", [part("one", 2), part("two", 3)])
    assert serve(queue, 2) == "a/one"
    queue.add("a", [part("one", 2), part("two", 3)])
    assert [(uid, container) for uid, container, _ in queue.waiting()] == [("a", "two")]


def test_a_pod_without_requests_does_not_wait() -> None:
    queue = RequestMatcher()
    queue.add("a", [ContainerNeeds("main", ())])
    assert "a" not in queue


def test_a_restarted_kubelet_may_have_another_order() -> None:
    """A pod keeps its progress; pods that are not named come last."""
    queue = RequestMatcher()
    queue.add("a", [part("main", 2)])
    queue.add("b", [part("one", 3), part("two", 2)])
    queue.add("c", [part("main", 2)])
    assert serve(queue, 3) == "b/one"
    queue.reorder(["gone", "c", "b"])
    assert [serve(queue, 2) for _ in range(3)] == ["b/two", "c/main", "a/main"]


def test_among_named_pods_any_container_may_match_and_earlier_ones_are_done() -> None:
    queue = RequestMatcher()
    queue.add("a", [part("one", 2), part("two", 3), part("three", 3)])
    queue.add("b", [part("main", 3)])
    assert queue.match(want(3)) == Match("b", "main", want(3))
    assert queue.match(want(3), among=()) is None
    match = queue.match(want(3), among={"a"})
    assert match == Match("a", "two", want(3))
    queue.serve(match)
    assert [(uid, container) for uid, container, _ in queue.waiting()] == [("a", "three"), ("b", "main")]
    assert serve(queue, 3) == "a/three"
