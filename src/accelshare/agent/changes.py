"""Change notification: one part announces a change, and the parts that subscribed react at once."""

from collections.abc import Callable


class Changes:
    def __init__(self) -> None:
        self._subscribers: list[Callable[[], None]] = []

    def subscribe(self, react: Callable[[], None]) -> None:
        self._subscribers.append(react)

    def announce(self) -> None:
        for react in self._subscribers:
            react()
