"""The lag of the watch, measured by our own binds."""

from accelshare.extender.metrics import MAX_UNSEEN_BINDS, BindLatency


class Scene:
    def __init__(self) -> None:
        self.now = 100.0
        self.observed: list[float] = []
        self.bind_latency = BindLatency(self.observed.append, clock=lambda: self.now)


def test_a_bind_is_timed_until_it_is_seen_and_only_once() -> None:
    scene = Scene()
    scene.bind_latency.sent("a")
    scene.now += 0.25
    scene.bind_latency.seen("a")
    scene.now += 60
    scene.bind_latency.seen("a")  # a later change of the same pod
    assert scene.observed == [0.25]


def test_a_pod_that_others_bound_is_not_measured() -> None:
    scene = Scene()
    scene.bind_latency.seen("stranger")
    assert scene.observed == []


def test_a_bind_that_failed_has_no_echo() -> None:
    scene = Scene()
    scene.bind_latency.sent("a")
    scene.bind_latency.forget("a")
    scene.bind_latency.seen("a")
    assert scene.observed == []


def test_binds_without_an_echo_are_forgotten_one_day() -> None:
    scene = Scene()
    for number in range(MAX_UNSEEN_BINDS + 1):
        scene.bind_latency.sent(str(number))
    scene.bind_latency.seen("0")
    scene.bind_latency.seen("1")
    assert len(scene.observed) == 1
