"""Responses wait so that a client that keeps two idle connections closes none, and no longer than a moment."""

import asyncio

from accelshare.http.idle_connections import IdleConnections

NEVER_S = 3600.0
CLIENT = "192.0.2.1"


def started(*waits: "asyncio.Task[None]") -> list[bool]:
    return [wait.done() for wait in waits]


async def wait(idle: IdleConnections, connection: str, address: str = CLIENT) -> "asyncio.Task[None]":
    task = asyncio.create_task(idle.wait_for_room(address, connection))
    await turns()
    return task


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_two_responses_leave_at_once_and_the_third_waits_for_the_next_request() -> None:
    idle = IdleConnections(longest_delay_s=NEVER_S)
    first, second, third = [await wait(idle, name) for name in "abc"]
    assert started(first, second, third) == [True, True, False]
    idle.busy(CLIENT, "a")
    await turns()
    assert third.done()


async def test_responses_leave_in_their_order_one_for_each_request() -> None:
    idle = IdleConnections(longest_delay_s=NEVER_S)
    waits = [await wait(idle, name) for name in "abcde"]
    assert started(*waits) == [True, True, False, False, False]
    idle.busy(CLIENT, "a")
    idle.busy(CLIENT, "b")
    await turns()
    assert started(*waits) == [True, True, True, True, False]
    idle.busy(CLIENT, "c")
    await turns()
    assert waits[4].done()


async def test_a_response_that_came_later_does_not_overtake() -> None:
    idle = IdleConnections(longest_delay_s=NEVER_S)
    waits = [await wait(idle, name) for name in "abc"]
    idle.busy(CLIENT, "a")
    late = await wait(idle, "a")  # no turn of the event loop lies between the request and this response
    assert (waits[2].done(), late.done()) == (True, False)
    idle.busy(CLIENT, "b")
    await late


async def test_each_client_has_its_own_count() -> None:
    idle = IdleConnections(longest_delay_s=NEVER_S)
    waits = [await wait(idle, name, address) for address in (CLIENT, "192.0.2.2") for name in ("a", "b")]
    assert all(started(*waits))


async def test_a_response_waits_no_longer_than_the_longest_delay() -> None:
    idle = IdleConnections(longest_delay_s=0.0)
    waits = [await wait(idle, name) for name in "abcd"]
    await asyncio.gather(*waits)
    assert not idle._delayed


async def test_a_closed_connection_makes_room_and_waits_for_nothing() -> None:
    idle = IdleConnections(longest_delay_s=NEVER_S)
    first, second, third, fourth = [await wait(idle, name) for name in "abcd"]
    idle.closed(CLIENT, "c")
    await turns()
    assert started(third, fourth) == [True, False]
    idle.closed(CLIENT, "a")
    await turns()
    assert fourth.done()
    for name in "bd":
        idle.closed(CLIENT, name)
    assert not idle._idle
    assert not idle._delayed
    await asyncio.gather(first, second)


async def test_a_response_that_is_cancelled_takes_no_room() -> None:
    idle = IdleConnections(longest_delay_s=NEVER_S)
    waits = [await wait(idle, name) for name in "abcd"]
    waits[2].cancel()
    await turns()
    idle.busy(CLIENT, "a")
    await turns()
    assert waits[3].done()


async def test_responses_that_waited_in_vain_leave_nothing_behind() -> None:
    idle = IdleConnections(longest_delay_s=NEVER_S)
    for name in "ab":
        await wait(idle, name)
    last = await wait(idle, "z")
    idle._longest_delay_s = 0.0
    for _ in range(10):
        await (await wait(idle, "c"))
    assert [len(delayed) for delayed in idle._delayed.values()] == [1]
    idle.busy(CLIENT, "a")
    await last


async def test_a_response_that_begins_to_wait_while_two_others_leave_is_not_forgotten() -> None:
    """Both left in one turn of the loop; the second one must not remove the queue that was made after the first one left."""
    idle = IdleConnections(longest_delay_s=NEVER_S)
    waits = [await wait(idle, name) for name in "abcd"]
    idle.busy(CLIENT, "a")
    between = asyncio.create_task(idle.wait_for_room(CLIENT, "e"))
    idle.busy(CLIENT, "b")
    await turns()
    assert started(*waits, between) == [True, True, True, True, False]
    idle.busy(CLIENT, "c")
    await turns()
    assert between.done()
