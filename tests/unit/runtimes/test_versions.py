"""Which version can do what."""

import pytest

from accelshare.runtimes.versions import asks_validators, merges_sections, release, takes_cdi


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("v2.4.2", (2, 4, 2)), ("2.4.2-rc.1", (2, 4, 2)), ("1.34", (1, 34, 0)), ("1.7.28~ds1", (1, 7, 28)), ("devel", (0, 0, 0))],
)
def test_a_version_is_three_numbers(text: str, numbers: tuple[int, int, int]) -> None:
    assert release(text) == numbers


@pytest.mark.parametrize(
    ("name", "version", "takes"),
    [
        ("containerd", "v2.4.2", True),
        ("containerd", "v2.0.14", False),
        ("containerd", "1.7.30", True),
        ("containerd", "1.7.29", False),
        ("cri-o", "1.34.0", True),
        ("CRI-O", "1.33.9", False),
        ("other", "9.9.9", False),
    ],
)
def test_who_takes_cdi_names_from_plugins(name: str, version: str, takes: bool) -> None:
    """containerd 1.7 learned it late, and 2.0 drops them silently."""
    assert takes_cdi(name, version) is takes


def test_who_joins_sections() -> None:
    assert merges_sections("2.0.0")
    assert not merges_sections("1.7.35")


@pytest.mark.parametrize(
    ("name", "version", "asks"),
    [
        ("containerd", "v2.1.9", False),
        ("containerd", "v2.2.0", True),
        ("containerd", "2.4.2", True),
        ("cri-o", "1.33.4", False),
        ("cri-o", "1.34.0", False),
        ("CRI-O", "1.35.0", True),
        ("memory", "v9.0.0", False),
    ],
)
def test_who_asks_plugins_for_the_last_word(name: str, version: str, asks: bool) -> None:
    """Another runtime would hang up, so nobody is thought to do it who is not known to."""
    assert asks_validators(name, version) is asks


def test_a_version_of_thousands_of_digits_is_none() -> None:
    """A node reports it; Python refuses to read such a number."""
    assert release("9" * 5000 + ".1.0") == (0, 0, 0)
