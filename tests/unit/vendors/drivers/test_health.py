"""From looks to changes: what is told, what is not told twice, and what failing looks mean."""

from collections.abc import Mapping
from contextlib import aclosing

from accelshare.vendors.drivers.asking import CannotAsk, LeftOut, Listing
from accelshare.vendors.drivers.driver import DriverError, FoundCard, Health
from accelshare.vendors.drivers.health import LOOKS_BEFORE_DOUBT, changes, compared

A = FoundCard(0, "a", 16384, pci="0000:01:00.0")
B = FoundCard(1, "b", 16384, pci="0000:02:00.0")
WELL = {"a": Health("a", True), "b": Health("b", True)}
A_ILL = {**WELL, "a": Health("a", False, "ill")}
BLIND = DriverError(["tool: not found on PATH"])
BROKEN = CannotAsk("hangs")
UNREADABLE = OSError(5, "Input/output error")


class EndOfScriptError(Exception):
    """All looks of a test have been looked."""


async def told(*looks: Mapping[str, Health] | Exception) -> list[Health]:
    """All that is told about A and B while these looks are made, one after the other."""
    script = iter(looks)

    async def look() -> Mapping[str, Health]:
        seen = next(script, None)
        if seen is None:
            raise EndOfScriptError
        if isinstance(seen, Exception):
            raise seen
        return seen

    async def pause() -> None:
        pass

    heard = []
    try:
        async with aclosing(changes([A, B], look, pause)) as stream:  # type: ignore[type-var]
            async for health in stream:
                heard.append(health)
    except EndOfScriptError:
        pass
    return heard


async def test_health_as_discovered_is_not_told() -> None:
    assert await told(WELL, WELL) == []


async def test_a_change_is_told_once_and_recovery_too() -> None:
    assert await told(WELL, A_ILL, A_ILL, WELL, WELL) == [Health("a", False, "ill"), Health("a", True)]


async def test_another_reason_is_a_change() -> None:
    assert [health.problem for health in await told(A_ILL, {"a": Health("a", False, "worse")})] == ["ill", "worse"]


async def test_a_card_that_was_not_judged_keeps_its_health() -> None:
    assert await told(A_ILL, {}) == [Health("a", False, "ill")]


async def test_a_card_that_nobody_asked_about_is_not_told() -> None:
    assert await told({"z": Health("z", False, "whose?")}) == []


async def test_a_look_that_fails_now_and_then_changes_nothing() -> None:
    assert await told(BLIND, BROKEN, WELL, UNREADABLE, BLIND, A_ILL) == [Health("a", False, "ill")]


async def test_looks_that_fail_in_a_row_make_every_card_doubtful_once() -> None:
    heard = await told(*[BLIND] * (LOOKS_BEFORE_DOUBT + 3), WELL)
    assert [(health.id, health.healthy) for health in heard] == [("a", False), ("b", False), ("a", True), ("b", True)]
    assert heard[0].problem == "could not be asked 3 times in a row: tool: not found on PATH"


def test_a_card_that_is_not_listed_is_unhealthy_with_the_reason_if_there_is_one() -> None:
    assert compared([A, B], Listing((A,)))["b"] == Health("b", False, "is no longer listed")
    assert compared([A, B], Listing((A,), (LeftOut(1, "lost"),)))["b"] == Health("b", False, "lost")


def test_a_card_under_another_name_is_found_by_its_place_if_that_is_its_own() -> None:
    renamed = FoundCard(0, "other", 16384, pci=A.pci)
    assert compared([A, B], Listing((renamed, B))) == WELL
    twin = FoundCard(2, "twin", 16384, pci=A.pci)
    assert not compared([A, B], Listing((renamed, twin, B)))["a"].healthy
    nowhere = FoundCard(0, "n", 16384)
    assert not compared([nowhere], Listing((FoundCard(0, "m", 16384),)))["n"].healthy
