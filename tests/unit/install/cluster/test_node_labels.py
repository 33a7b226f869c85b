"""node-labels adds and removes its own labels; labels of others stay."""

import pytest

from accelshare.install.cluster.node_labels import KEY, LabelChange, NodeLabels, annotation, change, read
from accelshare.install.errors import ForeignLabel

SHARE = {"example.com/share": "true"}


def node(labels: dict[str, str] | None = None, added: dict[str, str] | None = None) -> NodeLabels:
    return NodeLabels("n1", labels or {}, added or {})


def test_a_missing_label_is_added_and_recorded() -> None:
    found = change(node(), SHARE)
    assert found is not None
    assert found == LabelChange("n1", SHARE, SHARE, found.lines)
    assert "n1" in found.lines[0]
    assert "example.com/share=true" in found.lines[0]


def test_a_label_that_existed_before_is_not_recorded() -> None:
    assert change(node(SHARE), SHARE) is None
    assert change(node(SHARE), {}) is None


def test_adding_is_safe_to_repeat() -> None:
    assert change(node(SHARE, SHARE), SHARE) is None


def test_an_added_label_is_removed() -> None:
    found = change(node(SHARE, SHARE), {})
    assert found is not None
    assert (found.labels, found.added) == ({"example.com/share": None}, {})


def test_a_label_whose_value_somebody_changed_stays_and_its_record_goes() -> None:
    found = change(node({"example.com/share": "later"}, SHARE), {})
    assert found is not None
    assert (found.labels, found.added) == ({}, {})


def test_another_value_is_refused_with_what_to_do() -> None:
    with pytest.raises(ForeignLabel, match=r"n1 has the label example.com/share=no; .*kubectl label node n1 example.com/share-"):
        change(node({"example.com/share": "no"}), SHARE)


def test_an_added_label_may_get_another_value() -> None:
    found = change(node(SHARE, SHARE), {"example.com/share": "yes"})
    assert found is not None
    assert found.labels == found.added == {"example.com/share": "yes"}


def test_a_label_that_somebody_removed_is_added_again() -> None:
    found = change(node({}, SHARE), SHARE)
    assert found is not None
    assert found.labels == SHARE


@pytest.mark.parametrize("added", [{}, SHARE, {"a": "1", "b/c": "2"}])
def test_the_annotation_is_read_back(added: dict[str, str]) -> None:
    text = annotation(added)
    assert read("n1", None, {KEY: text} if text else None).added == added


@pytest.mark.parametrize("text", ["", ",", "x", "=y", ",,=,"])
def test_an_unreadable_annotation_names_no_label(text: str) -> None:
    assert read("n1", {"x": "y"}, {KEY: text}).added == {}
