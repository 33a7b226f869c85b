"""The sizes of a load run: full and quick.

Belongs here: numbers of nodes, pods and changes. Never: measuring.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class LoadSettings:
    nodes: int
    pods: int  # that are bound before the load begins, and stay that many
    changes_per_s: float
    duration_s: float
    every_s: float  # how often memory and latencies are summed up
    seed: int = 1


FULL: Final = LoadSettings(nodes=5000, pods=50_000, changes_per_s=100, duration_s=600, every_s=30)
QUICK: Final = LoadSettings(nodes=100, pods=500, changes_per_s=40, duration_s=12, every_s=2)
