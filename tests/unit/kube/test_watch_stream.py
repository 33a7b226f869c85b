"""One watch request: its parameters, events and errors."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from accelshare.kube.client import Client, WatchEvent
from accelshare.kube.errors import BadAnswer, Expired, Forbidden, Unreachable
from tests.unit.kube.support import asking, hang_up, refusal, until_error


def event(kind: str, name: str = "p0", **more: Any) -> bytes:
    return json.dumps({"type": kind, "object": {"metadata": {"name": name}, **more}}).encode() + b"\n"


Sender = Callable[[web.StreamResponse], Awaitable[None]]


def streaming(send: Sender) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await send(response)
        return response

    return handler


def sending(*chunks: bytes) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
    async def send(response: web.StreamResponse) -> None:
        for chunk in chunks:
            await response.write(chunk)

    return streaming(send)


async def events(client: Client, **options: Any) -> list[WatchEvent]:
    return [each async for each in client.watch("/x", resource_version="5", **options)]


async def test_a_watch_requests_bookmarks_and_a_timeout() -> None:
    asked: list[dict[str, str]] = []
    headers: list[Any] = []

    async def note(request: web.BaseRequest) -> web.StreamResponse:
        asked.append(dict(request.query))
        headers.append(request.headers)
        return web.Response()

    async with asking(note, random=lambda: 0.5) as client:
        await events(client, params={"fieldSelector": "a=b"})
        await events(client, timeout_s=42)
    assert asked[0] == {
        "fieldSelector": "a=b",
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "5",
        "timeoutSeconds": "450",
    }
    assert asked[1]["timeoutSeconds"] == "42"
    assert "gzip" not in headers[0]["Accept-Encoding"], "a compressor would hold events back"


async def test_events_are_in_order_until_the_server_ends_the_watch() -> None:
    async with asking(sending(event("ADDED", "a") + event("MODIFIED", "a"), event("DELETED", "a"), event("BOOKMARK"))) as client:
        assert [each.type for each in await events(client)] == ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


async def test_an_event_may_be_cut_anywhere() -> None:
    whole = event("ADDED", "ä") + event("ADDED", "b")
    async with asking(sending(*(whole[place : place + 1] for place in range(len(whole))))) as client:
        watch_events = await events(client)
    assert [json.loads(bytes(each.object))["metadata"]["name"] for each in watch_events] == ["ä", "b"]


async def test_an_event_of_two_megabytes_arrives() -> None:
    async with asking(sending(event("ADDED", padding="x" * 2_000_000) + event("DELETED"))) as client:
        watch_events = await events(client)
    assert [each.type for each in watch_events] == ["ADDED", "DELETED"]
    assert len(bytes(watch_events[0].object)) > 2_000_000


async def test_an_event_arrives_when_it_happens() -> None:
    """Not only with the next event or at the end."""
    seen = asyncio.Event()

    async def send(response: web.StreamResponse) -> None:
        await response.write(event("ADDED"))
        await seen.wait()

    async with asking(streaming(send)) as client:
        async for each in client.watch("/x", resource_version="5"):
            assert each.type == "ADDED"
            seen.set()


async def test_an_error_event_raises_what_it_stands_for() -> None:
    status = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}
    async with asking(sending(event("ADDED"), json.dumps(status).encode() + b"\n")) as client:
        seen, error = await until_error(client.watch("/x", resource_version="5"))
    assert isinstance(error, Expired)
    assert "too old" in str(error)
    assert [each.type for each in seen] == ["ADDED"]


async def test_a_refused_watch_raises() -> None:
    async def no(request: web.BaseRequest) -> web.StreamResponse:
        return refusal(403)

    opened: list[bool] = []
    async with asking(no) as client:
        with pytest.raises(Forbidden):
            await events(client, on_open=lambda _end: opened.append(True))
    assert not opened


async def test_on_open_is_called_before_the_first_event() -> None:
    opened = asyncio.Event()

    async def send(response: web.StreamResponse) -> None:
        await asyncio.wait_for(opened.wait(), 5)

    async with asking(streaming(send)) as client:
        assert await events(client, on_open=lambda _end: opened.set()) == []


async def test_a_silent_watch_times_out() -> None:
    async def send(response: web.StreamResponse) -> None:
        await response.write(event("ADDED"))
        await asyncio.Event().wait()

    async with asking(streaming(send)) as client:
        with pytest.raises(Unreachable, match=r"silent for 0\.05 s"):
            await events(client, silence_s=0.05)


async def test_a_watch_that_exceeds_its_timeout_is_ended() -> None:
    """The server should have ended it; if it has not, it counts as unreachable."""

    async def send(response: web.StreamResponse) -> None:
        while True:
            await response.write(event("BOOKMARK"))
            await asyncio.sleep(0.005)

    async with asking(streaming(send), timeout_s=3.0) as client:  # of which connecting may take a part on a busy machine
        with pytest.raises(Unreachable, match="no response within"):
            await events(client, timeout_s=0.01)


async def test_a_broken_connection_raises_after_the_events_that_came() -> None:
    arrived = asyncio.Event()

    async def broken(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(event("ADDED"))
        await arrived.wait()
        return hang_up(request)

    async def noting(watch: AsyncIterator[WatchEvent]) -> AsyncIterator[WatchEvent]:
        async for each in watch:
            arrived.set()
            yield each

    async with asking(broken) as client:
        seen, error = await until_error(noting(client.watch("/x", resource_version="5")))
    assert type(error) is Unreachable
    assert [each.type for each in seen] == ["ADDED"]


@pytest.mark.parametrize("line", [b"hello\n", b'{"type":"PARTY","object":{}}\n', b'{"type":"ADDED"}\n', b'{"type":"ADDED","obj'])
async def test_a_malformed_event_is_a_bad_answer(line: bytes) -> None:
    async with asking(sending(line)) as client:
        with pytest.raises(BadAnswer, match="not a watch event"):
            await events(client)


async def test_leaving_a_watch_closes_its_connection() -> None:
    closed = asyncio.Event()

    async def forever(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(event("ADDED"))
        try:
            await asyncio.Event().wait()
        finally:
            closed.set()
        return response

    async with asking(_cancelled_on_hang_up(forever)) as client:
        watch = client.watch("/x", resource_version="5")
        await anext(watch)
        await watch.aclose()
        await asyncio.wait_for(closed.wait(), 5)


def _cancelled_on_hang_up(
    handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
    """aiohttp.web keeps a handler running when its client disconnects, so check for that here."""

    async def watched(request: web.BaseRequest) -> web.StreamResponse:
        task = asyncio.ensure_future(handler(request))
        while not task.done():
            if request.transport is None or request.transport.is_closing():
                task.cancel()
            await asyncio.sleep(0)
        return await task

    return watched
