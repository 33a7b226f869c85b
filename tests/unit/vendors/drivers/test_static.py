"""Cards without code: declared, found by a glob, or read off any command."""

from pathlib import Path

import pytest
from msgspec import ValidationError, convert

from accelshare.vendors.drivers.driver import DriverError, Health, HostCard, Options, Roots
from accelshare.vendors.drivers.static import StaticDriver
from accelshare.vendors.profile import StaticCard, StaticRules
from accelshare.vendors.value_types import DeviceGlob

PATTERN = r"^card (?P<index>\d+) (?P<id>\S+) (?P<memory_mib>\d+)MiB (?:(?P<healthy>OK)|\w+)"


def driver(root: Path, rules: StaticRules, *nodes: str, timeout_s: float = 10) -> StaticDriver:
    return StaticDriver(Options(Roots(dev=root), timeout_s=timeout_s, every_s=0.01), rules, nodes)


def command(root: Path, script: str) -> tuple[str, ...]:
    tool = root / "acme-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    return (str(tool), "--list")


def printing(root: Path, *lines: str) -> tuple[str, ...]:
    (root / "new").write_text("".join(f"{line}\n" for line in lines))
    (root / "new").rename(root / "lines")
    return command(root, f"cat {root / 'lines'}")


async def test_declared_cards_are_listed_as_declared(tmp_path: Path) -> None:
    rules = StaticRules(
        (
            StaticCard(16384, id="A", model="X", minor=3, numa=1, pci="0000:3b:00.0"),
            StaticCard(8192, count=2),
            StaticCard(4096, index=7, count=2, id="Z-{index}", minor=0),
        )
    )
    assert await driver(tmp_path, rules).discover() == [
        HostCard(0, "A", 16384, minor=3, model="X", numa=1, pci="0000:3b:00.0"),
        HostCard(1, "card-1", 8192, minor=1),
        HostCard(2, "card-2", 8192, minor=2),
        HostCard(7, "Z-7", 4096, minor=0),
        HostCard(8, "Z-8", 4096, minor=1),
    ]


async def test_a_declared_card_is_healthy_while_its_device_files_exist(tmp_path: Path) -> None:
    watched = driver(tmp_path, StaticRules((StaticCard(1, count=2),)), "/dev/zpu{index}", "/dev/zpu{minor}ctl")
    for name in ("zpu0", "zpu0ctl", "zpu1"):
        (tmp_path / name).touch()
    cards = await watched.discover()
    assert [(card.healthy, card.problem) for card in cards] == [(True, ""), (False, "/dev/zpu1ctl is missing")]

    reported = watched.watch_health(cards)
    (tmp_path / "zpu1ctl").touch()
    assert await anext(reported) == Health("card-1", True)
    (tmp_path / "zpu0").unlink()
    (tmp_path / "zpu0ctl").unlink()
    assert await anext(reported) == Health("card-0", False, "/dev/zpu0, /dev/zpu0ctl are missing")


async def test_a_glob_finds_one_card_for_each_number(tmp_path: Path) -> None:
    """Parts of a card have its number too; a file without a number is no card."""
    for name in ("acme10", "acme2", "acme2c0", "acme2ctl", "acmectl"):
        (tmp_path / name).touch()
    rules = StaticRules(glob="/dev/acme*", memory_mib=4096, model="Z")
    assert await driver(tmp_path, rules).discover() == [
        HostCard(2, "acme2", 4096, minor=2, model="Z"),
        HostCard(10, "acme10", 4096, minor=10, model="Z"),
    ]


async def test_a_glob_may_reach_into_folders_and_find_nothing(tmp_path: Path) -> None:
    assert await driver(tmp_path, StaticRules(glob="/dev/acme/card[0-9]*", memory_mib=1)).discover() == []
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme" / "card5").touch()
    assert [card.index for card in await driver(tmp_path, StaticRules(glob="/dev/acme/card*", memory_mib=1)).discover()] == [5]


async def test_a_device_file_that_disappears_and_returns_is_reported(tmp_path: Path) -> None:
    (tmp_path / "acme0").touch()
    watched = driver(tmp_path, StaticRules(glob="/dev/acme[0-9]", memory_mib=1))
    reported = watched.watch_health(await watched.discover())
    (tmp_path / "acme0").unlink()
    assert await anext(reported) == Health("acme0", False, "is no longer listed")
    (tmp_path / "acme0").touch()
    assert await anext(reported) == Health("acme0", True)


async def test_a_commands_lines_are_cards(tmp_path: Path) -> None:
    rules = StaticRules(command=printing(tmp_path, "# cards", "card 0 A 16384MiB OK", "card 1 B 8192MiB HOT"), pattern=PATTERN)
    first, second = await driver(tmp_path, rules).discover()
    assert first == HostCard(0, "A", 16384, minor=0)
    assert (second.index, second.healthy) == (1, False)
    assert second.problem.endswith("acme-smi does not report it healthy: 'card 1 B 8192MiB HOT'")


async def test_values_missing_in_a_line_come_from_the_rules(tmp_path: Path) -> None:
    rules = StaticRules(command=printing(tmp_path, "X9", "X7"), pattern="(?P<id>X.)", memory_mib=1024, model="Z")
    assert await driver(tmp_path, rules).discover() == [
        HostCard(0, "X9", 1024, minor=0, model="Z"),
        HostCard(1, "X7", 1024, minor=1, model="Z"),
    ]


async def test_sizes_may_be_in_gib(tmp_path: Path) -> None:
    pattern = r"(?P<index>\d+) (?P<memory_gib>[\d.]+) (?P<minor>\d+) (?P<model>.*)"
    rules = StaticRules(command=printing(tmp_path, "0 1.5 4 Z One"), pattern=pattern)
    assert await driver(tmp_path, rules).discover() == [HostCard(0, "card-0", 1536, minor=4, model="Z One")]


async def test_a_pattern_is_applied_to_the_beginning_of_a_long_line(tmp_path: Path) -> None:
    """Its time grows with what it is applied to."""
    lines = ("card 0 A 16384MiB OK" + "x" * 5000, "x" * 5000 + "card 1 B 16384MiB OK")
    rules = StaticRules(command=printing(tmp_path, *lines), pattern=PATTERN.removeprefix("^"))
    assert [found.id for found in await driver(tmp_path, rules).discover()] == ["A"]


async def test_a_command_that_prints_nothing_has_no_cards(tmp_path: Path) -> None:
    assert await driver(tmp_path, StaticRules(command=printing(tmp_path), pattern=PATTERN)).discover() == []


async def test_doubtful_cards_are_skipped(tmp_path: Path) -> None:
    lines = ("card 0 A 16384MiB OK", "card 1 A 16384MiB OK", "card 2 C 0MiB OK", "card 3 D 1MiB OK", "card 3 E 1MiB OK")
    rules = StaticRules(command=printing(tmp_path, *lines, "card 9 F 5MiB OK"), pattern=PATTERN)
    assert [card.index for card in await driver(tmp_path, rules).discover()] == [9]


async def test_a_line_without_a_valid_number_is_skipped(tmp_path: Path) -> None:
    rules = StaticRules(command=printing(tmp_path, "x 1", "4 1"), pattern=r"(?P<index>\w) (?P<memory_mib>\d)")
    assert [card.index for card in await driver(tmp_path, rules).discover()] == [4]


@pytest.mark.parametrize("line", ["0 inf", "0 1e999", "-1 16", "1024 16", "0 nan"])
async def test_an_impossible_number_skips_that_card_only(tmp_path: Path, line: str) -> None:
    """If one card of an inventory is impossible, all cards of its kind are rejected."""
    rules = StaticRules(command=printing(tmp_path, line, "4 1"), pattern=r"(?P<index>\S+) (?P<memory_mib>\S+)")
    assert [card.index for card in await driver(tmp_path, rules).discover()] == [4]


@pytest.mark.parametrize("glob", ["/dev/acme*", "/dev/**/acme[0-9]", "/dev/[", "/dev/acme**", "/dev/**acme/a", "/dev/a***"])
async def test_every_glob_that_a_profile_accepts_can_be_searched(tmp_path: Path, glob: str) -> None:
    try:
        convert(glob, DeviceGlob)
    except ValidationError:
        assert "**" in glob
    else:
        assert await driver(tmp_path, StaticRules(glob=glob, memory_mib=1)).discover() == []


@pytest.mark.parametrize(
    ("script", "timeout_s", "says"),
    [
        ("echo hello; echo world", 60, "none of its 2 lines has the pattern; the first is 'hello'"),
        ("echo broken >&2; exit 3", 60, "exit code 3 and printed 'broken'"),
        ("sleep 600 & sleep 600", 0.3, "no answer within 0.3 s"),
    ],
)
async def test_a_command_without_a_usable_answer_is_reported(tmp_path: Path, script: str, timeout_s: float, says: str) -> None:
    rules = StaticRules(command=command(tmp_path, script), pattern=PATTERN)
    with pytest.raises(DriverError, match=says):
        await driver(tmp_path, rules, timeout_s=timeout_s).discover()


async def test_a_missing_command_is_reported(tmp_path: Path) -> None:
    rules = StaticRules(command=("no-such-acme-smi",), pattern=PATTERN)
    with pytest.raises(DriverError, match="no-such-acme-smi: not found on PATH"):
        await driver(tmp_path, rules).discover()


async def test_the_command_runs_at_every_check(tmp_path: Path) -> None:
    rules = StaticRules(command=printing(tmp_path, "card 0 A 1MiB OK"), pattern=PATTERN)
    watched = driver(tmp_path, rules, "/dev/zpu{index}")
    (tmp_path / "zpu0").touch()
    reported = watched.watch_health(await watched.discover())
    printing(tmp_path, "card 0 A 1MiB HOT")
    assert (await anext(reported)).healthy is False
    printing(tmp_path, "card 0 A 1MiB OK")
    assert await anext(reported) == Health("A", True)
    (tmp_path / "zpu0").unlink()
    assert await anext(reported) == Health("A", False, "/dev/zpu0 is missing")
