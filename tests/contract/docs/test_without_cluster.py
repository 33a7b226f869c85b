"""Pages whose commands need no cluster."""

import pytest

from tests.contract.docs.machine import Machine
from tests.contract.docs.page_runner import PageRunner
from tests.contract.docs.pages import block, commands

# In these, all commands but a few are in the lists of places.py.
OTHERS = ("CONTRIBUTING.md", "docs/how-to/monitoring.md")


async def test_profiles(plain_machine: Machine) -> None:
    """The vendor of the page is one that `profile check` finds right."""
    page = "docs/reference/profiles.md"
    plain_machine.write("my-vendor.toml", block(page, "toml", 1))
    page_runner = PageRunner(plain_machine)
    await page_runner.run(commands(page))
    assert "acme" not in page_runner.out("accelshare profile list")
    assert 'name = "kunlun"' in page_runner.out("accelshare profile show kunlun")
    assert page_runner.out("accelshare profile check") == "my-vendor.toml: ok\n"


async def test_a_vendor_from_an_empty_file(plain_machine: Machine) -> None:
    """The profile of the page is right, and the chart takes the resource names from it."""
    page = "docs/how-to/add-a-vendor.md"
    page_runner = PageRunner(plain_machine)
    first, *rest = commands(page)
    await page_runner.run([first])
    plain_machine.write("my-profiles/acme.toml", block(page, "toml"))
    await page_runner.run(rest)
    rendered = page_runner.out("helm template")
    assert "--vendor=acme" in rendered
    assert "acme.example/zpu-mem: 1\n" in rendered  # what helm test requests
    assert "acme.example/share" in rendered


async def test_images(machine: Machine) -> None:
    page_runner = PageRunner(machine)
    await page_runner.run(commands("docs/how-to/images.md"))


@pytest.mark.parametrize("page", OTHERS)
async def test_the_rest(page: str, plain_machine: Machine) -> None:
    await PageRunner(plain_machine).run(commands(page))
