"""NVIDIA's cards by NVML, and by nvidia-smi if NVML cannot be used."""

import logging
import shutil
from dataclasses import replace

import pytest

from accelshare.vendors.drivers.driver import DriverError, HostCard
from accelshare.vendors.drivers.nvidia import NvidiaDriver
from tests.fakes.hardware import Hardware, Watching

T4 = "GPU-368a683d-1111-2222-3333-0123456789ab"
A30 = "GPU-c0ffee00-1111-2222-3333-0123456789ab"
CARDS = (
    {"uuid": T4, "memory_mib": 16127, "minor": 3, "pci": "0000:3b:00.0", "name": "Tesla T4", "mig": 0, "action": 0},
    {"uuid": A30, "memory_mib": 24258, "minor": 0, "pci": "0000:af:00.0", "name": "NVIDIA A30", "mig": 0, "action": 0},
)


def by_library(hardware: Hardware, *, timeout_s: float = 10.0) -> NvidiaDriver:
    return NvidiaDriver(hardware.options(libraries=(hardware.path("libnvidia-ml.so.1"),), timeout_s=timeout_s))


def by_tool(hardware: Hardware, *, tool: str = "", timeout_s: float = 10.0) -> NvidiaDriver:
    return NvidiaDriver(hardware.options(tools=(tool or hardware.path("nvidia-smi"),), timeout_s=timeout_s))


async def test_nvml_lists_unequal_cards_and_minors_that_differ_from_indexes(hardware: Hardware) -> None:
    hardware.has(*CARDS)
    hardware.tree("sys/bus/pci/devices/0000:3b:00.0/numa_node", "1\n")
    hardware.tree("sys/bus/pci/devices/0000:af:00.0/numa_node", "-1\n")
    assert await by_library(hardware).discover() == [
        HostCard(0, T4, 16127, minor=3, model="Tesla T4", numa=1, pci="0000:3b:00.0"),
        HostCard(1, A30, 24258, minor=0, model="NVIDIA A30", numa=None, pci="0000:af:00.0"),
    ]


async def test_nvidia_smi_lists_the_same_cards(hardware: Hardware) -> None:
    """Minors are not in the CSV: they come from /proc, or are not known."""
    hardware.has(*CARDS)
    hardware.tree("proc/driver/nvidia/gpus/0000:3b:00.0/information", "Model: \t\t Tesla T4\nDevice Minor: \t 3\n")
    assert await by_tool(hardware).discover() == [
        HostCard(0, T4, 16127, minor=3, model="Tesla T4", pci="0000:3b:00.0"),
        HostCard(1, A30, 24258, minor=None, model="NVIDIA A30", pci="0000:af:00.0"),
    ]


async def test_nvml_is_tried_first_and_the_tool_if_it_fails(hardware: Hardware) -> None:
    hardware.has(*CARDS, init=9)
    options = hardware.options(libraries=(hardware.path("libnvidia-ml.so.1"),), tools=(hardware.path("nvidia-smi"),))
    assert len(await NvidiaDriver(options).discover()) == 2


@pytest.mark.parametrize("way", [by_library, by_tool])
async def test_a_card_in_mig_mode_is_skipped_and_logged(
    way: type[NvidiaDriver], hardware: Hardware, caplog: pytest.LogCaptureFixture
) -> None:
    hardware.has({**CARDS[0], "mig": 1}, CARDS[1])
    with caplog.at_level(logging.WARNING):
        assert [card.id for card in await way(hardware).discover()] == [A30]  # type: ignore[arg-type]
    assert "device 0: MIG is on" in caplog.text


async def test_a_skipped_device_is_logged_once(hardware: Hardware, caplog: pytest.LogCaptureFixture) -> None:
    hardware.has({**CARDS[0], "mig": 1})
    driver = by_library(hardware)
    await driver.discover()
    caplog.clear()
    assert await driver.discover() == []
    assert caplog.text == ""


@pytest.mark.parametrize("way", [by_library, by_tool])
async def test_a_lost_card_is_skipped_and_its_neighbours_are_listed(way: type[NvidiaDriver], hardware: Hardware) -> None:
    hardware.has({**CARDS[0], "code": 15}, CARDS[1])
    assert [card.id for card in await way(hardware).discover()] == [A30]  # type: ignore[arg-type]


@pytest.mark.parametrize("way", [by_library, by_tool])
async def test_no_cards_is_an_answer(way: type[NvidiaDriver], hardware: Hardware) -> None:
    hardware.has()
    assert await way(hardware).discover() == []  # type: ignore[arg-type]


async def test_a_card_that_the_driver_wants_reset_is_listed_as_unhealthy(hardware: Hardware) -> None:
    hardware.has({**CARDS[0], "action": 1})
    [card] = await by_library(hardware).discover()
    assert (card.healthy, card.problem) == (False, "the driver requests a reset of the GPU")


async def test_two_cards_of_one_uuid_are_both_doubtful(hardware: Hardware) -> None:
    hardware.has(CARDS[0], {**CARDS[1], "uuid": T4})
    assert await by_library(hardware).discover() == []


async def test_drivers_older_than_mig_are_queried_without_it(hardware: Hardware) -> None:
    refusal = """case "$1" in *mig*) echo 'Field "mig.mode.current" is not a valid field to query.'; exit 2;; esac"""
    tool = hardware.tool("old-smi", f"{refusal}\necho '0, {T4}, 16127, 00000000:3B:00.0, Tesla T4'")
    assert [card.memory_mib for card in await by_tool(hardware, tool=tool).discover()] == [16127]


async def test_every_query_method_tried_has_a_line_in_the_error(hardware: Hardware) -> None:
    with pytest.raises(DriverError) as caught:
        await NvidiaDriver(hardware.options()).discover()
    library, tool = caught.value.tried
    assert library.startswith("/nowhere/lib.so: cannot be loaded: ")
    assert tool == "/nowhere/tool: no such file"


async def test_a_failed_init_is_reported_with_nvmls_text(hardware: Hardware) -> None:
    hardware.has(*CARDS, init=9)
    with pytest.raises(DriverError, match=r"nvmlInit_v2 returned 9 \(Driver Not Loaded\)"):
        await by_library(hardware).discover()


async def test_a_library_without_nvmls_functions_is_reported(hardware: Hardware) -> None:
    with pytest.raises(DriverError, match="has no function nvmlErrorString"):
        await NvidiaDriver(hardware.options(libraries=("libm.so.6",))).discover()


async def test_a_failed_driver_can_be_queried_again(hardware: Hardware) -> None:
    hardware.has(*CARDS, init=9)
    driver = by_library(hardware)
    with pytest.raises(DriverError):
        await driver.discover()
    hardware.has(*CARDS)
    assert len(await driver.discover()) == 2


async def test_a_hanging_library_is_abandoned(hardware: Hardware) -> None:
    hardware.has(*CARDS, hang="nvmlDeviceGetMemoryInfo")
    driver = by_library(hardware, timeout_s=0.05)
    with pytest.raises(DriverError, match=r"gave no answer within 0\.05 s"):
        await driver.discover()
    hardware.has(*CARDS)
    assert len(await by_library(hardware).discover()) == 2


async def test_a_hanging_tool_is_abandoned(hardware: Hardware) -> None:
    hardware.has(*CARDS, hang="nvidia-smi")
    with pytest.raises(DriverError, match=r"nvidia-smi: gave no answer within 0\.2 s and was killed"):
        await by_tool(hardware, timeout_s=0.2).discover()


@pytest.mark.parametrize(
    ("text", "code", "problem"),
    [
        ("segmentation fault", 0, "printed 'segmentation fault'; it must be lines of index, uuid"),
        ("", 0, "printed nothing"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", 9, "ended with exit code 9"),
    ],
)
async def test_garbage_and_failure_are_no_cards(hardware: Hardware, text: str, code: int, problem: str) -> None:
    tool = hardware.prints("broken-smi", text, code=code)
    with pytest.raises(DriverError, match=problem):
        await by_tool(hardware, tool=tool).discover()


async def test_a_row_that_was_cut_short_is_no_card(hardware: Hardware) -> None:
    text = f"0, {T4}, 16127, 00000000:3B:00.0, Disabled, Tesla T4\n1, {A30}, 242"
    assert [card.id for card in await by_tool(hardware, tool=hardware.prints("cut-smi", text)).discover()] == [T4]


@pytest.mark.parametrize("way", ["library", "tool"])
async def test_a_card_that_reports_no_memory_has_the_configured_size(
    way: str, hardware: Hardware, caplog: pytest.LogCaptureFixture
) -> None:
    """As a GB10, whose memory is the host's. Without a configured size it is skipped, and the log line states how to set one."""
    hardware.has({**CARDS[0], "memory_mib": -1}, CARDS[1])
    library, tool = hardware.path("libnvidia-ml.so.1"), hardware.path("nvidia-smi")
    options = hardware.options(libraries=(library,)) if way == "library" else hardware.options(tools=(tool,))
    with caplog.at_level(logging.WARNING):
        assert [card.id for card in await NvidiaDriver(options).discover()] == [A30]
    assert "device 0: it does not report its memory" in caplog.text
    assert "--card-memory-mib" in caplog.text
    driver = NvidiaDriver(replace(options, card_memory_mib=122880))
    cards = await driver.discover()
    assert [(card.id, card.memory_mib, card.measured) for card in cards] == [(T4, 122880, False), (A30, 24258, True)]
    async with Watching(driver, cards) as watching:
        hardware.has({**CARDS[0], "memory_mib": -1}, {**CARDS[1], "code": 15})
        assert (await watching.next()).id == A30  # and the other one stays healthy


async def test_the_hosts_library_is_found_under_the_mounted_root(hardware: Hardware) -> None:
    """Links on the way are the host's: an absolute one begins at its root."""
    hardware.has(*CARDS)
    host = hardware.folder / "host"
    (host / "opt").mkdir(parents=True)
    (host / "usr/lib64").mkdir(parents=True)
    shutil.copy(hardware.path("libnvidia-ml.so.1"), host / "opt/real.so")
    shutil.copy(hardware.folder / "cards", host / "opt/cards")
    (host / "usr/lib64/libnvidia-ml.so.1").symlink_to("/opt/real.so")
    options = replace(hardware.options(tools=("/nowhere/tool",)), libraries=(), host=host)
    assert [card.id for card in await NvidiaDriver(options).discover()] == [T4, A30]
