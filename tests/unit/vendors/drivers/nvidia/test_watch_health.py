"""NVIDIA's cards become unhealthy and recover: XIDs, lost cards, an unloaded driver."""

import asyncio

from accelshare.vendors.drivers.driver import Health, HostCard
from accelshare.vendors.drivers.nvidia import NvidiaDriver
from tests.fakes.hardware import Hardware, Watching

ONE = "GPU-00000001-1111-2222-3333-0123456789ab"
TWO = "GPU-00000002-1111-2222-3333-0123456789ab"
CARDS = tuple({"uuid": uuid, "memory_mib": 16127, "minor": n, "action": 0} for n, uuid in enumerate((ONE, TWO)))
OLD_DRIVER = tuple({key: value for key, value in card.items() if key != "action"} for card in CARDS)
LOST = "nvmlDeviceGetHandleByUUID returned 15 (GPU is lost)"


class Clock:
    """Time that passes when a test advances it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def found(hardware: Hardware, clock: Clock | None = None) -> tuple[NvidiaDriver, list[HostCard]]:
    options = hardware.options(libraries=(hardware.path("libnvidia-ml.so.1"),))
    driver = NvidiaDriver(options, quiet_s=60, clock=clock or Clock())
    return driver, await driver.discover()


async def test_changes_since_discovery_are_reported_first(hardware: Hardware) -> None:
    hardware.has(*CARDS)
    driver, cards = await found(hardware)
    hardware.has(CARDS[0], {**CARDS[1], "code": 15})
    async with Watching(driver, cards) as watching:
        assert await watching.next() == Health(TWO, False, LOST)


async def test_a_lost_card_recovers_when_it_answers_again(hardware: Hardware) -> None:
    hardware.has(*CARDS)
    driver, cards = await found(hardware)
    async with Watching(driver, cards) as watching:
        hardware.has({**CARDS[0], "code": 15}, CARDS[1])
        assert await watching.next() == Health(ONE, False, LOST)
        hardware.has(*CARDS)
        assert await watching.next() == Health(ONE, True)


async def test_a_critical_xid_is_over_after_a_quiet_while(hardware: Hardware) -> None:
    hardware.has(*CARDS)
    clock = Clock()
    driver, cards = await found(hardware, clock)
    async with Watching(driver, cards) as watching:
        hardware.xid(TWO, 94)
        assert await watching.next() == Health(TWO, False, "XID 94")
        clock.now = 61
        assert await watching.next() == Health(TWO, True)


async def test_xids_of_programs_are_ignored(hardware: Hardware) -> None:
    """The other card's XID, sent after them, is the first one reported."""
    hardware.has(*CARDS)
    driver, cards = await found(hardware)
    async with Watching(driver, cards) as watching:
        hardware.xid(f"{ONE} 13\n{ONE} 31\n{ONE} 43\n{ONE} 45\n{ONE} 68\n{ONE} 109\n{TWO}", 94)
        assert await watching.next() == Health(TWO, False, "XID 94")


async def test_an_xid_of_an_unknown_card_concerns_all(hardware: Hardware) -> None:
    hardware.has(*CARDS)
    driver, cards = await found(hardware)
    async with Watching(driver, cards) as watching:
        hardware.xid("?", 94)
        assert {(await watching.next()).id, (await watching.next()).id} == {ONE, TWO}


async def test_with_an_old_driver_a_critical_xid_stays_until_a_reset(hardware: Hardware) -> None:
    hardware.has(*OLD_DRIVER)
    clock = Clock()
    driver, cards = await found(hardware, clock)
    async with Watching(driver, cards) as watching:
        hardware.xid(ONE, 79)
        assert await watching.next() == Health(ONE, False, "XID 79: fell off the bus; it needs a reset")
        clock.now = 1000
        hardware.has({**OLD_DRIVER[0], "code": 15}, OLD_DRIVER[1])
        assert await watching.next() == Health(ONE, False, LOST)
        hardware.has(*OLD_DRIVER)
        assert await watching.next() == Health(ONE, True)


async def test_a_passing_fault_is_no_reset(hardware: Hardware) -> None:
    """Only a card that disappeared and returned is healthy; one that failed to answer once is not."""
    hardware.has(*OLD_DRIVER)
    driver, cards = await found(hardware)
    async with Watching(driver, cards) as watching:
        hardware.xid(ONE, 48)
        needs_reset = await watching.next()
        hardware.has({**OLD_DRIVER[0], "code": 999}, OLD_DRIVER[1])
        assert await watching.next() == Health(ONE, False, "nvmlDeviceGetHandleByUUID returned 999 (Unknown Error)")
        hardware.has(*OLD_DRIVER)
        assert await watching.next() == needs_reset == Health(ONE, False, "XID 48: double-bit ECC error; it needs a reset")


async def test_a_recovery_action_keeps_a_card_unhealthy_until_it_is_done(hardware: Hardware) -> None:
    hardware.has(*CARDS)
    driver, cards = await found(hardware)
    async with Watching(driver, cards) as watching:
        hardware.has({**CARDS[0], "action": 4}, CARDS[1])
        assert await watching.next() == Health(ONE, False, "the driver requests it to be drained and reset")
        hardware.has(*CARDS)
        assert await watching.next() == Health(ONE, True)


async def test_cards_without_events_are_polled(hardware: Hardware) -> None:
    silent = tuple({**card, "events": 3} for card in CARDS)
    hardware.has(*silent)
    driver, cards = await found(hardware)
    async with Watching(driver, cards) as watching:
        hardware.has({**silent[0], "code": 15}, silent[1])
        assert await watching.next() == Health(ONE, False, LOST)


async def test_switching_mig_on_makes_a_card_unhealthy(hardware: Hardware) -> None:
    hardware.has(*CARDS)
    driver, cards = await found(hardware)
    async with Watching(driver, cards) as watching:
        hardware.has({**CARDS[0], "mig": 1}, CARDS[1])
        health = await watching.next()
        assert (health.id, health.healthy) == (ONE, False)
        assert health.problem.startswith("MIG is on")


async def test_a_driver_that_is_unloaded_and_loaded_again(hardware: Hardware) -> None:
    """No query method works: after a few checks no card is healthy; each recovers by itself."""
    hardware.has(*OLD_DRIVER)
    driver, cards = await found(hardware)
    async with Watching(driver, cards) as watching:
        hardware.xid(ONE, 79)
        assert not (await watching.next()).healthy
        hardware.has(*({**card, "code": 9} for card in OLD_DRIVER), init=9)
        reported = [await watching.next(), await watching.next()]
        assert {health.id for health in reported if not health.healthy} == {ONE, TWO}
        assert "nvmlInit_v2 returned 9 (Driver Not Loaded)" in reported[0].problem
        hardware.has(*OLD_DRIVER)
        assert {await watching.next(), await watching.next()} == {Health(ONE, True), Health(TWO, True)}


async def test_a_library_that_hangs_makes_no_card_healthy(hardware: Hardware) -> None:
    hardware.has(*CARDS)
    _, cards = await found(hardware)
    driver = NvidiaDriver(hardware.options(libraries=(hardware.path("libnvidia-ml.so.1"),), timeout_s=0.05))
    hardware.has(*CARDS, hang="nvmlDeviceGetMemoryInfo")
    async with Watching(driver, cards) as watching:
        health = await watching.next()
    assert not health.healthy
    assert health.problem.startswith("its health check failed 3 times in a row: ")


async def test_without_the_library_health_comes_from_the_tool(hardware: Hardware) -> None:
    hardware.has(*CARDS)
    driver = NvidiaDriver(hardware.options(tools=(hardware.path("nvidia-smi"),)))
    cards = await driver.discover()
    async with Watching(driver, cards) as watching:
        hardware.has({**CARDS[0], "code": 15}, CARDS[1])
        assert await watching.next() == Health(ONE, False, "is no longer listed")
        hardware.has(*CARDS)
        assert await watching.next() == Health(ONE, True)


async def test_the_tool_does_not_clear_an_open_xid(hardware: Hardware) -> None:
    """NVML hangs after the XID; the tool lists the card as ever, and it is the other one whose news come next."""
    hardware.has(*OLD_DRIVER)
    options = hardware.options(libraries=(hardware.path("libnvidia-ml.so.1"),), tools=(hardware.path("nvidia-smi"),), timeout_s=2)
    driver = NvidiaDriver(options)
    async with Watching(driver, await driver.discover()) as watching:
        hardware.xid(ONE, 48)
        assert (await watching.next()).id == ONE
        hardware.has(OLD_DRIVER[0], {**OLD_DRIVER[1], "code": 15}, hang="nvmlDeviceGetHandleByUUID")
        assert await watching.next() == Health(TWO, False, "is no longer listed")


async def test_the_loop_runs_on_while_events_are_waited_for(hardware: Hardware) -> None:
    hardware.has(*CARDS)
    driver, cards = await found(hardware)
    async with Watching(driver, cards) as watching:
        waiting = asyncio.create_task(watching.next())
        for _ in range(100):
            await asyncio.sleep(0)
        assert not waiting.done()
        hardware.xid(ONE, 94)
        assert await waiting == Health(ONE, False, "XID 94")
