"""What a driver is: two verbs, and the values they speak in.

Belongs here: the seam between the agent and hardware. Never: any vendor.
"""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol, runtime_checkable


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


log = logging.getLogger(__name__)

# 16 TiB: no card has more, so a larger figure was misread.
MOST_MEMORY_MIB: Final = 1 << 24
# A node tells no card beyond it, and a pod's record names none.
LARGEST_INDEX: Final = 255
NO_MEMORY_REPORTED: Final = (
    "it does not tell its memory (unified with the host's?); give a figure by --card-memory-mib VENDOR=MIB or the profile's "
    "driver.card_memory_mib"
)
# Enough of an answer to recognise the program that gave it.
LONGEST_SHOWN: Final = 120


class QueryFailed(Exception):  # noqa: N818 (it reads as what it is: this way cannot be asked)
    """One way gave no answer that could be trusted; the text says why, in one line."""


class NotInstalled(QueryFailed):
    """This way is not on this host at all."""


@dataclass(frozen=True, slots=True)
class SkippedDevice:
    """A device that was seen and is not offered, and why."""

    index: int | None
    why: str

    def __str__(self) -> str:
        return self.why if self.index is None else f"device {self.index}: {self.why}"


@dataclass(frozen=True, slots=True)
class Listing:
    """What one way answered: the cards that are sure, by index, and what was left out."""

    cards: tuple[FoundCard, ...] = ()
    skipped: tuple[SkippedDevice, ...] = ()


# A name for the line about its failure, and the asking itself, which raises CannotAsk.
QueryMethod = tuple[str, Callable[[], Awaitable[Listing]]]


def listing(cards: Iterable[FoundCard], skipped: Iterable[SkippedDevice] = ()) -> Listing:
    """These cards without the doubtful ones: no size, an impossible index, or an index or an id that two of them claim."""
    cards = list(cards)
    indexes = Counter(card.index for card in cards)
    ids = Counter(card.id for card in cards)
    doubtful = list(skipped)
    sure = []
    for card in cards:
        if card.measured and not 0 < card.memory_mib <= MOST_MEMORY_MIB:
            doubtful.append(
                SkippedDevice(card.index, f"its memory is {card.memory_mib} MiB; it must be from 1 to {MOST_MEMORY_MIB}")
            )
        elif not 0 <= card.index <= LARGEST_INDEX:
            doubtful.append(SkippedDevice(card.index, f"its index must be from 0 to {LARGEST_INDEX}"))
        elif indexes[card.index] > 1:
            doubtful.append(SkippedDevice(card.index, f"{indexes[card.index]} devices have this index"))
        elif not card.id or ids[card.id] > 1:
            doubtful.append(
                SkippedDevice(card.index, f"its id is {card.id!r}, which {ids[card.id]} devices have; it must be its own")
            )
        else:
            sure.append(card)
    return Listing(tuple(sorted(sure, key=lambda card: card.index)), tuple(doubtful))


def with_memory(found: Listing, memory_mib: int | None) -> Listing:
    """The listing in which cards that do not tell their memory have this much; without a figure they are left out."""
    silent = [card for card in found.cards if not card.measured]
    if memory_mib is not None:
        given = tuple(card if card.measured else replace(card, memory_mib=memory_mib) for card in found.cards)
        return Listing(given, found.skipped)
    skipped = (SkippedDevice(card.index, NO_MEMORY_REPORTED) for card in silent)
    return Listing(tuple(card for card in found.cards if card.measured), (*found.skipped, *skipped))


async def first_listing(ways: Sequence[QueryMethod]) -> Listing:
    """The answer of the first way that has one; DriverError with a line for each if none has."""
    tried: list[str] = []
    absent = True
    for name, ask in ways:
        try:
            found = await ask()
        except QueryFailed as error:
            tried.append(f"{name}: {error}")
            absent = absent and isinstance(error, NotInstalled)
        except DriverError as error:  # several places were tried, and each has its line
            tried.extend(error.tried)
            absent = absent and error.absent
        else:
            return Listing(tuple(replace(card, asked_by=name) for card in found.cards), found.skipped)
    raise DriverError(tried, absent=absent)


class SkippedDeviceLog:
    """Words about left-out devices, said when they come up and not again at every look."""

    def __init__(self, driver: str) -> None:
        self._driver = driver
        self._said: frozenset[str] = frozenset()

    def say(self, skipped: Iterable[SkippedDevice]) -> None:
        lines = frozenset(map(str, skipped))
        for line in sorted(lines - self._said):
            log.warning("driver=%s left out %s", self._driver, line)
        self._said = lines


def excerpt(text: str) -> str:
    """The first words of an answer, for the line that says it was not understood."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return repr(line if len(line) <= LONGEST_SHOWN else line[:LONGEST_SHOWN] + "…") if line else "nothing"
