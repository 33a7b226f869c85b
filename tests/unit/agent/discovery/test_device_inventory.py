"""The device inventory, and the device list that kubelet gets."""

import json

from accelshare.agent.discovery.device_inventory import DeviceInventory, InventoryCard, ListedCard, VendorCards
from accelshare.vendors.catalog import load
from accelshare.vendors.drivers.driver import HostCard
from accelshare.vendors.profile import Profile
from accelshare.wire import inventory
from accelshare.wire.nodes import NodeReader


def devices(**units: int) -> DeviceInventory:
    """`c0=4` is card 0 with four units."""
    cards = {int(name[1:]): count for name, count in units.items()}
    inventory_cards = {index: InventoryCard(HostCard(index, f"id{index}", 1024 * count), count) for index, count in cards.items()}
    made = DeviceInventory()
    made.put(VendorCards(next(iter(load([]))), "GiB", 1024, inventory_cards))
    return made


def kind(made: DeviceInventory) -> str:
    return next(iter(made.kinds))


def test_a_closed_or_unhealthy_card_is_listed_and_not_usable() -> None:
    """kubelet must still know the ids that pods hold, and allocate no new ones."""
    made = devices(c0=4, c1=2, c2=2)
    made.set_health(kind(made), "id2", "lost")
    assert made.listed_cards(kind(made), closed={0}) == (ListedCard(0, 4, False), ListedCard(1, 2, True), ListedCard(2, 2, False))


def test_a_card_has_an_id_for_each_unit_or_one_for_the_whole_card() -> None:
    assert ListedCard(3, 2, True).device_ids(whole=False) == ["3-0", "3-1"]
    assert ListedCard(3, 2, True).device_ids(whole=True) == ["3"]


def test_equal_cards_have_equal_lists() -> None:
    """A list is sent to kubelet only if it differs."""
    assert devices(c0=4).listed_cards(kind(devices(c0=4)), closed=()) == devices(c0=4).listed_cards(
        kind(devices(c0=4)), closed=set()
    )


def test_a_card_that_people_marked_stays_marked_when_it_is_found_again() -> None:
    """A driver that discovers again does not know the marks."""
    made = DeviceInventory()
    made.set_marked(next(iter(load([]))).name, [1], "marked")  # before the first look
    for _ in range(2):
        made.put(devices(c0=4, c1=4).kinds[kind(devices(c0=4))])
        assert [card.marked for card in made.kinds[kind(made)].cards.values()] == ["", "marked"]
    made.set_marked(kind(made), [], "")
    assert all(card.healthy for card in made.kinds[kind(made)].cards.values())


def test_whole_cards_of_another_plugin_are_neither_published_nor_served() -> None:
    made = devices(c0=4, c1=2)
    made.set_delivery("nri", validated=True)
    profile = made.kinds[kind(made)].profile
    assert profile.resources.whole in made.amounts()
    assert (profile.resources.whole, True) in made.resources(profile)
    made.set_whole_by_others(frozenset({profile.name}))
    assert profile.resources.whole not in made.amounts()
    assert made.resources(profile) == ((profile.resources.memory, False),)
    assert made.amounts()[profile.resources.memory or ""] == 6


NVIDIA, OTHER = (load([])[name] for name in ("nvidia", "mthreads"))


def vendor(profile: Profile, *sizes: int) -> VendorCards:
    cards = {i: InventoryCard(HostCard(i, f"{profile.name}-{i}", 1024 * size, minor=i), size) for i, size in enumerate(sizes)}
    return VendorCards(profile, "GiB", 1024, cards)


def published() -> dict[str, inventory.KindEntry]:
    """What an earlier agent wrote: two vendors, and a card of one of them is ill."""
    earlier = DeviceInventory()
    for one in (vendor(NVIDIA, 80, 16), vendor(OTHER, 48)):
        earlier.put(one)
        earlier.set_delivers(one.profile.name, True)
    earlier.set_health("nvidia", "nvidia-1", "lost")
    return dict(inventory.entries_of(inventory.write(earlier.inventory())))


def test_a_vendor_whose_driver_answers_late_keeps_its_cards_on_the_node_and_is_paused() -> None:
    """Without them the extender would assume cards of equal size from the Node's capacity."""
    made = DeviceInventory()
    made.load(published(), [NVIDIA.name, OTHER.name])
    made.put(vendor(OTHER, 48))
    made.set_delivers(OTHER.name, True)
    made.set_discovered(OTHER.name)
    annotations = {inventory.KEY: inventory.write(made.inventory())}
    status = {"capacity": {str(NVIDIA.resources.memory): "96", str(OTHER.resources.memory): "48"}}
    node = {"metadata": {"name": "n", "resourceVersion": "1", "annotations": annotations}, "status": status}
    fact = NodeReader(load([])).decode(json.dumps(node).encode())
    assert fact is not None
    found = [(card.size, card.id, card.healthy) for card in fact.cards if card.kind == NVIDIA.name]
    assert found == [(80, "nvidia-0", True), (16, "nvidia-1", False)]
    assert fact.paused == {NVIDIA.name}
    assert made.inventory()[NVIDIA.name].unit == "GiB"


def test_it_is_gone_when_the_driver_has_answered_without_cards() -> None:
    made = DeviceInventory()
    made.load(published(), [NVIDIA.name])
    assert set(made.inventory()) == {NVIDIA.name}, "the other vendor is switched off now"
    told: list[None] = []
    made.on_change(lambda: told.append(None))
    made.set_discovered(NVIDIA.name)
    assert made.inventory() == {}
    assert told
