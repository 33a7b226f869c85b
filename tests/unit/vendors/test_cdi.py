"""The CDI specification behind the names."""

import json
from typing import Any

import pytest

from accelshare.vendors.catalog import load
from accelshare.vendors.cdi import file_name, spec
from accelshare.vendors.container_edits import CardNames, EditsError
from accelshare.vendors.drivers.driver import FoundCard
from accelshare.vendors.profile import parse
from tests.unit.vendors.builders import SMALLEST, profile


def card(index: int, id: str) -> CardNames:
    return FoundCard(index, id, 16384, minor=index)


def content(*cards: CardNames, has: bool = True) -> Any:
    return json.loads(spec(load()["nvidia"], cards, exists=lambda path: has and path != "/dev/nvidia-modeset"))


def test_each_card_has_its_device_files_and_all_share_the_rest() -> None:
    assert content(card(0, "GPU-a"), card(1, "GPU-b")) == {
        "cdiVersion": "0.5.0",
        "kind": "k8s.device-plugin.nvidia.com/gpu",
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


def test_nothing_shared_is_nothing_said() -> None:
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
