"""Blocking calls beside the loop: in turn, and not waited for without end."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from accelshare.vendors.drivers.asking import CannotAsk
from accelshare.vendors.drivers.threads import BlockingCalls


async def test_a_calls_result_and_its_error_come_back() -> None:
    calls = BlockingCalls("test")
    assert await calls.run(lambda: 42, timeout_s=10) == 42
    with pytest.raises(ZeroDivisionError):
        await calls.run(lambda: 1 // 0, timeout_s=10)


async def test_the_loop_runs_while_a_call_blocks() -> None:
    gate = threading.Event()
    running = asyncio.create_task(BlockingCalls("test").run(lambda: gate.wait(20), timeout_s=30))
    for _ in range(10):
        await asyncio.sleep(0)
    gate.set()
    assert await running


async def test_calls_do_not_overlap() -> None:
    calls = BlockingCalls("test")
    inside = threading.Semaphore(1)

    def alone() -> bool:
        free = inside.acquire(blocking=False)
        inside.release()
        return free

    assert all(await asyncio.gather(*(calls.run(alone, timeout_s=20) for _ in range(50))))


async def test_a_hanging_call_is_given_up_and_later_calls_say_so_until_it_ends() -> None:
    gate = threading.Event()
    calls = BlockingCalls("test")
    with pytest.raises(CannotAsk, match=r"gave no answer within 0\.01 s"):
        await calls.run(gate.wait, timeout_s=0.01)
    with pytest.raises(CannotAsk, match="an earlier call still hangs"):
        await calls.run(lambda: 42, timeout_s=1000)
    gate.set()
    assert await eventually(calls, lambda: 42) == 42


async def eventually(calls: BlockingCalls, call: Callable[[], int]) -> int:
    """The call's result, asked for with patience until the one before it has ended."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await calls.run(call, timeout_s=20)
            except CannotAsk:
                await asyncio.sleep(0.001)


async def test_a_call_that_nobody_waits_for_any_more_is_let_finish_first() -> None:
    gate = threading.Event()
    calls = BlockingCalls("test")
    first = asyncio.create_task(calls.run(gate.wait, timeout_s=20))
    await asyncio.sleep(0)
    first.cancel()
    second = asyncio.create_task(calls.run(lambda: 42, timeout_s=20))
    gate.set()
    assert await second == 42
