"""The CDI files of this node."""

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
