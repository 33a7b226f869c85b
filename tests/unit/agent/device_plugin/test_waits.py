"""How long bound pods wait for their cards."""

from accelshare.agent.device_plugin.waits import Waits


class Scene:
    def __init__(self) -> None:
        self.now = 10.0
        self.observed: list[float] = []
        self.waits = Waits(self.observed.append, clock=lambda: self.now)


def test_a_pod_is_timed_until_its_first_card() -> None:
    scene = Scene()
    scene.waits.came("a")
    scene.now += 0.5
    scene.waits.served("a")
    scene.now += 5
    scene.waits.served("a")  # its second container
    assert scene.observed == [0.5]


def test_a_pod_that_was_there_before_us_tells_nothing() -> None:
    scene = Scene()
    scene.waits.served("old")
    assert scene.observed == []


def test_a_pod_that_went_unserved_is_forgotten() -> None:
    scene = Scene()
    scene.waits.came("a")
    scene.waits.left("a")
    scene.waits.served("a")
    assert scene.observed == []
