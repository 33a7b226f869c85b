"""The CDI files of this node."""

import asyncio
import resource
from pathlib import Path

from msgspec.structs import replace

from accelshare.agent.cdi_files import CdiFiles, specifications
from accelshare.agent.discovery.device_inventory import DeviceInventory, InventoryCard, VendorCards
from accelshare.vendors.catalog import load
from accelshare.vendors.drivers.driver import HostCard

PROFILE = next(one for one in load() if one.container.cdi.name is not None)
BY_CDI = replace(
    PROFILE, container=replace(PROFILE.container, strategy=("cdi",), cdi=replace(PROFILE.container.cdi, write_spec=True))
)


def test_an_unreadable_file_of_ours_is_written_again(tmp_path: Path) -> None:
    """After a full disk or a power loss the agent must not end."""
    devices = DeviceInventory()
    devices.put(VendorCards(BY_CDI, "GiB", 1024, {0: InventoryCard(HostCard(0, "id0", 1024, minor=0), 1)}))
    files = CdiFiles(tmp_path, devices, exists=lambda _: True)
    files.write()
    (written,) = tmp_path.iterdir()
    content = written.read_text()
    written.write_bytes(b"\xff\xfe\x00")
    files.write()
    assert written.read_text() == content


async def test_a_file_that_a_full_disk_refused_is_written_when_there_is_room(tmp_path: Path) -> None:
    """No card changes meanwhile, and containers need the file. Nothing of the failed attempt stays."""
    devices = DeviceInventory()
    devices.put(VendorCards(BY_CDI, "GiB", 1024, {0: InventoryCard(HostCard(0, "id0", 1024, minor=0), 1)}))
    directory = tmp_path / "cdi"
    directory.write_text("in the place of the directory")
    files = CdiFiles(directory, devices, exists=lambda _: True, retry_s=0.001)
    retrying = asyncio.create_task(files.run())
    try:
        files.write()
        directory.unlink()
        async with asyncio.timeout(30):
            while not directory.exists() or not files.complete:
                await asyncio.sleep(0)
        (written,) = directory.iterdir()
        assert written.suffix == ".json"
    finally:
        retrying.cancel()
        await asyncio.gather(retrying, return_exceptions=True)


async def test_a_file_that_another_program_removed_or_changed_is_written_again(tmp_path: Path) -> None:
    """As by a clean-up of the directory: containers are refused while the runtime does not find the names."""
    devices = DeviceInventory()
    devices.put(VendorCards(BY_CDI, "GiB", 1024, {0: InventoryCard(HostCard(0, "id0", 1024, minor=0), 1)}))
    files = CdiFiles(tmp_path, devices, exists=lambda _: True, retry_s=0.001)
    files.write()
    (written,) = tmp_path.iterdir()
    content = written.read_bytes()
    checking = asyncio.create_task(files.run())
    try:
        for damage in (written.unlink, lambda: written.write_bytes(b"{}")):
            damage()
            async with asyncio.timeout(30):
                while not written.exists() or written.read_bytes() != content:
                    await asyncio.sleep(0)
        files.remove_unused(())
        await asyncio.sleep(0.05)
        assert not written.exists()
    finally:
        checking.cancel()
        await asyncio.gather(checking, return_exceptions=True)


def test_nothing_stays_of_a_file_of_which_only_a_part_could_be_written(tmp_path: Path) -> None:
    """As on a disk that fills up: the first bytes fit."""
    devices = DeviceInventory()
    devices.put(VendorCards(BY_CDI, "GiB", 1024, {0: InventoryCard(HostCard(0, "id0", 1024, minor=0), 1)}))
    files = CdiFiles(tmp_path, devices, exists=lambda _: True)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, before[1]))
    try:
        files.write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not files.complete
    assert list(tmp_path.iterdir()) == []
    files.write()
    assert len(list(tmp_path.iterdir())) == 1


def test_files_that_were_removed_at_the_end_are_not_written_again(tmp_path: Path) -> None:
    """The agent ends, and no pod uses the kind."""
    devices = DeviceInventory()
    devices.put(VendorCards(BY_CDI, "GiB", 1024, {0: InventoryCard(HostCard(0, "id0", 1024, minor=0), 1)}))
    directory = tmp_path / "cdi"
    directory.write_text("in the place of the directory")
    files = CdiFiles(directory, devices, exists=lambda _: True)
    files.write()
    files.remove_unused(())
    assert files.complete


def test_a_card_without_a_cdi_name_is_logged_and_the_agent_goes_on(tmp_path: Path) -> None:
    devices = DeviceInventory()
    devices.put(VendorCards(BY_CDI, "GiB", 1024, {0: InventoryCard(HostCard(0, "no name/for CDI", 1024, minor=0), 1)}))
    CdiFiles(tmp_path, devices, exists=lambda _: True).write()
    assert list(tmp_path.iterdir()) == []


def test_specifications_of_others_are_read_in_both_forms_without_broken_ones(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"kind": "acme.example/a"}')
    (tmp_path / "b.yaml").write_text("kind: acme.example/b\n")
    (tmp_path / "c.yaml").write_text("{ no: yaml: at all")
    (tmp_path / "d.json").write_bytes(b"\xff" * 10)
    (tmp_path / "e.json").write_text("[" * 100_000)
    (tmp_path / "f.txt").write_text("kind: acme.example/f\n")
    assert specifications([tmp_path, tmp_path / "missing"]) == [{"kind": "acme.example/a"}, {"kind": "acme.example/b"}]
