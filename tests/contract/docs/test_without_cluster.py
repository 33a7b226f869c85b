"""Pages whose commands need no cluster: profiles, the image's bill of materials."""

import json

import pytest

from tests.contract.docs.machine import Machine
from tests.contract.docs.pages import block, commands
from tests.contract.docs.play import Play

# In these, all commands but a few are in the lists of places.py.
OTHERS = ("CONTRIBUTING.md", "docs/how-to/monitoring.md")


async def test_profiles(machine: Machine) -> None:
    """The vendor of the page is one that `profile check` finds right."""
    page = "docs/reference/profiles.md"
    machine.write("my-vendor.toml", block(page, "toml", 1))
    play = Play(machine)
    await play.go(commands(page))
    assert "acme" not in play.out("accelshare profile list")
    assert 'name = "kunlun"' in play.out("accelshare profile show kunlun")
    assert play.out("accelshare profile check") == "my-vendor.toml: ok\n"


async def test_images(machine: Machine) -> None:
    play = Play(machine)
    await play.go(commands("docs/how-to/images.md"))
    assert json.loads(play.out("accelshare sbom"))["bomFormat"] == "CycloneDX"


@pytest.mark.parametrize("page", OTHERS)
async def test_the_rest(page: str, machine: Machine) -> None:
    await Play(machine).go(commands(page))
