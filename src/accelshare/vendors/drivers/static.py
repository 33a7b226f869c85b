"""The static driver, for cards without code: listed in the profile, or found by device files or by the lines of a command.

Belongs here: the three sources of `driver.static`, and health from device files and that command. Never: any vendor.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from accelshare.vendors.drivers.driver import (
    Health,
    HostCard,
    Listing,
    Options,
    QueryFailed,
    SkippedDevice,
    SkippedDeviceLog,
    excerpt,
    first_listing,
    listing,
)
from accelshare.vendors.drivers.health import health_changes, health_in
from accelshare.vendors.drivers.tools import run_tool
from accelshare.vendors.profile import StaticRules

_MIB_PER_GIB = 1024
_DEV = "/dev/"
_LONGEST_LINE = 1000


class StaticDriver:
    """A driver by rules alone. A card is healthy while its device files exist and the command, if any, reports it healthy."""

    def __init__(self, options: Options, rules: StaticRules, device_nodes: Sequence[str] = ()) -> None:
        self._options = options
        self._rules = rules
        self._device_nodes = tuple(device_nodes)
        self._skipped_log = SkippedDeviceLog("static")

    async def discover(self) -> list[HostCard]:
        """The cards of this host by index."""
        found = await self._query()
        self._skipped_log.update(found.skipped)
        return list(found.cards)

    def watch_health(self, cards: Sequence[HostCard]) -> AsyncIterator[Health]:
        """Each change of health of these cards, forever."""

        async def check() -> Mapping[str, Health]:
            return health_in(cards, await self._query())

        return health_changes(cards, check, lambda: asyncio.sleep(self._options.every_s))

    async def _query(self) -> Listing:
        if self._rules.command:
            return await first_listing([(" ".join(self._rules.command), self._from_command)])
        cards = list(self._from_glob() if self._rules.glob else self._declared())
        return listing(map(self._judged, cards))

    def _declared(self) -> Iterator[HostCard]:
        following = 0
        for card in self._rules.cards:
            first = following if card.index is None else card.index
            following = first + card.count
            for index in range(first, following):
                yield HostCard(
                    index=index,
                    id=(card.id or "card-{index}").format(index=index),
                    memory_mib=card.memory_mib,
                    minor=index if card.minor is None else card.minor + index - first,
                    model=card.model,
                    numa=card.numa,
                    pci=card.pci,
                )

    def _from_glob(self) -> Iterator[HostCard]:
        """One card for each number; of several files with it (a card and its parts) the one with the shortest name."""
        numbered: dict[int, Path] = {}
        files = self._options.roots.dev.glob((self._rules.glob or "").removeprefix(_DEV))
        for file in sorted(files, key=lambda file: (len(file.name), file.name)):
            number = re.search(r"\d+", file.name)
            if number is not None:
                numbered.setdefault(int(number[0]), file)
        for index, file in numbered.items():
            yield HostCard(index, file.name, self._rules.memory_mib or 0, minor=index, model=self._rules.model)

    async def _from_command(self) -> Listing:
        output = await run_tool(*self._rules.command, timeout_s=self._options.timeout_s)
        # A pattern takes longer on longer lines.
        lines = [line[:_LONGEST_LINE] for line in output.checked().splitlines() if line.strip()]
        matches = [match for line in lines if (match := re.search(self._rules.pattern or "", line))]
        if lines and not matches:
            raise QueryFailed(f"none of its {len(lines)} lines has the pattern; the first is {excerpt(lines[0])}")
        skipped: list[SkippedDevice] = []
        cards: list[HostCard] = []
        for place, match in enumerate(matches):
            try:
                cards.append(self._judged(self._card(match, place)))
            except (ValueError, OverflowError) as error:  # the latter: infinity
                skipped.append(SkippedDevice(None, f"the line {excerpt(match.string)}: {error}"))
        return listing(cards, skipped)

    def _card(self, match: re.Match[str], place: int) -> HostCard:
        groups = {name: text.strip() for name, text in match.groupdict().items() if text is not None}
        index = int(groups.get("index", place))
        healthy = "healthy" not in match.re.groupindex or bool(groups.get("healthy"))
        return HostCard(
            index=index,
            id=groups.get("id") or f"card-{index}",
            memory_mib=self._memory_mib(groups),
            minor=int(groups.get("minor", index)),
            model=groups.get("model", self._rules.model),
            healthy=healthy,
            problem="" if healthy else f"{self._rules.command[0]} does not report it healthy: {excerpt(match.string)}",
        )

    def _memory_mib(self, groups: Mapping[str, str]) -> int:
        if "memory_mib" in groups:
            return int(float(groups["memory_mib"]))
        if "memory_gib" in groups:
            return int(float(groups["memory_gib"]) * _MIB_PER_GIB)
        return self._rules.memory_mib or 0

    def _judged(self, card: HostCard) -> HostCard:
        paths = [node.format(index=card.index, minor=card.minor) for node in self._device_nodes]
        missing = [path for path in paths if not (self._options.roots.dev / path.removeprefix(_DEV)).exists()]
        if not missing:
            return card
        problem = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
        return replace(card, healthy=False, problem="; ".join(filter(None, (card.problem, problem))))
