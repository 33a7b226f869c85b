"""The CDI specification behind the names."""

import json
from typing import Any

import pytest

from accelshare.vendors.catalog import load
from accelshare.vendors.cdi import existing_name, file_name, spec
from accelshare.vendors.container_edits import CardNames, EditsError
from accelshare.vendors.drivers.driver import HostCard
from accelshare.vendors.validation import parse
from tests.unit.vendors.builders import SMALLEST, profile


def card(index: int, id: str) -> CardNames:
    return HostCard(index, id, 16384, minor=index)


def content(*cards: CardNames, has: bool = True) -> Any:
    return json.loads(spec(load()["nvidia"], cards, exists=lambda path: has and path != "/dev/nvidia-modeset"))


def test_each_card_has_its_device_files_and_all_share_the_rest() -> None:
    assert content(card(0, "GPU-a"), card(1, "GPU-b")) == {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [
            {"name": "GPU-a", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0", "permissions": "rw"}]}},
            {"name": "GPU-b", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia1", "permissions": "rw"}]}},
        ],
        "containerEdits": {
            "deviceNodes": [
                {"path": path, "permissions": "rw"} for path in ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
            ]
        },
    }


def test_no_shared_edits_without_shared_files() -> None:
    assert "containerEdits" not in content(card(0, "GPU-a"), has=False)


def test_a_name_that_runtimes_would_refuse_is_an_error() -> None:
    with pytest.raises(EditsError, match="is no name for a CDI device"):
        content(card(0, "GPU a"))


def test_a_specification_needs_cards() -> None:
    """CDI takes no file without devices."""
    with pytest.raises(EditsError, match="needs cards"):
        content()


def test_a_profile_without_cdi_names_has_no_specification() -> None:
    with pytest.raises(EditsError, match=r"container\.cdi\.name is not set"):
        spec(parse(SMALLEST, file="tiny.toml"), [card(0, "A")], exists=lambda path: True)


def test_the_file_is_named_after_its_profile() -> None:
    assert file_name(profile()) == "accelshare-acme.json"


def generated(*names: tuple[str, str]) -> dict[str, object]:
    """A specification as the vendor's tool writes it: each device with its files, and one with all."""
    devices = [*names, ("all", " ".join(path for _, path in names))]
    return {
        "cdiVersion": "0.7.0",
        "kind": "nvidia.com/gpu",
        "devices": [
            {"name": name, "containerEdits": {"deviceNodes": [{"path": path} for path in [*paths.split(), "/dev/dri/card1"]]}}
            for name, paths in devices
        ],
        "containerEdits": {"deviceNodes": [{"path": "/dev/nvidiactl"}]},
    }


def test_the_vendors_own_name_of_a_card_is_used() -> None:
    nvidia = load()["nvidia"]
    by_uuid = generated(("GPU-a", "/dev/nvidia0"), ("GPU-b", "/dev/nvidia1"))
    assert existing_name(nvidia, card(1, "GPU-b"), [{"kind": "other/gpu"}, by_uuid]) == "nvidia.com/gpu=GPU-b"


def test_a_specification_by_index_is_read_by_its_device_files() -> None:
    """The tool's index need not be ours; the file of the card is."""
    nvidia = load()["nvidia"]
    by_index = generated(("0", "/dev/nvidia3"), ("1", "/dev/nvidia1"))
    assert existing_name(nvidia, HostCard(0, "GPU-a", 1, minor=1), [by_index]) == "nvidia.com/gpu=1"
    assert existing_name(nvidia, HostCard(1, "GPU-b", 1, minor=3), [by_index]) == "nvidia.com/gpu=0"
    assert existing_name(nvidia, HostCard(2, "GPU-c", 1, minor=2), [by_index]) == ""
    assert existing_name(nvidia, HostCard(2, "GPU-c", 1, minor=None), [by_index]) == ""


@pytest.mark.parametrize(
    "spec", [None, 7, [], {}, {"kind": "nvidia.com/gpu"}, {"kind": "nvidia.com/gpu", "devices": [1, {}, {"name": 2}]}]
)
def test_an_invalid_specification_names_no_card(spec: object) -> None:
    assert existing_name(load()["nvidia"], card(0, "GPU-a"), [spec]) == ""


def test_the_shipped_profiles_write_no_file_for_a_kind_of_their_vendors_tools() -> None:
    assert not any(
        profile.container.cdi.write_spec and (profile.container.cdi.name or "").partition("/")[0].endswith("nvidia.com")
        for profile in load()
    )
