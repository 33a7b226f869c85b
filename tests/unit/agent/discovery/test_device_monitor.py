"""The inventory is kept current while an agent runs."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from accelshare.agent.discovery.device_inventory import DeviceInventory
from accelshare.agent.discovery.device_monitor import DeviceMonitor, merged
from accelshare.agent.discovery.units import ChosenUnit
from accelshare.agent.limits.setting import ContainerLimits
from accelshare.vendors.catalog import load
from accelshare.vendors.drivers.driver import CardProcess, DriverError, Health, HostCard, Options
from accelshare.vendors.drivers.process_table import ProcessTable
from accelshare.vendors.enforcement import Enforcement, choose
from accelshare.vendors.profile import EnforcementRules, ProcessRules, Way
from tests.unit.agent.limits.kernel import Kernel

NOBODY = Enforcement("nobody")
LIMIT_S = 60
FIRST, SECOND = HostCard(0, "id0", 16384, minor=0, source="library"), HostCard(1, "id1", 16384, minor=1, source="library")


class Machine:
    """A driver that returns the cards or the error that the test sets."""

    def __init__(self, *cards: HostCard) -> None:
        self.cards: Sequence[HostCard] = cards
        self.fails: Exception | None = None
        self.looks = 0
        self.watched: list[list[str]] = []
        self.health: asyncio.Queue[Health] = asyncio.Queue()

    async def discover(self) -> list[HostCard]:
        self.looks += 1
        if self.fails is not None:
            raise self.fails
        return list(self.cards)

    async def watch_health(self, cards: Sequence[HostCard]) -> AsyncIterator[Health]:
        self.watched.append([card.id for card in cards])
        while True:
            yield await self.health.get()


@contextlib.asynccontextmanager
async def monitored(
    machine: Machine,
    devices: DeviceInventory,
    *,
    kind: str = "nvidia",
    unit: Callable[[], ChosenUnit] = lambda: ChosenUnit(""),
    process_table: ProcessTable | None = None,
    had_cards: bool = False,
) -> AsyncIterator[DeviceMonitor]:
    async def enforced(cards: Sequence[HostCard]) -> Mapping[str, Enforcement]:
        return {card.id: NOBODY for card in cards}

    monitor = DeviceMonitor(
        load()[kind],
        machine,
        devices,
        unit=unit,
        enforcement=enforced,
        process_table=process_table,
        had_cards=had_cards,
        retry_s=0.001,
        rediscover_s=0.001,
    )
    running = asyncio.create_task(monitor.run())
    try:
        await asyncio.wait_for(monitor.first_answer.wait(), LIMIT_S)
        yield monitor
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not is_so():
            await asyncio.sleep(0.001)


def ids(devices: DeviceInventory) -> list[str]:
    return [card.id for card in devices.inventory()["nvidia"].cards] if "nvidia" in devices.kinds else []


async def test_a_card_that_comes_later_is_found_while_the_first_is_watched() -> None:
    machine, devices = Machine(FIRST), DeviceInventory()
    async with monitored(machine, devices):
        assert ids(devices) == ["id0"]
        machine.cards = [FIRST, SECOND]
        await until(lambda: ids(devices) == ["id0", "id1"])
        await until(lambda: machine.watched[-1] == ["id0", "id1"])


@pytest.mark.parametrize("had_cards", [False, True])
@pytest.mark.parametrize("fails", [None, DriverError(["no library"], absent=True)])
async def test_a_node_without_cards_has_a_problem_only_if_it_had_some(had_cards: bool, fails: DriverError | None) -> None:
    machine, devices = Machine(), DeviceInventory()
    machine.fails = fails
    async with monitored(machine, devices, had_cards=had_cards):
        assert bool(devices.problem("nvidia")) is had_cards
        machine.fails, machine.cards = None, [FIRST]
        await until(lambda: ids(devices) == ["id0"])
        await until(lambda: not devices.problem("nvidia"))


async def test_minors_and_sizes_are_refreshed() -> None:
    machine, devices = Machine(FIRST), DeviceInventory()
    async with monitored(machine, devices):
        machine.cards = [replace(FIRST, minor=7, memory_mib=8192)]
        await until(lambda: [(c.minor, c.size) for c in devices.inventory()["nvidia"].cards] == [(7, 8)])


async def test_nothing_happens_while_nothing_changes() -> None:
    """Discovery goes on, and neither the inventory nor the health watch starts again."""
    machine, devices = Machine(FIRST, SECOND), DeviceInventory()
    async with monitored(machine, devices):
        changes: list[None] = []
        devices.on_change(lambda: changes.append(None))
        machine.cards = [replace(FIRST, healthy=False, problem="a look of its own", used_mib=5), SECOND]
        seen = machine.looks
        await until(lambda: machine.looks > seen + 20)
        assert changes == []
        assert machine.watched == [["id0", "id1"]]


async def test_reported_health_stays_when_a_card_is_added() -> None:
    machine, devices = Machine(FIRST), DeviceInventory()
    async with monitored(machine, devices):
        machine.health.put_nowait(Health("id0", healthy=False, problem="XID 79"))
        await until(lambda: not devices.inventory()["nvidia"].cards[0].healthy)
        machine.cards = [FIRST, SECOND]
        await until(lambda: ids(devices) == ["id0", "id1"])
        assert devices.inventory()["nvidia"].cards[0].problem == "XID 79"


async def test_a_card_that_vanishes_stays_listed_as_unhealthy() -> None:
    machine, devices = Machine(FIRST, SECOND), DeviceInventory()
    async with monitored(machine, devices):
        machine.cards = [FIRST]
        seen = machine.looks
        await until(lambda: machine.looks > seen + 5)
        assert ids(devices) == ["id0", "id1"]
        assert machine.watched == [["id0", "id1"]]


def test_a_card_may_take_the_index_of_a_vanished_one() -> None:
    assert merged([FIRST, SECOND], [replace(SECOND, index=0)]) == (replace(SECOND, index=0),)


def test_another_source_changes_no_known_card() -> None:
    """The library is away for a moment, and the tool names and measures cards differently."""
    known = [replace(FIRST, pci="0000:3b:00.0"), SECOND]
    by_tool = [
        replace(FIRST, id="serial-0", memory_mib=16000, pci="0000:3b:00.0", source="tool"),
        replace(SECOND, id="serial-1", source="tool"),
        replace(SECOND, index=2, id="serial-2", source="tool"),
    ]
    assert [card.id for card in merged(known, by_tool)] == ["id0", "id1", "serial-2"]
    assert [card.memory_mib for card in merged(known, by_tool)] == [16384, 16384, 16384]
    assert merged(known, known) == tuple(known)


async def test_a_driver_that_crashes_is_a_problem_and_tried_again() -> None:
    machine, devices = Machine(FIRST), DeviceInventory()
    machine.fails = ZeroDivisionError("a bug of the driver's")
    async with monitored(machine, devices):
        await until(lambda: "a bug of the driver's" in devices.inventory()["nvidia"].problem)
        assert devices.inventory()["nvidia"].delivers is False
        machine.fails = None
        await until(lambda: ids(devices) == ["id0"])
        await until(lambda: devices.inventory()["nvidia"].problem == "")


@pytest.mark.parametrize("absent", [True, False])
async def test_absent_hardware_is_no_problem_and_a_broken_library_is(absent: bool) -> None:
    machine, devices = Machine(), DeviceInventory()
    machine.fails = DriverError(["libnvidia-ml.so.1: crashed with SIGSEGV during open"], absent=absent)
    async with monitored(machine, devices):
        assert ("nvidia" in devices.inventory()) is not absent
        assert absent or "crashed with SIGSEGV" in devices.inventory()["nvidia"].problem


async def test_a_unit_that_kubelet_cannot_list_disables_that_kind_with_a_message() -> None:
    """Eight Kunlun cards of 32 GiB in MiB, by device plugin."""
    machine, devices = Machine(*(HostCard(n, f"id{n}", 32768) for n in range(8))), DeviceInventory()
    async with monitored(machine, devices, kind="kunlun"):
        entry = devices.inventory()["kunlun"]
        assert entry.cards == []
        assert entry.delivers is False
        assert "kubelet reads at most" in entry.problem
        assert "kunlun" not in devices.kinds


async def test_the_old_unit_stays_while_pods_live_that_use_it() -> None:
    """Their containers may restart; no other pod is sent here until they have ended."""
    machine, devices = Machine(FIRST), DeviceInventory()
    chosen = ChosenUnit("MiB", "it cannot become 'GiB'")
    devices.set_delivers("nvidia", True)
    async with monitored(machine, devices, unit=lambda: chosen):
        entry = devices.inventory()["nvidia"]
        assert (entry.unit, entry.cards[0].size, entry.delivers) == ("MiB", 16384, False)
        assert entry.problem == "it cannot become 'GiB'"
        chosen = ChosenUnit("GiB")
        await until(lambda: devices.inventory()["nvidia"].unit == "GiB")
        await until(lambda: devices.inventory()["nvidia"].delivers)


async def test_enforcement_is_checked_again_and_again() -> None:
    """A daemon that was started later counts from then on, and one that ended does not any more."""
    devices, enforcement = DeviceInventory(), {FIRST.id: NOBODY, SECOND.id: NOBODY}

    async def read_enforcement(cards: Sequence[HostCard]) -> Mapping[str, Enforcement]:
        return {card.id: enforcement[card.id] for card in cards}

    monitor = DeviceMonitor(
        load()["nvidia"],
        Machine(FIRST, SECOND),
        devices,
        unit=lambda: ChosenUnit(""),
        enforcement=read_enforcement,
        enforcement_s=0.001,
    )
    tasks = [asyncio.create_task(work) for work in (monitor.run(), monitor.watch_enforcement())]
    await asyncio.wait_for(monitor.first_answer.wait(), 60)
    for name in ("nobody", "mps", "nobody"):
        enforcement[FIRST.id] = replace(NOBODY, name=name, min_mib=1500)
        changed = asyncio.Event()
        devices.on_change(changed.set)
        while devices.inventory()["nvidia"].cards[0].enforced_by != name:
            changed.clear()
            await asyncio.wait_for(changed.wait(), 60)
    first, second = devices.inventory()["nvidia"].cards
    assert (first.min_units, second.min_units, second.enforced_by) == (2, 0, "nobody")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_card_whose_limit_is_no_longer_held_has_nobody(tmp_path: Path) -> None:
    """The agent sets and reads a limit again and again; what it published before is not believed."""
    kernel = Kernel(tmp_path, {"fake/0": 2**34, "fake/1": 2**34})
    limits, devices = ContainerLimits(kernel, {}), DeviceInventory()
    rules = EnforcementRules(("kernel",), {"kernel": Way(set_by="dmem", region="fake/{index}")})

    async def prove(cards: Sequence[HostCard]) -> Mapping[str, Enforcement]:
        late = time.monotonic() + LIMIT_S
        return {card.id: choose(rules, {}, partial(limits.prove, "nvidia", card, deadline=late)) for card in cards}

    monitor = DeviceMonitor(
        load()["nvidia"], Machine(FIRST, SECOND), devices, unit=lambda: ChosenUnit(""), enforcement=prove, enforcement_s=0.001
    )
    tasks = [asyncio.create_task(work) for work in (monitor.run(), monitor.watch_enforcement())]
    await asyncio.wait_for(monitor.first_answer.wait(), LIMIT_S)
    for forgets, way in ((False, "kernel"), (True, "nobody"), (False, "kernel")):
        kernel.forgets = forgets
        await until(lambda way=way: [card.enforced_by for card in devices.inventory()["nvidia"].cards] == [way, way])  # type: ignore[misc]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_driver_that_does_not_tell_processes_is_helped_by_a_command(tmp_path: Path) -> None:
    """The profile names the command; without one nothing is known."""
    tool = tmp_path / "zpu-smi"
    tool.write_text("#!/bin/sh\necho card 1 pid 42 64\n")
    tool.chmod(0o755)
    rules = ProcessRules((str(tool),), r"card (?P<index>\d+) pid (?P<pid>\d+) (?P<memory_mib>\d+)")
    async with monitored(Machine(FIRST, SECOND), DeviceInventory(), process_table=ProcessTable(Options(), rules)) as monitor:
        assert await monitor.processes() == {"id0": (), "id1": (CardProcess(42, 64 * 2**20),)}
        await monitor.close_processes()
    async with monitored(Machine(FIRST), DeviceInventory()) as monitor:
        assert await monitor.processes() is None
