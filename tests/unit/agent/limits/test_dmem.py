"""The kernel's regions of a card, and limits on them."""

import pytest

from accelshare.agent.limits import dmem
from accelshare.vendors.drivers.driver import HostCard
from accelshare.vendors.enforcement import Region

CAPACITY = """drm/0000:03:00.0/vram0 17163091968
drm/0000:03:00.0/vram1 8581545984
drm/0000:04:00.0/vram 17163091968
nvidia/00000000:02:00.0/vidmem 25757220864
fake/zpu0 17179869184
fake/zpu10 17179869184
drm/0001:04:00.0/vram 1
empty 0
"""


@pytest.mark.parametrize(
    ("card", "template", "names"),
    [
        (HostCard(0, "a", 1, pci="0000:04:00.0"), None, ["drm/0000:04:00.0/vram"]),
        (HostCard(0, "a", 1, pci="0000:02:00.0"), None, ["nvidia/00000000:02:00.0/vidmem"]),
        (HostCard(0, "a", 1, pci="0000:03:00.0"), None, ["drm/0000:03:00.0/vram0", "drm/0000:03:00.0/vram1"]),
        (HostCard(0, "a", 1, pci="0000:05:00.0"), None, []),
        (HostCard(0, "a", 1), None, []),
        (HostCard(10, "a", 1), "fake/zpu{index}", ["fake/zpu10"]),
        (HostCard(1, "a", 1), "fake/zpu{index}", []),
        (HostCard(1, "a", 1), "fake/zpu{minor}", []),
        (HostCard(0, "a", 1, pci="0000:04:00.0"), "fake/zpu{index}", ["drm/0000:04:00.0/vram"]),
        (HostCard(0, "a", 1, pci="0000:05:00.0"), "fake/zpu{index}", ["fake/zpu0"]),
    ],
)
def test_a_region_is_found_by_address_or_by_name(card: HostCard, template: str | None, names: list[str]) -> None:
    assert [region.name for region in dmem.regions(CAPACITY, card, template)] == names


def test_several_regions_share_a_limit_by_their_sizes() -> None:
    two = (Region("a", 16), Region("b", 8))
    assert dmem.parts(two, 100) == {"a": 66, "b": 33}
    assert dmem.lines(dmem.parts(two, 100)) == "a 66\nb 33"
    assert dmem.limit_in("a 66\nb 33\nc max\n", two) == 99


@pytest.mark.parametrize("text", ["", "a 5\n", "a 5\nb max\n", "a max\nb max\n", "a 5\nb x\n"])
def test_a_card_has_no_limit_if_one_of_its_regions_has_none(text: str) -> None:
    assert dmem.limit_in(text, (Region("a", 16), Region("b", 8))) is None
