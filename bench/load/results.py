"""The results of a load run as values.

Belongs here: the shapes of results. Never: how they came about.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bench.load.settings import LoadSettings
from bench.noise import Noise
from bench.procfs import Machine


@dataclass(frozen=True, slots=True)
class Window:
    """A part of the run: how many changes were made, the callers' waits in ms, and the extender's memory and CPU."""

    seconds: float
    changes: int
    filter_ms: tuple[float, ...]
    bind_ms: tuple[float, ...]
    rss_mb: float  # at its end
    cpu_cores: float
    load: float  # of the machine, at its end


@dataclass(frozen=True, slots=True)
class LoadRun:
    settings: LoadSettings
    windows: tuple[Window, ...]
    pods_bound: int
    retries: int  # of filter and bind, because another pod got the card in between
    failures: tuple[str, ...]  # calls that did not do what they should, shortened
    peak_mb: float
    counted_units: int  # by the extender, at the end
    bound_units: int  # of all pods with a node in the API server, at the end


@dataclass(frozen=True, slots=True)
class LoadResults:
    machine: Machine
    noise: Noise
    versions: Mapping[str, str]
    run: LoadRun
