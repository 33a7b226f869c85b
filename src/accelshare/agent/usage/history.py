"""What follows from several samples: since when a pod uses more than it holds, and since when it uses nothing. Pure.

Belongs here: comparing a sample with those before it. Never: a clock, what is done about it (over_use.py).
"""

from collections.abc import Collection, Iterable
from typing import Final, TypeAlias

from msgspec.structs import replace

from accelshare.wire.usage import PodUse

SAMPLES_TO_BE_SURE: Final = 2  # one alone may be a moment between an allocation and the end of another process
# Where utilisation is not reported: less than any runtime needs before it computes.
IDLE_BYTES: Final = 64 * 2**20

_Part: TypeAlias = tuple[str, str, int]  # the pod's uid, kind, card


class UsageHistory:
    def __init__(self) -> None:
        self._over_since: dict[_Part, float] = {}
        self._over_samples: dict[_Part, int] = {}
        self._idle_since: dict[_Part, float] = {}

    def update(self, uses: Iterable[PodUse], living: Collection[str], now: float) -> list[PodUse]:
        """The uses with what the history adds. `living`: the uids of all pods of this node; of others nothing is kept.

        A part that is not in this sample, because its card could not be asked, is not over its share any more: that takes
        samples in a row. It stays idle, if it was.
        """
        uses = list(uses)
        parts = {_part(use) for use in uses}
        for part in [part for part in self._over_since if part not in parts]:
            self._within(part)
        for part in [part for part in self._idle_since if part[0] not in living]:
            del self._idle_since[part]
        return [self._judged(use, now) for use in uses]

    def over_s(self, use: PodUse, now: float) -> float:
        """For how long the pod has used more than it holds, in every sample; 0 if it does not."""
        return now - self._over_since.get(_part(use), now)

    def _judged(self, use: PodUse, now: float) -> PodUse:
        part = _part(use)
        if use.used_bytes is not None and use.used_bytes > use.held_bytes:
            self._over_since.setdefault(part, now)
            self._over_samples[part] = self._over_samples.get(part, 0) + 1
        else:
            self._within(part)
        if _is_idle(use):
            self._idle_since.setdefault(part, now)
        else:
            self._idle_since.pop(part, None)
        since = self._idle_since.get(part)
        return replace(
            use,
            over_use=self._over_samples.get(part, 0) >= SAMPLES_TO_BE_SURE,
            idle_s=None if since is None else now - since,
        )

    def _within(self, part: _Part) -> None:
        self._over_since.pop(part, None)
        self._over_samples.pop(part, None)


def _part(use: PodUse) -> _Part:
    return use.uid, use.kind, use.card


def _is_idle(use: PodUse) -> bool:
    if use.utilisation is not None:
        return use.utilisation == 0
    return use.used_bytes is not None and use.used_bytes < IDLE_BYTES
