"""Ids are named by card, and a container's ids are on its pod's cards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelshare.agent.device_plugin import device_ids


def free(**cards: int) -> list[str]:
    """`c0=4` are the first four units of card 0."""
    return [device for name, units in cards.items() for device in device_ids.unit_ids(int(name[1:]), units)]


def test_ids_are_short_and_name_their_card() -> None:
    assert device_ids.unit_ids(3, 17)[-1] == "3-10"
    assert [device_ids.card_of(device) for device in ("0-1f", "12-0", "7")] == [0, 12, 7]
    with pytest.raises(ValueError, match="'GPU-x'"):
        device_ids.card_of("GPU-x")


def test_ids_of_some_cards_only_are_those_that_all_ids_have_of_them() -> None:
    strange = ["1-_-2", "GPU-1", "1", "10-1"]
    everything = device_ids.by_card([*free(c0=20, c1=20, c11=3), *strange])
    assert device_ids.by_card([*free(c0=20, c1=20, c11=3), *strange], only=[1, 11]) == {1: everything[1], 11: everything[11]}
    assert device_ids.cards_of([*free(c0=2, c11=3), *strange]) == {0, 1, 10, 11}


def test_the_size_of_kubelets_list_is_known_for_its_largest_form() -> None:
    """All cards unhealthy: a list that fits must not exceed kubelet's limit then."""
    from accelshare.agent.device_plugin.api import kubelet_device_plugin_pb2 as api

    names = device_ids.unit_ids(0, 300) + device_ids.unit_ids(11, 40)
    message = api.ListAndWatchResponse(devices=[api.Device(id=name, health="Unhealthy") for name in names])
    assert device_ids.list_bytes([(0, 300), (11, 40)]) == message.ByteSize()


def test_all_ids_come_from_the_pods_card() -> None:
    assert device_ids.select_on_cards(free(c0=16, c1=16), must=[], size=3, cards=[1]) == ["1-0", "1-1", "1-2"]
    assert device_ids.select_on_cards(free(c0=16, c1=2), must=[], size=3, cards=[1]) is None


def test_several_cards_share_evenly() -> None:
    assert device_ids.select_on_cards(free(c0=4, c1=4, c2=4), must=[], size=5, cards=[0, 2]) == [
        "0-0",
        "0-1",
        "0-2",
        "2-0",
        "2-1",
    ]


def test_ids_of_init_containers_count_for_their_card() -> None:
    assert device_ids.select_on_cards(free(c0=4, c1=4), must=["0-3"], size=4, cards=[0, 1]) == ["0-3", "0-0", "1-0", "1-1"]
    assert device_ids.select_on_cards(free(c0=4, c1=4), must=["1-3"], size=2, cards=[0]) is None


def test_without_a_recorded_card_the_fullest_that_fits_is_taken() -> None:
    available = free(c0=16, c1=5, c2=3)
    assert device_ids.select_on_any(available, must=[], size=4, cards=1, closed=()) == ["1-0", "1-1", "1-2", "1-3"]
    assert device_ids.select_on_any(available, must=[], size=4, cards=1, closed={1}) == ["0-0", "0-1", "0-2", "0-3"]
    assert device_ids.select_on_any(available, must=[], size=17, cards=1, closed=()) is None
    assert device_ids.select_on_any(available, must=[], size=6, cards=2, closed=()) == ["1-0", "1-1", "1-2", "2-0", "2-1", "2-2"]


@given(
    units=st.lists(st.integers(0, 8), min_size=1, max_size=4),
    size=st.integers(1, 12),
    cards=st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True),
)
def test_a_selection_has_always_the_requested_size(units: list[int], size: int, cards: list[int]) -> None:
    available = [device for card, count in enumerate(units) for device in device_ids.unit_ids(card, count)]
    chosen = device_ids.select_on_cards(available, must=[], size=size, cards=sorted(cards))
    pod_queue = sum(units[card] for card in cards if card < len(units))
    assert (chosen is None) == (pod_queue < size)
    if chosen is not None:
        assert len(chosen) == len(set(chosen)) == size
        assert set(chosen) <= set(available)
        assert {device_ids.card_of(device) for device in chosen} <= set(cards)
