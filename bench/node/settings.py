"""How much is measured: a full run and a quick one.

Belongs here: numbers that trade time for certainty. Never: what is measured with them.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class NodeSettings:
    groups: int  # of eight pods each, for each size of request to a device plugin
    starts: int  # of the agent, for each way of delivery
    settle_s: float  # after it delivers, before its idleness is measured
    idle_s: float
    rounds: int  # of starts of pods; each has both ways of delivery
    pairs: int  # in each round and way: a pod that asks for a card and one that asks for nothing
    rushes: int  # for each way and victim
    rush_pods: int


FULL: Final = NodeSettings(groups=10, starts=1, settle_s=5, idle_s=30, rounds=2, pairs=10, rushes=1, rush_pods=60)
QUICK: Final = NodeSettings(groups=2, starts=1, settle_s=1, idle_s=5, rounds=1, pairs=2, rushes=1, rush_pods=16)
