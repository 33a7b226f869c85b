"""Stream Computing's driver: `stc-smi` for the cards and their state, /dev for their device files.

Belongs here: combining the tool's outputs and the device files. Never: parsing its output (`stream_tool.py`).
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Final

from accelshare.vendors.drivers import pci, stream_tool
from accelshare.vendors.drivers.driver import (
    Health,
    HostCard,
    Listing,
    NotInstalled,
    Options,
    QueryFailed,
    SkippedDeviceLog,
    first_listing,
    listing,
)
from accelshare.vendors.drivers.health import health_changes, health_in
from accelshare.vendors.drivers.stream_tool import Board
from accelshare.vendors.drivers.tools import run_tool

_TOOLS: Final = ("/usr/local/hpe/bin/stc-smi", "stc-smi")
# Every board in the vendor's documents has four; the tool's own number takes precedence.
_USUAL_CLUSTERS: Final = 4
# The summary of a working board shows N/A, so N/A is not a problem.
_STATUS_ON: Final = ("on", "n/a", "")
_CLUSTER_DEAD: Final = "dead"


class StreamDriver:
    """Boards by index. A board is unhealthy if a device file is missing, its status is not on, or a cluster is dead."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._skipped_log = SkippedDeviceLog("stream")

    async def discover(self) -> list[HostCard]:
        """The boards of this host by index."""
        found = await self._query(exact_sizes=True)
        self._skipped_log.update(found.skipped)
        return list(found.cards)

    def watch_health(self, cards: Sequence[HostCard]) -> AsyncIterator[Health]:
        """Each change of health of these boards, forever."""

        async def check() -> Mapping[str, Health]:
            return health_in(cards, await self._query(exact_sizes=False))

        return health_changes(cards, check, lambda: asyncio.sleep(self._options.every_s))

    async def _query(self, *, exact_sizes: bool) -> Listing:
        tools = self._options.tools or _TOOLS
        return await first_listing([(tool, partial(self._by_tool, tool, exact_sizes=exact_sizes)) for tool in tools])

    async def _by_tool(self, tool: str, *, exact_sizes: bool) -> Listing:
        """The forms together: -q has the state, csv the exact size; one of the two is enough."""
        query, query_failed = await self._form(tool, stream_tool.QUERY, stream_tool.from_query)
        values, values_failed = dict[int, Board](), ""
        if exact_sizes or not query:
            values, values_failed = await self._form(tool, stream_tool.CSV, stream_tool.from_csv)
        if query_failed and values_failed:
            same = query_failed == values_failed
            raise QueryFailed(query_failed if same else f"-q: {query_failed}; --query-npu: {values_failed}")
        if not query and not values and values_failed:
            raise QueryFailed(f"-q printed nothing; --query-npu: {values_failed}")
        listed, _ = await self._form(tool, stream_tool.LIST, stream_tool.from_list) if query_failed else ({}, "")
        boards = [_together(index, query.get(index), values.get(index), listed.get(index)) for index in sorted({*query, *values})]
        serials = Counter(board.serial for board in boards)
        unlisted = {} if query_failed else dict.fromkeys(values.keys() - query.keys(), "stc-smi -q does not list it")
        return listing(
            self._card(board, own_serial=serials[board.serial] == 1, doubt=unlisted.get(board.index, "")) for board in boards
        )

    async def _form(self, tool: str, args: Sequence[str], read: Callable[[str], list[Board]]) -> tuple[dict[int, Board], str]:
        try:
            output = await run_tool(tool, *args, timeout_s=self._options.timeout_s)
            return {board.index: board for board in read(output.checked())}, ""
        except NotInstalled:
            raise
        except QueryFailed as error:
            return {}, str(error)

    def _card(self, board: Board, *, own_serial: bool, doubt: str) -> HostCard:
        problem = "; ".join(filter(None, (doubt, *self._problems(board))))
        return HostCard(
            index=board.index,
            id=board.serial if board.serial and own_serial else f"{board.serial or 'STC'}-{board.index}",
            memory_mib=board.memory_mib,
            minor=board.index,
            model=board.model,
            numa=pci.numa(self._options.roots.sys, board.pci),
            pci=board.pci,
            healthy=not problem,
            problem=problem,
        )

    def _problems(self, board: Board) -> list[str]:
        card, count = f"stc{board.index}", board.cluster_count or len(board.clusters) or _USUAL_CLUSTERS
        nodes = [card, *(f"{card}c{number}" for number in range(count)), f"{card}ctrl"]
        missing = [f"/dev/{node}" for node in nodes if not (self._options.roots.dev / node).exists()]
        dead = [str(number) for number, status in enumerate(board.clusters) if status.lower() == _CLUSTER_DEAD]
        problems = []
        if missing:
            problems.append(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
        if board.status.lower() not in _STATUS_ON:
            problems.append(f"its status is {board.status}, not on")
        if dead:
            problems.append(f"cluster {', '.join(dead)} is DEAD")
        return problems


def _together(index: int, query: Board | None, values: Board | None, listed: Board | None) -> Board:
    """What the forms know of one board; of a size, the exact one first."""
    reported = [board for board in (query, values, listed) if board is not None]
    sizes = [board.memory_mib for board in (values, query) if board is not None and board.memory_mib]
    return Board(
        index=index,
        model=next((board.model for board in reported if board.model), ""),
        serial=next((board.serial for board in reported if board.serial), ""),
        memory_mib=sizes[0] if sizes else 0,
        pci=next((board.pci for board in reported if board.pci), ""),
        status=query.status if query else "",
        cluster_count=query.cluster_count if query else 0,
        clusters=query.clusters if query else (),
    )
