"""Every rule between the keys of one file."""

import pytest

from tests.unit.vendors.builders import COMPLETE, NOTHING, SMALLEST, problems_of, saying


def test_a_profile_offers_memory_or_whole_cards() -> None:
    (told,) = problems_of({**SMALLEST, "resources": {"count": "tiny.example/count"}})
    assert told.startswith("acme.toml: resources has neither memory nor whole")
    (told,) = problems_of(saying("resources", NOTHING, SMALLEST))
    assert told.startswith("acme.toml: resources has neither memory nor whole")


def test_memory_alone_is_enough() -> None:
    assert problems_of({**SMALLEST, "resources": {"memory": "tiny.example/mem"}}) == []


def test_a_misspelt_resource_is_not_called_missing_too() -> None:
    """One mistake, one message."""
    assert len(problems_of({**SMALLEST, "resources": {"whole": "tpu"}})) == 1


def test_a_resource_name_is_used_once() -> None:
    assert problems_of(saying("resources.whole", "acme.example/zpu-mem")) == [
        'acme.toml: resources.whole is "acme.example/zpu-mem", and so is resources.memory; each must be a resource of its own'
    ]


def test_a_label_may_be_spelt_like_a_resource() -> None:
    assert problems_of(saying("request.cards_label", "acme.example/zpu-count")) == []


def test_an_annotation_key_is_used_once() -> None:
    assert problems_of(saying("annotations.assigned", "ACME_IDX")) == [
        'acme.toml: annotations.assigned is "ACME_IDX", and so is annotations.index; each must be an annotation of its own'
    ]


@pytest.mark.parametrize(
    ("key", "value"), [("inspect.used", "totalZPU"), ("inspect.available", "usedZPU"), ("inspect.cards", "totalZPU")]
)
def test_the_names_of_the_inspect_json_differ(key: str, value: str) -> None:
    (told,) = problems_of(saying(key, value))
    assert told.startswith(f'acme.toml: {key} is "{value}", and so is inspect.')


def test_an_inspect_name_differs_from_the_default_of_another() -> None:
    (told,) = problems_of({**SMALLEST, "inspect": {"used": "devices"}})
    assert told.startswith('acme.toml: inspect.cards is "devices", and so is inspect.used')


def test_an_inspect_name_is_none_that_the_json_has_already() -> None:
    (told,) = problems_of(saying("inspect.cards", "pods"))
    assert told.startswith('acme.toml: inspect.cards is "pods", which the inspect JSON uses for something else')


def test_the_default_unit_is_one_of_the_choices() -> None:
    assert problems_of(saying("unit.default", "TiB")) == [
        'acme.toml: unit.default is "TiB"; it must be one of the units in unit.mib: GiB, 0.1'
    ]
    assert problems_of({**SMALLEST, "unit": {"default": "GiB"}}) == [
        'acme.toml: unit.default is "GiB"; it must be one of the units in unit.mib: MiB'
    ]


def test_no_choice_of_units_at_all_is_told() -> None:
    assert problems_of({**SMALLEST, "unit": {"mib": {}}}) == [
        'acme.toml: unit.default is "MiB"; it must be one of the units in unit.mib: it has none'
    ]


def test_a_label_for_people_belongs_to_a_unit() -> None:
    assert problems_of(saying("unit.labels", {"TiB": "TB"})) == [
        "acme.toml: unit.labels.TiB labels no unit; it must be one of the units in unit.mib: GiB, 0.1"
    ]


@pytest.mark.parametrize(
    ("setting", "resource"), [("request.cards_label", "resources.memory"), ("request.max_whole_cards", "resources.whole")]
)
def test_a_setting_without_its_resource_is_told(setting: str, resource: str) -> None:
    (told,) = problems_of(saying(resource, NOTHING))
    assert told.startswith(f"acme.toml: {setting} is ")
    assert told.endswith(f"without {resource}; it means nothing unless that is there")


@pytest.mark.parametrize("key", ["name", "key"])
def test_an_unhealthy_configmap_is_complete_or_not_there(key: str) -> None:
    (told,) = problems_of(saying(f"unhealthy.{key}", NOTHING))
    assert told.startswith(f"acme.toml: unhealthy.{key} is missing; it must ")
    assert problems_of(saying("unhealthy", NOTHING)) == []


@pytest.mark.parametrize(
    "known", ["title", "annotations.index", "unit.mib", "unit.mib.0.1", "texts.no-card-has-room", "container.env"]
)
def test_a_doubt_may_name_any_key_or_entry(known: str) -> None:
    assert problems_of({**COMPLETE, "unverified": [known]}) == []


@pytest.mark.parametrize("unknown", ["titel", "resources", "container.env.NOBODY", "unit.mib.TiB", "texts.nothing"])
def test_a_doubt_about_nothing_is_told(unknown: str) -> None:
    (told,) = problems_of({**COMPLETE, "unverified": [unknown]})
    assert told.startswith(f'acme.toml: unverified[0] is "{unknown}"; it must be a key of this profile')


def test_a_doubt_about_an_entry_of_a_broken_table_is_no_second_mistake() -> None:
    assert len(problems_of(saying("container.env", {"ACME_VISIBLE": "{index}", "1X": "x"}))) == 1
