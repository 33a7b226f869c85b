"""Running a vendor's tool: what it printed, and an end to it when it does not end."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from accelshare.vendors.drivers.driver import QueryFailed
from accelshare.vendors.drivers.tools import BlockingCalls, run_tool
from tests.fakes.hardware import Hardware, is_running


@pytest.fixture
def hardware(tmp_path: Path) -> Hardware:
    return Hardware(tmp_path)


async def ended(pid: int) -> None:
    """Waits, with patience, for a process that was killed to be gone."""
    async with asyncio.timeout(20):
        while is_running(pid):
            await asyncio.sleep(0.001)


async def child_of(hardware: Hardware) -> int:
    """The pid that the tool has written, once it has."""
    file = hardware.folder / "child"
    async with asyncio.timeout(20):
        while not (file.exists() and file.read_text().endswith("\n")):
            await asyncio.sleep(0.001)
    return int(file.read_text())


async def test_text_and_complaint_are_kept_apart(hardware: Hardware) -> None:
    output = await run_tool(hardware.tool("t", 'echo "$1"; echo oh >&2'), "hello", timeout_s=10)
    assert (output.code, output.text, output.complaint) == (0, "hello\n", "oh\n")


async def test_a_failure_is_reported_with_the_tools_output(hardware: Hardware) -> None:
    output = await run_tool(hardware.tool("t", "echo 'no driver' >&2; exit 3"), timeout_s=10)
    with pytest.raises(QueryFailed, match="ended with exit code 3 and printed 'no driver'"):
        output.checked()


async def test_a_missing_tool_is_reported(hardware: Hardware) -> None:
    with pytest.raises(QueryFailed, match="not found on PATH"):
        await run_tool("no-such-tool-anywhere", timeout_s=10)
    with pytest.raises(QueryFailed, match="no such file"):
        await run_tool(hardware.path("absent"), timeout_s=10)


async def test_a_file_that_is_no_program_is_reported(hardware: Hardware) -> None:
    file = hardware.folder / "t"
    file.write_bytes(b"\x7fELF nothing")
    file.chmod(0o755)
    with pytest.raises(QueryFailed, match="cannot be started: Exec format error"):
        await run_tool(str(file), timeout_s=10)


async def test_bytes_that_are_not_text_are_accepted(hardware: Hardware) -> None:
    output = await run_tool(hardware.tool("t", r"printf '\377\376'"), timeout_s=10)
    assert output.text == "\ufffd\ufffd"


async def test_a_tool_that_hangs_is_killed_with_its_children(hardware: Hardware) -> None:
    tool = hardware.tool("t", f"sleep 1000 & echo $! > '{hardware.path('child')}'; wait")
    with pytest.raises(QueryFailed, match="gave no answer within 1 s and was killed"):
        await run_tool(tool, timeout_s=1)
    await ended(await child_of(hardware))


async def test_a_tool_whose_child_keeps_its_output_open_is_not_waited_for(hardware: Hardware) -> None:
    tool = hardware.tool("t", f"sleep 1000 & echo $! > '{hardware.path('child')}'")
    with pytest.raises(QueryFailed, match="gave no answer within 1 s"):
        await run_tool(tool, timeout_s=1)
    await ended(await child_of(hardware))


async def test_a_tool_that_prints_without_end_is_killed(hardware: Hardware) -> None:
    with pytest.raises(QueryFailed, match="printed more than 1048576 bytes and was killed"):
        await run_tool(hardware.tool("t", "exec yes"), timeout_s=10)


async def test_a_cancelled_caller_leaves_nothing_running(hardware: Hardware) -> None:
    tool = hardware.tool("t", f"sleep 1000 & echo $! > '{hardware.path('child')}'; wait")
    asking = asyncio.create_task(run_tool(tool, timeout_s=1000))
    child = await child_of(hardware)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await ended(child)


async def test_no_second_tool_starts_while_one_cannot_be_killed(hardware: Hardware, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs every few seconds: a hanging kernel module would cost the node a process and a thread each time."""
    started = hardware.folder / "started"
    tool = hardware.tool("t", f"echo $$ >> '{started}'; exec sleep 1000")
    with monkeypatch.context() as no_kill:
        no_kill.setattr(os, "killpg", lambda pid, number: None)
        with pytest.raises(QueryFailed, match="gave no answer"):
            await run_tool(tool, timeout_s=1)
        with pytest.raises(QueryFailed, match="an earlier run still hangs"):
            await run_tool(tool, timeout_s=1)
    (pid,) = map(int, started.read_text().split())
    os.killpg(pid, signal.SIGKILL)
    await ended(pid)
    hardware.tool("t", "echo well")
    async with asyncio.timeout(20):
        while True:
            try:
                output = await run_tool(tool, timeout_s=10)
                break
            except QueryFailed:
                await asyncio.sleep(0.01)
    assert output.text == "well\n"


async def test_a_call_returns_its_result_or_raises_its_error() -> None:
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


async def test_a_hanging_call_is_abandoned_and_later_calls_fail_until_it_ends() -> None:
    gate = threading.Event()
    calls = BlockingCalls("test")
    with pytest.raises(QueryFailed, match=r"gave no answer within 0\.01 s"):
        await calls.run(gate.wait, timeout_s=0.01)
    with pytest.raises(QueryFailed, match="an earlier call still hangs"):
        await calls.run(lambda: 42, timeout_s=1000)
    gate.set()
    assert await eventually(calls, lambda: 42) == 42


async def eventually(calls: BlockingCalls, call: Callable[[], int]) -> int:
    """The call's result, repeated until the call before it has ended."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await calls.run(call, timeout_s=20)
            except QueryFailed:
                await asyncio.sleep(0.001)


async def test_a_cancelled_call_finishes_before_the_next_starts() -> None:
    gate = threading.Event()
    calls = BlockingCalls("test")
    first = asyncio.create_task(calls.run(gate.wait, timeout_s=20))
    await asyncio.sleep(0)
    first.cancel()
    second = asyncio.create_task(calls.run(lambda: 42, timeout_s=20))
    gate.set()
    assert await second == 42
