"""Cards in sysfs: device folders behind links, their memory, and their names in /dev/dri."""

from pathlib import Path

import pytest

from accelshare.vendors.catalog import load
from accelshare.vendors.drivers import registry
from accelshare.vendors.drivers.card_sysfs import dmem_capacity, drm_nodes, read_sysfs
from accelshare.vendors.drivers.driver import DriverError, Listing, NotInstalled, Roots
from accelshare.vendors.profile import SysfsRules

AMD = "/sys/module/amdgpu/drivers/pci:amdgpu/*"
GIB = 2**30


class Sysfs:
    """A tree like the kernel's: device folders, and links to them from the driver and from /sys/bus/pci/devices."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sys = root / "sys"
        self.dev = root / "dev"
        (self.dev / "dri").mkdir(parents=True)

    def device(self, address: str, driver: str, *drm: str, **files: object) -> Path:
        folder = self.sys / "devices" / "pci0000:00" / address
        folder.mkdir(parents=True)
        for name, content in files.items():
            (folder / name).write_text(f"{content}\n")
        for node in drm:
            (folder / "drm" / node).mkdir(parents=True)
            (self.dev / "dri" / node).touch()
        for place in (f"bus/pci/drivers/{driver}", f"module/{driver}/drivers/pci:{driver}", "bus/pci/devices"):
            link = self.sys / place / address
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(folder)
        (self.sys / "bus" / "pci" / "drivers" / driver / "bind").touch()
        return folder

    def dmem(self, text: str) -> None:
        file = self.sys / "fs" / "cgroup" / "dmem.capacity"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def read(self, rules: SysfsRules, **defaults: int) -> Listing:
        return read_sysfs(self.sys, rules, **defaults)  # type: ignore[arg-type]  # memory_mib only

    @property
    def roots(self) -> Roots:
        return Roots(dev=self.dev, sys=self.sys)


@pytest.fixture
def sysfs(tmp_path: Path) -> Sysfs:
    return Sysfs(tmp_path)


async def test_amd_cards_are_found_with_the_shipped_profile(sysfs: Sysfs) -> None:
    amd = {"mem_info_vram_total": 16 * GIB, "product_name": "AMD Instinct MI210", "numa_node": 1}
    sysfs.device("0000:c3:00.0", "amdgpu", "card2", "renderD129", unique_id="5f8e1c2a9b3d4e60", **amd)
    sysfs.device("0000:03:00.0", "amdgpu", "card1", "renderD128", **amd)
    sysfs.device("0000:00:02.0", "ast", "card0")
    one, two = await registry.make(load()["amd"], roots=sysfs.roots).discover()
    assert (one.index, one.id, one.pci, one.card_node, one.render_node) == (
        1,
        "0000:03:00.0",
        "0000:03:00.0",
        "card1",
        "renderD128",
    )
    assert (two.index, two.id, two.memory_mib, two.model, two.numa) == (2, "5f8e1c2a9b3d4e60", 16384, "AMD Instinct MI210", 1)
    assert one.healthy
    assert two.healthy


async def test_intel_cards_have_the_memory_of_all_their_tiles(sysfs: Sysfs) -> None:
    sysfs.device("0000:03:00.0", "xe", "card0", "renderD128")
    sysfs.device("0000:04:00.0", "xe", "card1", "renderD129")
    sysfs.dmem(f"drm/0000:03:00.0/vram0 {24 * GIB}\ndrm/0000:04:00.0/vram0 {64 * GIB}\ndrm/0000:04:00.0/vram1 {64 * GIB}\n")
    cards = await registry.make(load()["intel"], roots=sysfs.roots).discover()
    assert [(card.index, card.memory_mib) for card in cards] == [(0, 24576), (1, 131072)]


async def test_a_card_without_memory_of_its_own_is_no_card(sysfs: Sysfs) -> None:
    """A GPU in the processor has no region; it is listed only if somebody gives its size."""
    sysfs.device("0000:00:02.0", "xe", "card0", "renderD128")
    assert await registry.make(load()["intel"], roots=sysfs.roots).discover() == []
    (card,) = await registry.make(load()["intel"], roots=sysfs.roots, card_memory_mib=8192).discover()
    assert (card.memory_mib, card.measured) == (8192, False)


async def test_a_host_without_the_driver_has_no_cards_and_no_problem(sysfs: Sysfs) -> None:
    with pytest.raises(DriverError) as failed:
        await registry.make(load()["amd"], roots=sysfs.roots).discover()
    assert failed.value.absent


async def test_a_card_whose_files_are_missing_is_unhealthy(sysfs: Sysfs) -> None:
    sysfs.device("0000:03:00.0", "amdgpu", "card1", mem_info_vram_total=GIB)
    sysfs.device("0000:04:00.0", "amdgpu", "card2", "renderD129", mem_info_vram_total=GIB)
    (sysfs.dev / "dri" / "renderD129").unlink()
    without_node, without_file = await registry.make(load()["amd"], roots=sysfs.roots).discover()
    assert not without_node.healthy
    assert "{render_node}" in without_node.problem
    assert without_file.problem == "/dev/dri/renderD129 is missing"


def test_links_of_a_class_lead_to_their_devices(sysfs: Sysfs) -> None:
    folder = sysfs.device("0000:03:00.0", "amdgpu", "card1", "renderD128", mem_info_vram_total=GIB)
    for name in ("card1", "card1-DP-1", "renderD128"):
        (sysfs.sys / "class" / "drm" / name).mkdir(parents=True)
    (sysfs.sys / "class" / "drm" / "card1" / "device").symlink_to(folder)
    (sysfs.sys / "class" / "drm" / "card1-DP-1" / "device").symlink_to(sysfs.sys / "class" / "drm" / "card1")
    found = sysfs.read(SysfsRules("/sys/class/drm/card*/device", memory_file="mem_info_vram_total"))
    assert [card.pci for card in found.cards] == ["0000:03:00.0"]


@pytest.mark.parametrize("text", ["many", "-1", "0x400000000", "1e9", "٤", "9" * 30])
def test_a_wrong_size_skips_its_card(sysfs: Sysfs, text: str) -> None:
    sysfs.device("0000:03:00.0", "amdgpu", "card1", mem_info_vram_total=text)
    found = sysfs.read(SysfsRules(AMD, memory_file="mem_info_vram_total"))
    assert found.cards == ()
    assert "mem_info_vram_total" in str(found.skipped[0])


@pytest.mark.parametrize("size", [0, 2**60])
def test_an_impossible_size_skips_its_card(sysfs: Sysfs, size: int) -> None:
    sysfs.device("0000:03:00.0", "amdgpu", "card1", mem_info_vram_total=size)
    assert sysfs.read(SysfsRules(AMD, memory_file="mem_info_vram_total")).cards == ()


def test_dmem_is_asked_where_the_file_is_missing(sysfs: Sysfs) -> None:
    sysfs.device("0000:03:00.0", "amdgpu", "card1")
    sysfs.dmem(f"drm/0000:03:00.0/vram {8 * GIB}\n")
    rules = SysfsRules(AMD, memory_file="mem_info_vram_total", dmem=True)
    assert [card.memory_mib for card in sysfs.read(rules).cards] == [8192]
    assert sysfs.read(SysfsRules(AMD), memory_mib=4096).cards[0].memory_mib == 4096


@pytest.mark.parametrize(
    "text",
    ["", "\n\n", "drm/0000:03:00.0/vram", "drm/0000:03:00.0/vram max", "vram 5", " 5", "drm/0000:03:00.0/vram -5", "\x00\xff 5"],
)
def test_lines_of_dmem_that_cannot_be_read_count_nothing(sysfs: Sysfs, text: str) -> None:
    sysfs.dmem(text)
    assert dmem_capacity(sysfs.sys) == {}


def test_regions_with_a_long_domain_are_of_the_same_device(sysfs: Sysfs) -> None:
    sysfs.dmem("nvidia/00000000:02:00.0/vidmem 1048576\ndrm/0000:03:00.0/stolen memory 7\n")
    assert dmem_capacity(sysfs.sys) == {"0000:02:00.0": 1048576, "0000:03:00.0": 7}


def test_nodes_are_named_by_their_own_pattern(sysfs: Sysfs) -> None:
    sysfs.device("0000:03:00.0", "amdgpu", "card1", "renderD128", "card1-DP-1", "controlD65")
    assert drm_nodes(sysfs.sys, "0000:03:00.0") == ("card1", "renderD128")
    assert drm_nodes(sysfs.sys, "0000:04:00.0") == ("", "")
    assert drm_nodes(sysfs.sys, "") == ("", "")


def test_names_of_devices_are_never_more_than_addresses(sysfs: Sysfs) -> None:
    folder = sysfs.sys / "module" / "amdgpu" / "drivers" / "pci:amdgpu"
    folder.mkdir(parents=True)
    for name in ("module", "uevent", "0000:03:00", "x0000:03:00.0"):
        (folder / name).touch()
    (folder / "loop").symlink_to(folder / "loop")
    with pytest.raises(NotInstalled):
        sysfs.read(SysfsRules(AMD, memory_file="mem_info_vram_total"))
