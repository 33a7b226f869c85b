"""Events on pods: written once, then counted; a failure never reaches the caller."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from accelshare.kube.config import Cluster
from accelshare.kube.events import MOST_AT_ONCE, Events, PodRef
from tests.unit.kube.support import asking, client_of, refusal, unused_url

POD = PodRef("ml", "train-0", "u1")
PATH = "/api/v1/namespaces/ml/events"


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


class Api:
    """The events of one namespace."""

    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}
        self.calls: list[str] = []
        self.fault: int | None = None

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.calls.append(request.method)
        if self.fault is not None:
            return refusal(self.fault)
        body = json.loads(await request.read() or b"{}")
        if request.method == "POST":
            assert request.path == PATH
            name = body["metadata"]["name"]
            if name in self.events:
                return refusal(409, "AlreadyExists")
            self.events[name] = body
            return web.json_response(body, status=201)
        name = request.path.removeprefix(f"{PATH}/")
        if name not in self.events:
            return refusal(404, "NotFound")
        if request.method == "PATCH":
            assert request.headers["Content-Type"] == "application/merge-patch+json"
            self.events[name].update(body)
        return web.json_response(self.events[name])

    @property
    def only(self) -> dict[str, Any]:
        (event,) = self.events.values()
        return event


@asynccontextmanager
async def telling(api: Api, clock: Clock, **options: Any) -> AsyncIterator[Events]:
    async with asking(api) as client:
        yield Events(client, component="accelshare-extender", clock=clock, **options)


async def complain(events: Events, message: str = "no card has room", pod: PodRef = POD, reason: str = "NoRoom") -> bool:
    return await events.record(pod, kind="Warning", reason=reason, message=message)


async def test_an_event_has_all_that_describe_shows() -> None:
    api = Api()
    async with telling(api, Clock()) as events:
        assert await complain(events)
    event = api.only
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Pod", "namespace": "ml", "name": "train-0", "uid": "u1"}
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "NoRoom", "no card has room")
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2027-01-15T08:00:00Z"
    assert event["source"] == {"component": "accelshare-extender"}
    assert event["count"] == 1
    assert event["metadata"]["name"].startswith("train-0.")


async def test_a_repeated_message_is_written_once_a_minute_and_counted() -> None:
    api, clock = Api(), Clock()
    async with telling(api, clock) as events:
        assert await complain(events)
        clock.now += 59
        assert not await complain(events)
        assert api.calls == ["POST"]
        clock.now += 1
        assert await complain(events)
    assert api.calls == ["POST", "PATCH"]
    assert (api.only["count"], api.only["lastTimestamp"]) == (2, "2027-01-15T08:01:00Z")
    assert api.only["firstTimestamp"] == "2027-01-15T08:00:00Z"


async def test_a_clock_that_is_set_back_does_not_silence_anybody() -> None:
    """Neither Events of this process nor those of an earlier one."""
    api, clock = Api(), Clock()
    async with telling(api, clock) as events:
        assert await complain(events)
        clock.now -= 3600
        assert await complain(events)
    clock.now -= 3600
    async with telling(api, clock) as events:
        assert await complain(events)
        assert not await complain(events)
    assert api.only["count"] == 3


async def test_at_the_same_moment_one_write_is_enough() -> None:
    api = Api()
    async with telling(api, Clock()) as events:
        assert sorted(await asyncio.gather(*(complain(events) for _ in range(5)))) == [False] * 4 + [True]
    assert api.calls == ["POST"]


async def test_thousands_of_events_are_written_a_few_at_a_time() -> None:
    """Events must not use all connections."""
    api = Api()
    under_way = [0]

    async def slow(request: web.BaseRequest) -> web.StreamResponse:
        under_way.append(under_way[-1] + 1)
        await asyncio.sleep(0.005)
        under_way.append(under_way[-1] - 1)
        return await api(request)

    async with asking(slow) as client:
        events = Events(client, component="test", clock=Clock())
        results = await asyncio.gather(*(complain(events, pod=PodRef("ml", f"train-{n}", f"u{n}")) for n in range(200)))
    assert results == [True] * 200
    assert max(under_way) <= MOST_AT_ONCE


async def test_another_message_reason_or_pod_is_another_event() -> None:
    api = Api()
    async with telling(api, Clock()) as events:
        assert await complain(events)
        assert await complain(events, message="other")
        assert await complain(events, reason="Other")
        assert await complain(events, pod=PodRef("ml", "train-0", "u2"))
    assert len(api.events) == 4


async def test_a_message_is_one_line_without_control_characters() -> None:
    """Users read events in a terminal, and messages name what other users wrote."""
    api = Api()
    async with telling(api, Clock()) as events:
        assert await complain(events, "record \x1b[2J\nWarning  Fake  \u202e\x9b")
    assert api.only["message"] == r"record \x1b[2J\nWarning  Fake  \u202e\x9b"


async def test_counting_continues_after_a_restart() -> None:
    """The name is a hash of the message, so a new process finds the Event of the old one."""
    api, clock = Api(), Clock()
    for _ in range(3):
        async with telling(api, clock) as events:
            assert await complain(events)
        clock.now += 60
    assert api.only["count"] == 3
    assert api.calls == ["POST", "POST", "GET", "PATCH", "POST", "GET", "PATCH"]


async def test_a_process_that_restarts_often_writes_once_a_minute() -> None:
    """It reads from the cluster when the Event was last written, by itself or by another replica."""
    api, clock = Api(), Clock()
    results = []
    for _ in range(13):
        async with telling(api, clock) as events:
            results += [await complain(events), await complain(events)]
        clock.now += 10
    assert results.count(True) == api.only["count"] == 3
    assert api.calls.count("PATCH") == 2


async def test_the_minute_is_counted_from_what_the_cluster_has() -> None:
    api, clock = Api(), Clock()
    async with telling(api, clock) as events:
        assert await complain(events)
    clock.now += 50
    async with telling(api, clock) as events:
        assert not await complain(events)
        clock.now += 10
        assert await complain(events)


async def test_an_event_that_the_api_server_deleted_is_created_again() -> None:
    api, clock = Api(), Clock()
    async with telling(api, clock) as events:
        await complain(events)
        api.events.clear()
        clock.now += 3600
        assert await complain(events)
    assert api.only["count"] == 1
    assert api.calls == ["POST", "PATCH", "POST"]


@pytest.mark.parametrize("status", [403, 404, 429, 500])
async def test_a_failure_is_false_and_nothing_else(status: int) -> None:
    api, clock = Api(), Clock()
    api.fault = status
    async with telling(api, clock) as events:
        assert not await complain(events)
        calls = len(api.calls)
        assert not await complain(events)
        assert len(api.calls) == calls, "a failure is not tried again within the minute either"
        api.fault = None
        clock.now += 60
        assert await complain(events)


async def test_nothing_raises() -> None:
    async with client_of(Cluster(unused_url())) as client:
        events = Events(client, component="x", clock=Clock())
        assert not await complain(events)
        assert not await complain(events, pod=PodRef("..", "a", "u"))
        assert not await complain(events, message="\ud800")


async def test_a_long_message_is_cut_at_a_character() -> None:
    api = Api()
    async with telling(api, Clock()) as events:
        assert await complain(events, message="x" + "卡" * 1000)
    assert api.only["message"] == "x" + "卡" * 341
    assert len(api.only["message"].encode()) == 1024


async def test_memory_is_bounded() -> None:
    """A forgotten Event is read from the cluster again."""
    api, clock = Api(), Clock()
    async with telling(api, clock, remembered=2) as events:
        for message in ("a", "b", "c"):
            assert await complain(events, message=message)
        assert not await complain(events, message="c")
        assert not await complain(events, message="a")
        clock.now += 60
        assert await complain(events, message="a")
    assert sorted(event["count"] for event in api.events.values()) == [1, 1, 2]


async def test_the_oldest_event_is_forgotten_first() -> None:
    clock = Clock()
    async with telling(Api(), clock, remembered=2) as events:
        await complain(events, message="a")
        await complain(events, message="b")
        clock.now += 60
        await complain(events, message="a")
        await complain(events, message="c")
        assert not await complain(events, message="a")


async def test_the_name_of_an_event_is_a_valid_one_for_every_pod() -> None:
    api = Api()
    async with telling(api, Clock()) as events:
        assert await complain(events, pod=PodRef("ml", "a" * 199 + "." + "b" * 53, "u"))
    (name,) = api.events
    assert len(name) <= 253
    assert ".." not in name
