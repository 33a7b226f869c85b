"""How long bound pods wait for their cards."""

from accelshare.agent.metrics import PodWaits


class Scene:
    def __init__(self) -> None:
        self.now = 10.0
        self.observed: list[float] = []
        self.waits = PodWaits(self.observed.append, clock=lambda: self.now)


def test_a_pod_is_timed_until_its_first_card() -> None:
    scene = Scene()
    scene.waits.begin("a")
    scene.now += 0.5
    scene.waits.served("a")
    scene.now += 5
    scene.waits.served("a")  # its second container
    assert scene.observed == [0.5]


def test_a_pod_that_was_there_before_the_agent_is_not_timed() -> None:
    scene = Scene()
    scene.waits.served("old")
    assert scene.observed == []


def test_a_pod_that_ends_unserved_is_not_timed() -> None:
    scene = Scene()
    scene.waits.begin("a")
    scene.waits.forget("a")
    scene.waits.served("a")
    assert scene.observed == []
