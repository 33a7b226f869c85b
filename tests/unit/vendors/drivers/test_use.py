"""How much of a card is really in use: seen by the looks at its health, where library or tool tell it."""

from pathlib import Path

import pytest

from accelshare.vendors.drivers.driver import Driver, Health, TellsUse
from accelshare.vendors.drivers.enflame import EnflameDriver
from accelshare.vendors.drivers.kunlun import KunlunDriver
from accelshare.vendors.drivers.nvidia import NvidiaDriver
from accelshare.vendors.drivers.static import StaticDriver
from accelshare.vendors.drivers.stream import StreamDriver
from accelshare.vendors.drivers.use import LastUse
from tests.fakes.build import build
from tests.fakes.hardware import Hardware, Watching

UUIDS = [f"GPU-0000000{number}-1111-2222-3333-0123456789ab" for number in (1, 2)]
NVIDIA = tuple({"uuid": uuid, "memory_mib": 16127, "minor": number} for number, uuid in enumerate(UUIDS))
KUNLUN = tuple({"sn": f"SN{n}", "pci": f"0000:8{n}:00.0", "memory_mib": 8064, "model": 0} for n in (1, 2))
ENFLAME = tuple(
    {"uuid": f"U{n}", "sn": f"AAAAAAAAAA{n}", "pci": f"0000:2{n}:00.0", "memory_mib": 16384, "name": "S60"} for n in (1, 2)
)


async def used(
    driver: Driver, hardware: Hardware, cards: tuple[dict[str, object], ...], ill: dict[str, object]
) -> dict[str, int]:
    """What is told once the second card uses 512 MiB; that the first falls ill at the same time shows that it was looked at."""
    hardware.has(*cards)
    found = await driver.discover()
    async with Watching(driver, found) as watching:
        hardware.has({**cards[0], **ill}, {**cards[1], "used_mib": 512})
        assert not (await watching.next()).healthy
        assert isinstance(driver, TellsUse)
        return dict(driver.used_mib())


async def test_nvml_tells_and_a_lost_card_does_not(tmp_path: Path) -> None:
    hardware = Hardware.copied(build("nvidia", tmp_path / "built"), tmp_path)
    driver = NvidiaDriver(hardware.options(libraries=(hardware.path("libnvidia-ml.so.1"),)))
    assert await used(driver, hardware, NVIDIA, {"code": 15}) == {UUIDS[1]: 512}


@pytest.mark.parametrize("way", ["library", "table"])
async def test_kunluns_library_and_its_table_tell(tmp_path: Path, way: str) -> None:
    hardware = Hardware.copied(build("kunlun", tmp_path / "built"), tmp_path)
    library, tool = ("libxpuml.so", "none") if way == "library" else ("none.so", "xpu_smi")
    driver = KunlunDriver(hardware.options(libraries=(hardware.path(library),), tools=(hardware.path(tool),)))
    assert await used(driver, hardware, KUNLUN, {"state": 207, "letter": "E"}) == {"SN1": 0, "SN2": 512}


@pytest.mark.parametrize(("library", "ill"), [("libefml.so", {"health": 0}), ("libefml-newer.so", {"code": 15})])
async def test_both_apis_of_enflames_library_tell(tmp_path: Path, library: str, ill: dict[str, object]) -> None:
    hardware = Hardware.copied(build("enflame", tmp_path / "built"), tmp_path)
    driver = EnflameDriver(hardware.options(libraries=(hardware.path(library),)))
    assert (await used(driver, hardware, ENFLAME, ill))["GCU-U2"] == 512


def test_who_cannot_tell_does_not_pretend_to() -> None:
    assert not issubclass(StaticDriver, TellsUse)
    assert not issubclass(StreamDriver, TellsUse)


def test_what_a_look_does_not_tell_is_not_known_any_more() -> None:
    use = LastUse()
    use.noted({"a": Health("a", True, used_mib=7), "b": Health("b", True, used_mib=0)})
    assert use.mib == {"a": 7, "b": 0}
    use.noted({"a": Health("a", True), "b": Health("b", True, used_mib=3)})
    assert use.mib == {"b": 3}


def test_use_is_no_change_of_health() -> None:
    assert Health("a", True, used_mib=7) == Health("a", True, used_mib=8)
