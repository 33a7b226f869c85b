"""The static driver, for cards without code: listed in the profile, or found by device files, in sysfs or in a command's output.

Belongs here: the sources of `driver.static`, and health from device files and those sources. Never: any vendor.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from accelshare.vendors.container_edits import EditsError, filled, naming
from accelshare.vendors.drivers import pci
from accelshare.vendors.drivers.card_json import read_json
from accelshare.vendors.drivers.card_sysfs import drm_nodes, read_sysfs
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
    with_memory,
)
from accelshare.vendors.drivers.health import health_changes, health_in
from accelshare.vendors.drivers.patterns import PatternMatch, PatternProcess
from accelshare.vendors.drivers.tools import BlockingCalls, run_tool
from accelshare.vendors.host_paths import candidate_paths
from accelshare.vendors.profile import StaticRules

_MIB_PER_GIB = 1024
_DEV = "/dev/"
_TOOL_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin")

Query: TypeAlias = Callable[[], Awaitable[Listing]]


class StaticDriver:
    """A driver by rules alone. A card is healthy while its device files exist and its source reports it healthy."""

    def __init__(self, options: Options, rules: StaticRules, device_nodes: Sequence[str] = ()) -> None:
        self._options = options
        self._rules = rules
        self._device_nodes = tuple(device_nodes)
        self._skipped_log = SkippedDeviceLog("static")
        self._host_calls = BlockingCalls("static host")

    async def discover(self) -> list[HostCard]:
        """The cards of this host by index."""
        async with self._source() as query:
            found = await query()
        self._skipped_log.update(found.skipped)
        return list(found.cards)

    async def watch_health(self, cards: Sequence[HostCard]) -> AsyncIterator[Health]:
        """Each change of health of these cards, forever."""
        async with self._source() as query:

            async def check() -> Mapping[str, Health]:
                return health_in(cards, await query())

            async for health in health_changes(cards, check, lambda: asyncio.sleep(self._options.every_s)):
                yield health

    @asynccontextmanager
    async def _source(self) -> AsyncIterator[Query]:
        """The query of the profile's source, with the helper process for its pattern, if it has one."""
        pattern = self._rules.pattern or self._rules.block_pattern
        if not self._rules.command or pattern is None:
            yield self._query
            return
        several_lines = self._rules.block_pattern is not None
        matcher = PatternProcess(pattern, several_lines=several_lines, timeout_s=self._options.timeout_s)
        try:
            yield partial(self._query, matcher)
        finally:
            await matcher.close()

    async def _query(self, matcher: PatternProcess | None = None) -> Listing:
        rules = self._rules
        if rules.command:
            commands = [(tool, *rules.command[1:]) for tool in self._tools()]
            read = self._from_json if matcher is None else partial(self._from_pattern, matcher)
            found = await first_listing([(" ".join(command), partial(read, command)) for command in commands])
        elif rules.sysfs is not None:
            found = await first_listing([(rules.sysfs.devices, self._from_sysfs)])
        else:
            found = listing(list(self._from_glob() if rules.glob else self._declared()))
        found = with_memory(found, self._options.card_memory_mib)
        return replace(found, cards=tuple(map(self._judged, found.cards)))

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

    async def _from_sysfs(self) -> Listing:
        rules, sys_root = self._rules, self._options.roots.sys
        assert rules.sysfs is not None
        read = partial(read_sysfs, sys_root, rules.sysfs, memory_mib=rules.memory_mib, model=rules.model)
        # On a thread: the kernel module may hang.
        return await self._host_calls.run(read, timeout_s=self._options.timeout_s)

    def _tools(self) -> tuple[str, ...]:
        """The command's program: the profile's tools in order, else its first word; also in the usual folders of the host."""
        return candidate_paths(self._options.tools or self._rules.command[:1], _TOOL_FOLDERS, self._options.host)

    async def _from_json(self, command: Sequence[str]) -> Listing:
        rules = self._rules
        assert rules.json is not None
        output = await self._output(command)
        return await self._located(read_json(output, rules.json, memory_mib=rules.memory_mib, model=rules.model))

    async def _from_pattern(self, matcher: PatternProcess, command: Sequence[str]) -> Listing:
        output = await self._output(command)
        matches = await matcher.matches(output)
        lines = [line for line in output.splitlines() if line.strip()]
        if lines and not matches:
            raise QueryFailed(f"none of its {len(lines)} lines has the pattern; the first is {excerpt(lines[0])}")
        skipped: list[SkippedDevice] = []
        cards: list[HostCard] = []
        for place, match in enumerate(matches):
            try:
                cards.append(self._card(match, place))
            except (ValueError, OverflowError) as error:  # the latter: infinity
                skipped.append(SkippedDevice(None, f"the line {excerpt(match.text)}: {error}"))
        return await self._located(listing(cards, skipped))

    async def _output(self, command: Sequence[str]) -> str:
        output = await run_tool(*command, timeout_s=self._options.timeout_s)
        return output.checked()

    async def _located(self, found: Listing) -> Listing:
        """The cards with what sysfs has for their PCI addresses."""

        def located(card: HostCard) -> HostCard:
            card_node, render_node = drm_nodes(sys_root, card.pci)
            return replace(card, numa=pci.numa(sys_root, card.pci), card_node=card_node, render_node=render_node)

        sys_root = self._options.roots.sys
        if not any(card.pci for card in found.cards):
            return found
        read = partial(tuple[HostCard, ...], map(located, found.cards))
        return replace(found, cards=await self._host_calls.run(read, timeout_s=self._options.timeout_s))

    def _card(self, match: PatternMatch, place: int) -> HostCard:
        groups = match.groups
        index = int(groups.get("index", place))
        address = pci.address(groups.get("pci", ""))
        pattern = f"{self._rules.pattern}{self._rules.block_pattern}"
        healthy = "?P<healthy>" not in pattern or bool(groups.get("healthy"))
        return HostCard(
            index=index,
            id=groups.get("id") or address or f"card-{index}",
            memory_mib=self._memory_mib(groups),
            minor=int(groups.get("minor", index)),
            model=groups.get("model", self._rules.model),
            pci=address,
            healthy=healthy,
            problem="" if healthy else f"{self._rules.command[0]} does not report it healthy: {excerpt(match.text)}",
        )

    def _memory_mib(self, groups: Mapping[str, str]) -> int:
        if "memory_mib" in groups:
            return int(float(groups["memory_mib"]))
        if "memory_gib" in groups:
            return int(float(groups["memory_gib"]) * _MIB_PER_GIB)
        return self._rules.memory_mib or 0

    def _judged(self, card: HostCard) -> HostCard:
        problems = [card.problem]
        missing: list[str] = []
        for node in self._device_nodes:
            try:
                path = filled(node, naming(card))
            except EditsError as error:
                problems.append(str(error))
                continue
            if not (self._options.roots.dev / path.removeprefix(_DEV)).exists():
                missing.append(path)
        if missing:
            problems.append(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
        problem = "; ".join(filter(None, problems))
        return replace(card, healthy=card.healthy and not problem, problem=problem)
