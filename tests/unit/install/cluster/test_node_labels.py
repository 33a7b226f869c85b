"""The labels of an install: ours are given and taken away, others' stay."""

import pytest

from accelshare.install.cluster.node_labels.marks import KEY, Change, ForeignLabelError, NodeLabels, change, read, written

SHARE = {"example.com/share": "true"}


def node(labels: dict[str, str] | None = None, ours: dict[str, str] | None = None) -> NodeLabels:
    return NodeLabels("n1", labels or {}, ours or {})


def test_a_label_that_is_missing_is_given_and_remembered() -> None:
    found = change(node(), SHARE)
    assert found == Change("n1", SHARE, SHARE, ("node n1: label example.com/share=true given",))


def test_a_label_that_was_there_before_is_not_ours() -> None:
    assert change(node(SHARE), SHARE) is None
    assert change(node(SHARE), {}) is None


def test_giving_twice_is_giving_once() -> None:
    assert change(node(SHARE, SHARE), SHARE) is None


def test_what_we_gave_is_taken_away() -> None:
    found = change(node(SHARE, SHARE), {})
    assert found is not None
    assert (found.labels, found.ours) == ({"example.com/share": None}, {})


def test_a_label_whose_value_somebody_changed_stays_but_is_forgotten() -> None:
    found = change(node({"example.com/share": "later"}, SHARE), {})
    assert found is not None
    assert (found.labels, found.ours) == ({}, {})


def test_another_value_is_refused_with_what_to_do() -> None:
    with pytest.raises(
        ForeignLabelError, match=r"n1 has the label example.com/share=no; .*kubectl label node n1 example.com/share-"
    ):
        change(node({"example.com/share": "no"}), SHARE)


def test_our_own_label_may_get_another_value() -> None:
    found = change(node(SHARE, SHARE), {"example.com/share": "yes"})
    assert found is not None
    assert found.labels == found.ours == {"example.com/share": "yes"}


def test_a_label_that_somebody_took_away_is_given_again() -> None:
    found = change(node({}, SHARE), SHARE)
    assert found is not None
    assert found.labels == SHARE


@pytest.mark.parametrize("ours", [{}, SHARE, {"a": "1", "b/c": "2"}])
def test_what_is_remembered_is_read_back(ours: dict[str, str]) -> None:
    text = written(ours)
    assert read("n1", None, {KEY: text} if text else None).ours == ours


@pytest.mark.parametrize("text", ["", ",", "x", "=y", ",,=,"])
def test_an_unreadable_mark_marks_nothing(text: str) -> None:
    assert read("n1", {"x": "y"}, {KEY: text}).ours == {}
