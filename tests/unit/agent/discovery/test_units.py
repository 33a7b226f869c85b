"""MiB become units, and a unit that kubelet cannot list is refused with one that it can."""

import pytest

from accelshare.agent.discovery import unhealthy_configmap
from accelshare.agent.discovery.units import UnitError, count
from accelshare.vendors.catalog import load

CATALOG = load()


def cards(*mib: int) -> dict[int, int]:
    return dict(enumerate(mib))


def test_units_are_counted_as_in_the_vendors_guides() -> None:
    """16127 MiB are 15 GiB, 8064 MiB are 8064, and 16 GB are 160 tenths."""
    assert count(CATALOG["nvidia"], cards(16127)).cards == {0: 15}
    assert count(CATALOG["nvidia"], cards(16127), "MiB").cards == {0: 16127}
    assert count(CATALOG["kunlun"], cards(8064)).cards == {0: 8064}
    assert count(CATALOG["enflame"], cards(16384)).cards == {0: 16}
    assert count(CATALOG["enflame"], cards(16384), "0.1").cards == {0: 160}


def test_unequal_cards_each_have_their_own_number() -> None:
    assert count(CATALOG["nvidia"], cards(16127, 24576)).cards == {0: 15, 1: 24}


def test_a_list_over_kubelets_limit_is_refused_with_the_smallest_unit_that_works() -> None:
    """8 cards of 32 GB in thousandths, of which the gcushare guide warns."""
    with pytest.raises(UnitError, match=r"the smallest unit that works is '0\.01'"):
        count(CATALOG["enflame"], cards(*[32768] * 8), "0.001")
    with pytest.raises(UnitError, match="no unit of this profile works"):
        count(CATALOG["kunlun"], cards(*[98304] * 8))


def test_a_vendor_without_slices_lists_no_units() -> None:
    assert count(CATALOG["stream"], cards(*[98304] * 8)).warning == ""


def test_an_unknown_unit_is_refused_and_the_known_ones_are_named() -> None:
    with pytest.raises(UnitError, match="memory unit 'TiB' is not known; it must be one of GiB, MiB"):
        count(CATALOG["nvidia"], cards(16127), "TiB")


def test_a_unit_that_makes_pod_status_too_large_has_a_warning() -> None:
    assert "unit 'GiB' avoids it" in count(CATALOG["nvidia"], cards(24576), "MiB").warning
    assert count(CATALOG["nvidia"], cards(24576)).warning == ""


@pytest.mark.parametrize(
    ("text", "indexes", "has_problem"),
    [
        ("0,2", [0, 2], False),
        (" 3 ", [3], False),
        ("", [], False),
        (",", [], False),
        ("x", [], True),
        ("-1", [], True),
        ("0,x", [], True),
    ],
)
def test_an_unreadable_list_of_unhealthy_cards_marks_none(text: str, indexes: list[int], has_problem: bool) -> None:
    """The original marks card 0 when it cannot read the list."""
    listed, problem = unhealthy_configmap.indexes({"gpus": text}, "gpus")
    assert (listed, bool(problem)) == (indexes, has_problem)
    assert unhealthy_configmap.indexes({}, "gpus") == ([], "")
