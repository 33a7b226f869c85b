"""What a slice costs: the smallest shape that holds it."""

from hypothesis import given
from hypothesis import strategies as st

from accelshare.vendors.catalog import load
from accelshare.vendors.shapes import cost, shape_for, units_of

CATALOG = load()
ASCEND, MTHREADS, NVIDIA = CATALOG["ascend"], CATALOG["mthreads"], CATALOG["nvidia"]


def test_a_slice_costs_the_smallest_shape_that_holds_it() -> None:
    assert [cost(ASCEND, units) for units in (1, 16384, 16385, 32768)] == [16384, 16384, 32768, 32768]
    assert cost(ASCEND, 32769) is None
    shape = shape_for(ASCEND, 10_000)
    assert shape is not None
    assert shape.name == "vir05_1c_16g"


def test_shapes_are_counted_in_the_profiles_unit() -> None:
    """Units of 512 MiB: five of them take a slice of 4 GiB, which is eight."""
    assert [cost(MTHREADS, units) for units in (1, 2, 3, 5, 9)] == [1, 2, 4, 8, 16]


def test_without_shapes_a_slice_costs_what_it_requests() -> None:
    assert (cost(NVIDIA, 7), shape_for(NVIDIA, 7)) == (7, None)


def test_nothing_costs_nothing() -> None:
    assert cost(ASCEND, 0) == 0


@given(st.integers(1, 70_000))
def test_a_cost_holds_the_request_and_costs_itself(units: int) -> None:
    for profile in (ASCEND, MTHREADS):
        found = cost(profile, units)
        sizes = [units_of(profile, shape) for shape in profile.request.shapes]
        if found is None:
            assert units > max(sizes)
        else:
            assert found >= units
            assert found in sizes
            assert cost(profile, found) == found
