"""The processes on each card, read off a command's output: for vendors whose library does not tell them.

Belongs here: running the command of `driver.processes`, and what the groups of its pattern mean. Never: any vendor, cgroups.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from accelshare.vendors.drivers import pci
from accelshare.vendors.drivers.driver import CardProcess, DriverError, HostCard, NotInstalled, Options, QueryFailed
from accelshare.vendors.drivers.patterns import PatternMatch, PatternProcess
from accelshare.vendors.drivers.tools import run_tool
from accelshare.vendors.host_paths import candidate_paths
from accelshare.vendors.profile import ProcessRules

TOOL_FOLDERS: Final = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin")
_MIB: Final = 2**20
_MOST_BYTES: Final = 2**48
_LARGEST_PID: Final = 2**22  # of 64-bit Linux


class ProcessTable:
    """One vendor's command. Only a process whose line names a known card and a possible pid counts."""

    def __init__(self, options: Options, rules: ProcessRules) -> None:
        self._rules = rules
        self._timeout_s = options.timeout_s
        self._programs = candidate_paths(options.tools or rules.command[:1], TOOL_FOLDERS, options.host)
        self._matcher = PatternProcess(rules.pattern, several_lines=False, timeout_s=options.timeout_s)

    async def processes(self, cards: Sequence[HostCard]) -> Mapping[str, tuple[CardProcess, ...]]:
        """By card id, for all of these cards; DriverError if no program gives an answer."""
        try:
            matches = await self._matcher.matches(await self._output())
        except QueryFailed as error:
            raise DriverError([str(error)]) from error
        found: dict[str, dict[int, CardProcess]] = {card.id: {} for card in cards}
        for match in matches:
            card, process = _card_of(match, cards), _process(match)
            if card is not None and process is not None:
                known = found[card.id].get(process.pid)
                found[card.id][process.pid] = process if known is None else _sum(known, process)
        return {id: tuple(by_pid[pid] for pid in sorted(by_pid)) for id, by_pid in found.items()}

    async def close(self) -> None:
        await self._matcher.close()

    async def _output(self) -> str:
        tried: list[str] = []
        for program in self._programs:
            try:
                return (await run_tool(program, *self._rules.command[1:], timeout_s=self._timeout_s)).checked()
            except NotInstalled as error:
                tried.append(f"{program}: {error}")
        raise NotInstalled("; ".join(tried))


def _card_of(match: PatternMatch, cards: Iterable[HostCard]) -> HostCard | None:
    groups = match.groups
    index, address = _number(groups.get("index", "")), pci.address(groups.get("pci", ""))
    for card in cards:
        if groups.get("id") == card.id or index == card.index or (address and address == card.pci):
            return card
    return None


def _process(match: PatternMatch) -> CardProcess | None:
    pid = _number(match.groups.get("pid", ""))
    if pid is None or not 0 < pid <= _LARGEST_PID:
        return None
    used = _number(match.groups.get("memory_bytes", ""))
    if used is None and (mib := _number(match.groups.get("memory_mib", ""))) is not None:
        used = int(mib * _MIB)
    return CardProcess(int(pid), None if used is None or used > _MOST_BYTES else int(used))


def _number(text: str) -> float | None:
    """Not below zero, and not infinite."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def _sum(one: CardProcess, other: CardProcess) -> CardProcess:
    """A process may have several lines, one for each context."""
    amounts = [process.used_bytes for process in (one, other) if process.used_bytes is not None]
    return CardProcess(one.pid, sum(amounts) if amounts else None)
