"""Patterns over the lines and blocks of a tool's output, bounded in time and size."""

import asyncio
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelshare.vendors.catalog import load
from accelshare.vendors.drivers.driver import DriverError, HostCard, Options, QueryFailed, Roots
from accelshare.vendors.drivers.patterns import LONGEST_GROUP, MOST_MATCHES, Matcher, PatternProcess
from accelshare.vendors.drivers.static import StaticDriver
from accelshare.vendors.profile import StaticRules

# `npu-smi info` with two healthy cards and one that is not, and a process on the first.
NPU_SMI = """\
+------------------------------------------------------------------------------------------------+
| npu-smi 24.1.rc2                 Version: 24.1.rc2                                             |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B3               | OK            | 101.8       43                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           0    / 0          3318 / 65536         |
+===========================+===============+====================================================+
| 1     910B3               | Alarm         | 93.2        41                0    / 0             |
| 0                         | 0000:C2:00.0  | 0           0    / 0          3314 / 65536         |
+===========================+===============+====================================================+
| 10    910B3               | OK            | 93.2        41                0    / 0             |
| 0                         | 0000:01:00.0  | 55          0    / 0          65099/ 65536         |
+===========================+===============+====================================================+
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 0       0                 | 4242          | python                   | 91                      |
+===========================+===============+====================================================+
"""


def ascend_pattern() -> str:
    driver = load()["ascend"].driver
    assert driver is not None
    assert driver.static is not None
    assert driver.static.block_pattern is not None
    return driver.static.block_pattern


def prints(tmp_path: Path, text: str) -> tuple[str, ...]:
    file = tmp_path / "output"
    file.write_text(text)
    return ("cat", str(file))


def static(tmp_path: Path, rules: StaticRules, *, timeout_s: float = 10) -> StaticDriver:
    return StaticDriver(Options(roots=Roots(dev=tmp_path, sys=tmp_path), timeout_s=timeout_s, every_s=0.01), rules)


async def test_ascend_cards_are_read_with_the_shipped_pattern(tmp_path: Path) -> None:
    rules = StaticRules(command=prints(tmp_path, NPU_SMI), block_pattern=ascend_pattern())
    first, second, third = await static(tmp_path, rules).discover()
    assert first == HostCard(0, "0000:c1:00.0", 65536, minor=0, model="910B3", pci="0000:c1:00.0")
    assert (second.index, second.healthy) == (1, False)
    assert "Alarm" in second.problem
    assert (third.index, third.id, third.memory_mib, third.healthy) == (10, "0000:01:00.0", 65536, True)


async def test_other_models_are_not_cards_of_this_profile(tmp_path: Path) -> None:
    rules = StaticRules(command=prints(tmp_path, NPU_SMI.replace("910B3", "910B4")), block_pattern=ascend_pattern())
    with pytest.raises(DriverError, match="has the pattern"):
        await static(tmp_path, rules).discover()


async def test_a_tool_in_another_place_is_found_by_the_list_of_tools(tmp_path: Path) -> None:
    tool = tmp_path / "their-smi"
    tool.write_text("#!/bin/sh\necho 3 $1\n")
    tool.chmod(0o755)
    rules = StaticRules(command=("no-such-smi", "16"), pattern=r"(?P<index>\d+) (?P<memory_gib>\d+)")
    options = Options(roots=Roots(dev=tmp_path, sys=tmp_path), tools=("no-such-smi", str(tool)))
    assert await StaticDriver(options, rules).discover() == [HostCard(3, "card-3", 16384, minor=3)]


async def test_a_pattern_without_end_is_killed_and_the_driver_goes_on(tmp_path: Path) -> None:
    """Nested repeats take exponential time; Python cannot interrupt them, and nothing else may wait for them."""
    text = "a" * 60 + "!\n"
    rules = StaticRules(command=prints(tmp_path, text), block_pattern=r"(?P<id>(a+)+)$", memory_mib=1)
    driver = static(tmp_path, rules, timeout_s=0.5)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    with pytest.raises(DriverError, match=r"pattern.*killed"):
        await driver.discover()
    ticking.cancel()
    assert ticks > 5
    (tmp_path / "output").write_text("a\n")
    assert [card.id for card in await driver.discover()] == ["a"]


async def test_the_helper_serves_many_outputs_and_ends() -> None:
    process = PatternProcess(r"(?P<id>\w+)", several_lines=False, timeout_s=10)
    try:
        assert [match.groups["id"] for match in await process.matches("one\n\ntwo three\n")] == ["one", "two"]
        assert [match.groups["id"] for match in await process.matches("four")] == ["four"]
    finally:
        await process.close()


def test_matches_and_groups_are_bounded() -> None:
    found = Matcher(r"(?P<id>x*)").match_blocks("y" * 100_000)
    assert len(found) == MOST_MATCHES
    (long,) = Matcher(r"(?P<id>x+)").match_blocks("x" * 100_000)
    assert len(long.groups["id"]) == LONGEST_GROUP
    assert Matcher(r"(?P<id>x+)z").match_lines("x" * 5_000 + "z") == []


async def test_a_pattern_that_cannot_be_compiled_is_a_failed_query() -> None:
    process = PatternProcess("(", several_lines=True, timeout_s=10)
    try:
        with pytest.raises(QueryFailed, match="pattern"):
            await process.matches("x")
    finally:
        await process.close()


@given(st.data())
def test_a_changed_table_gives_no_card_that_is_not_in_it(data: st.DataObject) -> None:
    """Lines lost, doubled or cut: a card is read from its own two lines or not at all."""
    lines = NPU_SMI.splitlines()
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(lines) - 1))
        change = data.draw(st.sampled_from(["lost", "doubled", "cut"]))
        lines[at : at + 1] = {"lost": [], "doubled": [lines[at]] * 2, "cut": [lines[at][: data.draw(st.integers(0, 60))]]}[change]
        lines = lines or [""]
    known = {("0", "0000:C1:00.0"), ("1", "0000:C2:00.0"), ("10", "0000:01:00.0")}
    for match in Matcher(ascend_pattern()).match_blocks("\n".join(lines)):
        assert (match.groups["index"], match.groups["pci"]) in known
        assert match.groups["memory_mib"] == "65536"
        assert re.fullmatch("OK|", match.groups.get("healthy", ""))
