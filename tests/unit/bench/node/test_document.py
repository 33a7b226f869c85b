"""The node's page says what was measured, and nothing about what was not."""

from bench.node.document import document, percentile
from tests.unit.bench.node.builders import NOTHING, whole


def test_every_measure_has_its_section() -> None:
    headings = [line for line in document(whole()).splitlines() if line.startswith("## ")]
    assert headings == [
        "## Goals",
        "## Allocate",
        "## The agent at rest",
        "## From bound to running",
        "## Time added by NRI",
        "## A rush with a kill in the middle",
        "## What is not measured",
        "## Again",
    ]


def test_what_was_not_measured_has_no_section() -> None:
    headings = [line for line in document(NOTHING).splitlines() if line.startswith("## ")]
    assert headings == ["## What is not measured", "## Again"]


def test_calls_are_shown_by_their_middle_and_their_slowest() -> None:
    assert "| 32,256 | 504 | 100 | 198 | 1.50 | 100 | 198 | 1.50 | 12.5 |" in document(whole())


def test_a_pod_with_a_card_is_compared_with_the_one_started_before_it() -> None:
    page = document(whole())
    assert "| nri | **450** (400–500) | **475** (440–510) | **1.06** (1.02–1.10) | **25.0** (10.0–40.0) |" in page
    assert "| device-plugin | **500** (500–500) | **575** (550–600) |" in page


def test_all_calls_of_the_runtime_are_spread_over_its_containers() -> None:
    page = document(whole())
    assert "| CreateContainer | 4 | 1.88 |" in page
    assert "| all, for each container |  | **2.50** |" in page


def test_rushes_of_one_kind_are_added_up() -> None:
    page = document(whole())
    assert "| nri | agent | 120 | 120 | 0 | 0 | 0 | 0 | 4 |" in page
    assert "| device-plugin | kubelet | 60 | 53 | 0 | 0 | 7 | 0 | 2 |" in page


def test_the_page_has_no_date_of_its_own() -> None:
    """The same results give the same page, so that a run changes only what it measured."""
    assert document(whole()) == document(whole())


def test_of_one_value_every_percentile_is_that_value() -> None:
    assert percentile((7.0,), 99) == 7.0
