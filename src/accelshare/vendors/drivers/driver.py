"""What a driver is: two verbs, and the values they speak in.

Belongs here: the seam between the agent and hardware. Never: any vendor.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class FoundCard:
    """One card as its host knows it. The index is the vendor's own count, the id outlives a renumbering."""

    index: int
    id: str
    memory_mib: int
    minor: int | None = None
    model: str = ""
    numa: int | None = None
    pci: str = ""
    healthy: bool = True
    problem: str = ""  # why it is not healthy, in words
    used_mib: int | None = field(default=None, compare=False)  # memory in use at that moment; none: not told
    former_ids: tuple[str, ...] = field(default=(), compare=False)  # what earlier versions wrote into pods' records
    measured: bool = True  # its memory was told by the card; if not, by a profile or a flag
    asked_by: str = field(default="", compare=False)  # the way of asking that answered


@dataclass(frozen=True, slots=True)
class Health:
    """A card's health has changed, or is told for the first time."""

    id: str
    healthy: bool
    problem: str = ""
    used_mib: int | None = field(default=None, compare=False)  # as a card's; it changes all the time, and is no change of health


class DriverError(Exception):
    """No card could be asked for; `tried` has one line for each way that was tried, and why it failed.

    `absent`: the vendor's libraries and tools are not on this host, which is no trouble.
    """

    def __init__(self, tried: Sequence[str], *, absent: bool = False) -> None:
        super().__init__("; ".join(tried))
        self.tried = tuple(tried)
        self.absent = absent


@dataclass(frozen=True, slots=True)
class Roots:
    """Where the host's trees are seen from here: a container mounts them elsewhere, a test makes its own."""

    dev: Path = Path("/dev")
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")


@dataclass(frozen=True, slots=True)
class Options:
    """What a profile or a flag says about asking: where libraries and tools are, and how patient to be."""

    roots: Roots = field(default_factory=Roots)
    libraries: tuple[str, ...] = ()  # names or paths, tried in order; none: the driver's own list
    tools: tuple[str, ...] = ()  # names or paths, tried in order; none: the driver's own list
    timeout_s: float = 10.0
    every_s: float = 2.0  # how often health is looked at where nothing tells it
    host: Path = Path("/")  # where the host's root is seen from here; its own libraries and tools are looked for below it
    card_memory_mib: int | None = None  # of cards that do not tell their memory


class Driver(Protocol):
    """One vendor's way to its cards."""

    async def discover(self) -> list[FoundCard]:
        """The cards of this host by index; none at all is an answer too. Raises DriverError if nobody could be asked."""
        ...

    def watch_health(self, cards: Sequence[FoundCard]) -> AsyncIterator[Health]:
        """Each change of health of these cards, for ever, recovery included. A failing look is tried again."""
        ...


@runtime_checkable
class TellsUse(Protocol):
    """A driver whose looks at health also see how much memory is in use. Not every library or tool tells."""

    def used_mib(self) -> Mapping[str, int]:
        """By id, as the last look saw it; a card of which that is not known is left out."""
        ...
