"""Profile files that extend or replace others, remove keys, or clash."""

from typing import Any

import pytest

from accelshare.ledger.refusals import Reason
from accelshare.vendors.layers import ProfileFile, Survey, merge, survey
from accelshare.vendors.profile import Profile
from tests.unit.vendors.builders import COMPLETE, SMALLEST, another, saying


def lay(*layers: dict[str, dict[str, Any]]) -> Survey:
    """Layers of files: `{"a.toml": data}` each."""
    return survey([[ProfileFile(file, data) for file, data in layer.items()] for layer in layers])


def reported(found: Survey) -> list[str]:
    return [str(problem) for problem in found.problems]


def the(found: Survey, name: str) -> Profile:
    assert not found.problems, reported(found)
    return next(profile for profile in found.profiles if profile.name == name)


def test_profiles_are_ordered_by_name() -> None:
    found = lay({"b.toml": another("b"), "a.toml": another("a")}, {"c.toml": another("c"), "0.toml": another("aa")})
    assert [profile.name for profile in found.profiles] == ["a", "aa", "b", "c"]


def test_a_file_overrides_single_keys_of_what_it_extends() -> None:
    acme = the(lay({"acme.toml": COMPLETE}, {"site.toml": {"extends": "acme", "annotations": {"index": "SITE_IDX"}}}), "acme")
    assert acme.annotations.index == "SITE_IDX"
    assert acme.annotations.card_size == "ACME_DEV"
    assert acme.title == "Acme ZPU (zpushare)"


def test_the_last_layer_wins_and_builds_on_those_before() -> None:
    found = lay(
        {"acme.toml": COMPLETE},
        {"one.toml": {"extends": "acme", "title": "one", "http": {"node_port": 1}}},
        {"two.toml": {"extends": "acme", "title": "two"}},
    )
    assert the(found, "acme").title == "two"
    assert the(found, "acme").http.node_port == 1


def test_a_file_of_the_same_name_that_extends_nothing_replaces_all() -> None:
    acme = the(lay({"acme.toml": COMPLETE}, {"mine.toml": {**SMALLEST, "name": "acme"}}), "acme")
    assert acme.title == "Tiny"
    assert acme.annotations.index is None


def test_a_new_name_makes_a_second_profile() -> None:
    second = {
        "name": "acme-2",
        "extends": "acme",
        "resources": {"memory": "acme.example/z2-mem", "count": "", "whole": "acme.example/z2"},
        "annotations": "",
        "http": "",
    }
    found = lay({"acme.toml": COMPLETE}, {"second.toml": second})
    assert the(found, "acme-2").noun == "ZPU"
    assert the(found, "acme-2").resources.memory == "acme.example/z2-mem"
    assert the(found, "acme").resources.memory == "acme.example/zpu-mem"


def test_a_file_may_extend_another_of_its_own_directory() -> None:
    child = {"name": "b", "extends": "a", "resources": {"whole": "b.example/card"}}
    assert the(lay({}, {"b.toml": child, "z.toml": another("a")}), "b").title == "a"


@pytest.mark.parametrize("nothing", ["", []])
def test_an_empty_value_removes_an_optional_key(nothing: object) -> None:
    acme = the(lay({"acme.toml": COMPLETE}, {"site.toml": {"extends": "acme", "http": {"node_port": nothing}}}), "acme")
    assert acme.http.node_port is None
    assert acme.http.prefix == "/zpushare-scheduler"


def test_a_removed_key_falls_back_to_its_default() -> None:
    site = {"extends": "acme", "texts": {"no-cards": ""}, "request": {"max_cards": ""}, "hardware": {"device_nodes": []}}
    acme = the(lay({"acme.toml": COMPLETE}, {"site.toml": site}), "acme")
    assert acme.text(Reason.NO_CARDS) == "node has no ZPU to share"
    assert acme.request.max_cards == 64
    assert acme.hardware.device_nodes == ()


def test_a_whole_section_can_be_removed() -> None:
    acme = the(lay({"acme.toml": COMPLETE}, {"site.toml": {"extends": "acme", "unhealthy": "", "node_label": ""}}), "acme")
    assert acme.unhealthy is None
    assert acme.node_label is None


def test_one_entry_of_a_table_can_be_removed() -> None:
    acme = the(lay({"acme.toml": COMPLETE}, {"site.toml": {"extends": "acme", "container": {"env": {"ACME_BYTES": ""}}}}), "acme")
    assert acme.container.env == {"ACME_VISIBLE": "{index}"}


def test_a_required_key_cannot_be_removed() -> None:
    (line,) = reported(lay({"acme.toml": COMPLETE}, {"site.toml": {"extends": "acme", "title": ""}}))
    assert line.startswith("site.toml: title is missing")


def test_removing_a_misspelt_key_is_reported() -> None:
    (line,) = reported(lay({"acme.toml": COMPLETE}, {"site.toml": {"extends": "acme", "unhealty": ""}}))
    assert line == "site.toml: unhealty is no key of a profile; did you mean unhealthy?"


def test_removing_an_absent_key_is_allowed() -> None:
    site = {"extends": "tiny", "http": {"prefix": ""}, "unhealthy": ""}
    assert the(lay({"tiny.toml": SMALLEST}, {"site.toml": site}), "tiny").http.prefix is None


def test_without_extends_an_empty_value_is_an_error() -> None:
    (line,) = reported(lay({"acme.toml": saying("http.prefix", "")}))
    assert line.startswith('acme.toml: http.prefix is ""; it must ')
    (line,) = reported(lay({"acme.toml": {**COMPLETE, "unhealthy": ""}}))
    assert line == 'acme.toml: unhealthy is ""; it must be a table'


@pytest.mark.parametrize(
    ("own", "left"),
    [
        ({"resources": {"count": "acme.example/n"}}, ["unit.mib.GiB", "texts.no-cards", "container.env.ACME_VISIBLE"]),
        ({"unit": {"mib": {"GiB": 1000}}}, ["resources.count", "texts.no-cards", "container.env.ACME_VISIBLE"]),
        ({"resources": {"count": ""}, "texts": ""}, ["unit.mib.GiB", "container.env.ACME_VISIBLE"]),
        ({"title": "x"}, ["resources.count", "unit.mib.GiB", "texts.no-cards", "container.env.ACME_VISIBLE"]),
        ({"resources": {"count": "acme.example/n"}, "unverified": ["resources.count"]}, ["resources.count"]),
        ({"unverified": []}, []),
    ],
)
def test_a_value_set_by_a_later_file_is_no_longer_unverified(own: dict[str, Any], left: list[str]) -> None:
    """Unless the file itself lists unverified keys."""
    assert list(the(lay({"acme.toml": COMPLETE}, {"site.toml": {"extends": "acme", **own}}), "acme").unverified) == left


def test_extending_nobody_suggests_somebody() -> None:
    (line,) = reported(lay({"acme.toml": COMPLETE}, {"site.toml": {"extends": "acne", "title": "x"}}))
    assert line == 'site.toml: extends is "acne"; there is no such profile; did you mean acme?'


def test_a_file_whose_base_is_missing_is_checked_all_the_same() -> None:
    lines = reported(lay({"site.toml": {"extends": "acme", "http": {"node_port": 0}, "colour": "red", "noun": ""}}))
    assert len(lines) == 3
    assert lines[1].startswith("site.toml: colour is no key")
    assert lines[2].startswith("site.toml: http.node_port is 0")


def test_a_circle_is_reported_at_each_of_its_files() -> None:
    lines = reported(lay({"a.toml": {"name": "a", "extends": "b"}, "b.toml": {"name": "b", "extends": "a"}}))
    assert len(lines) == 2
    assert "extends goes round in a circle: a → b → a" in lines[0]
    assert lines[1].startswith("b.toml: extends ")


def test_a_file_cannot_extend_itself() -> None:
    (line,) = reported(lay({"a.toml": {**another("a"), "extends": "a"}}))
    assert line == 'a.toml: extends is "a"; there is no such profile'


def test_the_same_directory_twice_is_no_circle() -> None:
    site = {"extends": "acme", "title": "x"}
    assert the(lay({"acme.toml": COMPLETE}, {"site.toml": site}, {"site.toml": site}), "acme").title == "x"


def test_a_problem_of_the_base_is_reported_for_the_base_only() -> None:
    lines = reported(lay({"acme.toml": saying("http.node_port", 0)}, {"site.toml": {"extends": "acme", "noun": "Z PU"}}))
    assert len(lines) == 2
    assert lines[0].startswith("acme.toml: http.node_port")
    assert lines[1].startswith("site.toml: noun")


def test_two_files_for_one_profile_in_a_directory_are_reported() -> None:
    lines = reported(lay({"a.toml": COMPLETE, "b.toml": saying("noun", "")}))
    assert len(lines) == 2
    assert lines[0].startswith('b.toml: noun is ""')
    assert lines[1] == 'b.toml: name is "acme", and so is that of a.toml; a directory has one file per profile'


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("resources.memory", "acme.example/zpu", "resource"),
        ("resources.count", "acme.example/zpu-mem", "resource"),
        ("resources.whole", "acme.example/zpu-count", "resource"),
        ("http.prefix", "/zpushare-scheduler", "url prefix"),
        ("annotations.index", "ACME_TIME", "annotation"),
        ("annotations.card_size", "ACME_DEV", "annotation"),
        ("annotations.pod_units", "ACME_IDX", "annotation"),
        ("annotations.assigned", "ACME_ASSIGNED", "annotation"),
        ("annotations.assign_time", "ACME_POD", "annotation"),
    ],
)
def test_a_name_claimed_by_two_profiles_is_reported_with_both_files(key: str, value: str, what: str) -> None:
    assert reported(lay({"acme.toml": COMPLETE}, {"other.toml": saying(key, value, another("other"))})) == [
        f'other.toml: {key} is "{value}", the {what} of profile acme (acme.toml) already; each profile must have its own'
    ]


def test_a_replaced_profile_claims_nothing() -> None:
    """The shipped file is not in force any more, so its names are free."""
    moved = {"extends": "acme", "http": {"prefix": "/elsewhere"}}
    found = lay(
        {"acme.toml": COMPLETE}, {"acme.toml": moved, "new.toml": saying("http.prefix", "/zpushare-scheduler", another("new"))}
    )
    assert reported(found) == []


def test_two_profiles_may_share_a_port() -> None:
    """One extender serves them all, so a port is no name."""
    assert reported(lay({"acme.toml": COMPLETE, "b.toml": saying("http.node_port", 32000, another("b"))})) == []


def test_all_problems_of_all_files_are_reported_together() -> None:
    lines = reported(
        lay(
            {"acme.toml": COMPLETE, "bad.toml": {**another("bad"), "noun": ""}},
            {"site.toml": {"extends": "nobody"}, "thief.toml": saying("http.prefix", "/zpushare-scheduler", another("thief"))},
        )
    )
    assert [line.partition(":")[0] for line in lines] == ["bad.toml", "site.toml", "thief.toml"]


def test_merging_leaves_both_sides_as_they_were() -> None:
    base, over = {"a": {"b": 1, "c": 2}}, {"a": {"b": "", "d": {"e": "", "f": 3}}}
    assert merge(base, over) == {"a": {"c": 2, "d": {"f": 3}}}
    assert base == {"a": {"b": 1, "c": 2}}
    assert over == {"a": {"b": "", "d": {"e": "", "f": 3}}}
