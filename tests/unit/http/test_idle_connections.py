"""Responses wait so that a client that keeps two idle connections closes none, and no longer than a moment."""

import asyncio
from functools import partial

from accelshare.http.idle_connections import IdleConnections

NEVER_S = 3600.0
CLIENT = "192.0.2.1"


class Responses:
    """Responses that are ready, each on its own connection, and which of them were written, in order."""

    def __init__(self, longest_delay_s: float = NEVER_S) -> None:
        self.idle = IdleConnections(longest_delay_s=longest_delay_s)
        self.written: list[str] = []

    def ready(self, *connections: str, address: str = CLIENT) -> None:
        for connection in connections:
            self.idle.write_when_kept(address, connection, partial(self.written.append, connection))

    def busy(self, *connections: str) -> None:
        for connection in connections:
            self.idle.busy(CLIENT, connection)

    def close(self, *connections: str) -> None:
        for connection in connections:
            self.idle.closed(CLIENT, connection)


async def test_two_responses_leave_at_once_and_the_third_waits_for_the_next_request() -> None:
    """It is written before the request that made room is handled, so that the client has its connection in time."""
    responses = Responses()
    responses.ready(*"abc")
    assert responses.written == ["a", "b"]
    responses.busy("a")
    assert responses.written == ["a", "b", "c"]


async def test_responses_leave_in_their_order_one_for_each_request() -> None:
    responses = Responses()
    responses.ready(*"abcde")
    responses.busy("a", "b")
    assert responses.written == ["a", "b", "c", "d"]
    responses.busy("c")
    assert responses.written == ["a", "b", "c", "d", "e"]


async def test_a_response_that_came_later_does_not_overtake() -> None:
    responses = Responses()
    responses.ready(*"abcd")
    responses.busy("a")
    responses.ready("a")
    assert responses.written == ["a", "b", "c"]
    responses.busy("b")
    assert responses.written == ["a", "b", "c", "d"]
    responses.busy("c")
    assert responses.written == ["a", "b", "c", "d", "a"]


async def test_a_client_has_no_more_idle_connections_than_it_keeps() -> None:
    responses = Responses()
    responses.ready(*"ab")
    for _ in range(10):
        responses.busy("a")
        responses.ready("c", "a")
        assert len(responses.idle._idle[CLIENT]) == 2
        responses.busy("b", "c")
        responses.ready("b")


async def test_each_client_has_its_own_count() -> None:
    responses = Responses()
    for address in (CLIENT, "192.0.2.2"):
        responses.ready("a", "b", address=address)
    assert responses.written == ["a", "b", "a", "b"]


async def test_a_response_waits_no_longer_than_the_longest_delay() -> None:
    responses = Responses(longest_delay_s=0.0)
    responses.ready(*"abcd")
    async with asyncio.timeout(10):
        while len(responses.written) < 4:
            await asyncio.sleep(0)
    assert responses.written == ["a", "b", "c", "d"]
    assert not responses.idle._delayed


async def test_a_closed_connection_makes_room_and_waits_for_nothing() -> None:
    responses = Responses()
    responses.ready(*"abcd")
    responses.close("c")
    assert responses.written == ["a", "b", "c"]
    responses.close("a")
    assert responses.written == ["a", "b", "c", "d"]
    responses.close("b", "d")
    assert not responses.idle._idle
    assert not responses.idle._delayed


async def test_a_response_that_was_written_is_not_written_again() -> None:
    """Its timer is cancelled."""
    responses = Responses(longest_delay_s=0.0)
    responses.ready(*"abc")
    responses.busy("a")
    for _ in range(5):
        await asyncio.sleep(0)
    assert responses.written == ["a", "b", "c"]
