"""The watch's lag, told by our own binds."""

from accelshare.extender.echoes import REMEMBERED, Echoes


class Scene:
    def __init__(self) -> None:
        self.now = 100.0
        self.observed: list[float] = []
        self.echoes = Echoes(self.observed.append, clock=lambda: self.now)


def test_a_bind_is_timed_until_it_is_seen_and_only_once() -> None:
    scene = Scene()
    scene.echoes.sent("a")
    scene.now += 0.25
    scene.echoes.seen("a")
    scene.now += 60
    scene.echoes.seen("a")  # a later change of the same pod
    assert scene.observed == [0.25]


def test_a_pod_that_others_bound_tells_nothing() -> None:
    scene = Scene()
    scene.echoes.seen("stranger")
    assert scene.observed == []


def test_a_bind_that_failed_has_no_echo() -> None:
    scene = Scene()
    scene.echoes.sent("a")
    scene.echoes.forget("a")
    scene.echoes.seen("a")
    assert scene.observed == []


def test_binds_without_an_echo_are_forgotten_one_day() -> None:
    scene = Scene()
    for number in range(REMEMBERED + 1):
        scene.echoes.sent(str(number))
    scene.echoes.seen("0")
    scene.echoes.seen("1")
    assert len(scene.observed) == 1
