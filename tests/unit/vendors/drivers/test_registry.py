"""From a profile to its driver."""

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from accelshare.vendors.catalog import load
from accelshare.vendors.drivers.driver import Roots
from accelshare.vendors.drivers.registry import DRIVERS, NoDriver, make
from accelshare.vendors.validation import parse
from accelshare.vendors.value_types import DriverName
from tests.unit.vendors.builders import SMALLEST, profile


@pytest.mark.parametrize("vendor", load(), ids=lambda vendor: vendor.name)
def test_every_shipped_profile_has_a_driver(vendor: object) -> None:
    made = make(vendor)  # type: ignore[arg-type]
    assert callable(made.discover)
    assert callable(made.watch_health)


def test_every_driver_can_be_imported_by_its_name() -> None:
    assert tuple(DRIVERS) == get_args(DriverName)


async def test_static_cards_come_from_the_profile_and_watch_its_device_files(tmp_path: Path) -> None:
    (tmp_path / "zpu7").touch()
    cards = await make(profile(), roots=Roots(dev=tmp_path)).discover()
    assert [(card.index, card.id, card.healthy) for card in cards] == [
        (0, "Z-A", True),
        (4, "card-4", False),
        (5, "card-5", False),
    ]


async def test_arguments_take_precedence_over_the_profile(tmp_path: Path) -> None:
    tool = tmp_path / "smi"
    tool.write_text("#!/bin/sh\nsleep 600\n")
    tool.chmod(0o755)
    driver = make(load()["stream"], tools=(str(tool),), timeout_s=0.2, roots=Roots(dev=tmp_path))
    with pytest.raises(Exception, match=r"within 0.2 s"):
        await driver.discover()


def test_a_profile_without_a_driver_has_no_node_side() -> None:
    with pytest.raises(NoDriver, match=r"profile tiny: driver\.name is not set"):
        make(parse(SMALLEST, file="tiny.toml"))


def test_the_code_of_a_driver_is_loaded_only_when_it_is_made() -> None:
    """The extender reads profiles and needs no hardware code."""
    script = "import sys, accelshare.vendors.catalog as c; c.load(); print([m for m in sys.modules if '.drivers.' in m])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
