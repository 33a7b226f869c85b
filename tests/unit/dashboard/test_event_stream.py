"""The stream of one reader: everything first, then changes, in bounds of time and memory."""

import asyncio
import json
from collections.abc import Awaitable, Callable

from accelshare.dashboard.event_stream import EventStream
from accelshare.dashboard.snapshot import DashboardSnapshot
from accelshare.dashboard.updates import Updates


def publish(updates: Updates, value: int) -> None:
    updates.publish(DashboardSnapshot({"n": json.dumps({"name": "n", "value": value}).encode()}, {}))


async def always() -> bool:
    return True


def stream(
    updates: Updates,
    ended: asyncio.Event,
    last: str = "",
    *,
    heartbeat_s: float = 60.0,
    allowed: Callable[[], Awaitable[bool]] = always,
) -> EventStream:
    return EventStream(updates, last, ended, lambda _: None, allowed=allowed, every_s=0.0, heartbeat_s=heartbeat_s)


def content(event: bytes) -> tuple[str, str, list[int]]:
    fields = dict(line.split(": ", 1) for line in event.decode().strip().split("\n"))
    return fields["event"], fields["id"], [node["value"] for node in json.loads(fields["data"])["nodes"]]


async def test_a_reader_that_comes_before_the_first_snapshot_waits_for_it() -> None:
    updates, ended = Updates("g"), asyncio.Event()
    events = aiter(stream(updates, ended))
    waiting = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)
    assert not waiting.done()
    publish(updates, 1)
    assert content(await waiting) == ("snapshot", "g.1", [1])


async def test_a_reader_that_reads_late_gets_only_the_newest() -> None:
    """What came in between is not kept for it."""
    updates, ended = Updates("g"), asyncio.Event()
    publish(updates, 1)
    events = aiter(stream(updates, ended))
    assert content(await anext(events)) == ("snapshot", "g.1", [1])
    for value in range(2, 50):
        publish(updates, value)
    assert content(await anext(events)) == ("update", "g.49", [49])


async def test_a_reader_that_reconnects_gets_what_it_missed() -> None:
    updates, ended = Updates("g"), asyncio.Event()
    publish(updates, 1)
    publish(updates, 2)
    assert content(await anext(aiter(stream(updates, ended, "g.1")))) == ("update", "g.2", [2])
    assert content(await anext(aiter(stream(updates, ended, "other.1")))) == ("snapshot", "g.2", [2])


async def test_a_quiet_stream_shows_that_it_is_alive() -> None:
    updates, ended = Updates("g"), asyncio.Event()
    publish(updates, 1)
    events = aiter(stream(updates, ended, "g.1", heartbeat_s=0.0))
    assert (await anext(events)).startswith(b":")


async def test_it_ends_with_the_server() -> None:
    updates, ended = Updates("g"), asyncio.Event()
    publish(updates, 1)
    events = aiter(stream(updates, ended, "g.1"))
    waiting = asyncio.ensure_future(anext(events, None))
    await asyncio.sleep(0)
    ended.set()
    assert await waiting is None


async def test_it_ends_before_the_next_message_when_the_reader_may_read_no_more() -> None:
    updates, ended = Updates("g"), asyncio.Event()
    answers = [True, False]

    async def allowed() -> bool:
        return answers.pop(0)

    publish(updates, 1)
    events = aiter(stream(updates, ended, allowed=allowed))
    assert content(await anext(events)) == ("snapshot", "g.1", [1])
    publish(updates, 2)
    assert [event async for event in events] == []
