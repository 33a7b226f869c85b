"""The interface between the agent and drivers: cards, health, errors, and the order of query methods.

Belongs here: what every driver uses, and the rule that only sure cards are listed. Never: any vendor.
"""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class HostCard:
    """One card as its host reports it. The index is the vendor's own number; the id stays when cards are renumbered."""

    index: int
    id: str
    memory_mib: int
    minor: int | None = None
    model: str = ""
    numa: int | None = None
    pci: str = ""
    card_node: str = ""  # its names in /dev/dri, such as card1 and renderD129
    render_node: str = ""
    healthy: bool = True
    problem: str = ""  # why it is not healthy
    used_mib: int | None = field(default=None, compare=False)  # memory in use at that moment; none: not reported
    former_ids: tuple[str, ...] = field(default=(), compare=False)  # what earlier versions wrote into pods' records
    measured: bool = True  # the card reports its memory; if not, a profile or a flag does
    source: str = field(default="", compare=False)  # the query method that found it


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a card, when it changes or is first reported."""

    id: str
    healthy: bool
    problem: str = ""
    used_mib: int | None = field(default=None, compare=False)  # it changes all the time and is not compared


class DriverError(Exception):
    """No query method succeeded; `tried` has one line for each method and why it failed.

    `absent`: the vendor's libraries and tools are not on this host, which is not a problem.
    """

    def __init__(self, tried: Sequence[str], *, absent: bool = False) -> None:
        super().__init__("; ".join(tried))
        self.tried = tuple(tried)
        self.absent = absent


@dataclass(frozen=True, slots=True)
class Roots:
    """Where the host's /dev, /proc and /sys are mounted: elsewhere in a container, and in a test."""

    dev: Path = Path("/dev")
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a driver from a profile or a flag: its libraries, tools and times."""

    roots: Roots = field(default_factory=Roots)
    libraries: tuple[str, ...] = ()  # names or paths, tried in order; none: the driver's own list
    tools: tuple[str, ...] = ()  # names or paths, tried in order; none: the driver's own list
    timeout_s: float = 10.0
    every_s: float = 2.0  # interval of health checks, if there are no notifications
    host: Path = Path("/")  # where the host's root is mounted; its libraries and tools are searched there
    card_memory_mib: int | None = None  # of cards that do not report their memory


class Driver(Protocol):
    """Finds one vendor's cards and watches their health."""

    async def discover(self) -> list[HostCard]:
        """The cards of this host by index; possibly none. Raises DriverError if no query method succeeds."""
        ...

    def watch_health(self, cards: Sequence[HostCard]) -> AsyncIterator[Health]:
        """Each change of health of these cards, forever, recovery included. A failed check is repeated."""
        ...


@runtime_checkable
class ReportsUsage(Protocol):
    """A driver whose health checks also read how much memory is in use. Not every library or tool reports it."""

    def used_mib(self) -> Mapping[str, int]:
        """By id, from the last health check; a card without a known value is not in it."""
        ...


@dataclass(frozen=True, slots=True)
class CardProcess:
    """A process that uses a card. Its number is the one that the host, not a container, has for it."""

    pid: int
    used_bytes: int | None = None  # none: the card does not report it
    utilisation: float | None = None  # 0 to 1, since the last time it was asked; none: the card does not report it


@runtime_checkable
class ReportsProcesses(Protocol):
    """A driver whose library tells which processes use a card."""

    async def processes(self, ids: Sequence[str]) -> Mapping[str, tuple[CardProcess, ...]]:
        """By card id; a card that does not tell is not in it. DriverError if the library cannot be asked."""
        ...

    async def close_processes(self) -> None:
        """End what `processes` keeps open."""
        ...


log = logging.getLogger(__name__)

# 16 TiB: no card has more, so a larger number was misread.
MOST_MEMORY_MIB: Final = 1 << 24
# The inventory and the records of pods have no larger index.
LARGEST_INDEX: Final = 255
NO_MEMORY_REPORTED: Final = (
    "it does not report its memory (unified with the host's?); set it with --card-memory-mib VENDOR=MIB or the profile's "
    "driver.card_memory_mib"
)
# Enough of an output to recognize the program that printed it.
LONGEST_SHOWN: Final = 120


class QueryFailed(Exception):  # noqa: N818 (the name reads as the error)
    """One query method gave no usable answer; the text is the reason, in one line."""


class NotInstalled(QueryFailed):
    """The library or tool of this query method is not on this host."""


@dataclass(frozen=True, slots=True)
class SkippedDevice:
    """A device that is not listed as a card, and why."""

    index: int | None
    why: str

    def __str__(self) -> str:
        return self.why if self.index is None else f"device {self.index}: {self.why}"


@dataclass(frozen=True, slots=True)
class Listing:
    """The answer of one query method: the sure cards by index, and the skipped devices."""

    cards: tuple[HostCard, ...] = ()
    skipped: tuple[SkippedDevice, ...] = ()


# A name for messages, and the query itself, which raises QueryFailed.
QueryMethod = tuple[str, Callable[[], Awaitable[Listing]]]


def listing(cards: Iterable[HostCard], skipped: Iterable[SkippedDevice] = ()) -> Listing:
    """These cards without the doubtful ones: no size, an impossible index, or an index or id that several have."""
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
    """The listing in which cards that do not report their memory have this much; without a number they are skipped."""
    unmeasured = [card for card in found.cards if not card.measured]
    if memory_mib is not None:
        cards = tuple(card if card.measured else replace(card, memory_mib=memory_mib) for card in found.cards)
        return Listing(cards, found.skipped)
    skipped = (SkippedDevice(card.index, NO_MEMORY_REPORTED) for card in unmeasured)
    return Listing(tuple(card for card in found.cards if card.measured), (*found.skipped, *skipped))


async def first_listing(methods: Sequence[QueryMethod]) -> Listing:
    """The answer of the first query method that succeeds; DriverError with a line for each if none does."""
    tried: list[str] = []
    absent = True
    for name, query in methods:
        try:
            found = await query()
        except QueryFailed as error:
            tried.append(f"{name}: {error}")
            absent = absent and isinstance(error, NotInstalled)
        except DriverError as error:  # several libraries were tried, each with its own line
            tried.extend(error.tried)
            absent = absent and error.absent
        else:
            return Listing(tuple(replace(card, source=name) for card in found.cards), found.skipped)
    raise DriverError(tried, absent=absent)


class SkippedDeviceLog:
    """Logs skipped devices, each once and not again at every check."""

    def __init__(self, driver: str) -> None:
        self._driver = driver
        self._logged: frozenset[str] = frozenset()

    def update(self, skipped: Iterable[SkippedDevice]) -> None:
        lines = frozenset(map(str, skipped))
        for line in sorted(lines - self._logged):
            log.warning("skipped device driver=%s reason=%s", self._driver, line)
        self._logged = lines


def excerpt(text: str) -> str:
    """The beginning of an output, for the message that it was not understood."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return repr(line if len(line) <= LONGEST_SHOWN else line[:LONGEST_SHOWN] + "…") if line else "nothing"
