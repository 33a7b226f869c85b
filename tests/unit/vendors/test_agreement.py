"""Every rule between the keys of one file."""

from typing import Any

import pytest

from tests.unit.vendors.builders import COMPLETE, NOTHING, SMALLEST, problems_of, saying


def test_a_profile_offers_memory_or_whole_cards() -> None:
    (reported,) = problems_of({**SMALLEST, "resources": {"count": "tiny.example/count"}})
    assert reported.startswith("acme.toml: resources has neither memory nor whole")
    (reported,) = problems_of(saying("resources", NOTHING, SMALLEST))
    assert reported.startswith("acme.toml: resources has neither memory nor whole")


def test_memory_alone_is_enough() -> None:
    assert problems_of({**SMALLEST, "resources": {"memory": "tiny.example/mem"}}) == []


def test_a_misspelt_resource_is_not_also_reported_as_missing() -> None:
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
    (reported,) = problems_of(saying(key, value))
    assert reported.startswith(f'acme.toml: {key} is "{value}", and so is inspect.')


def test_an_inspect_name_differs_from_the_default_of_another() -> None:
    (reported,) = problems_of({**SMALLEST, "inspect": {"used": "devices"}})
    assert reported.startswith('acme.toml: inspect.cards is "devices", and so is inspect.used')


def test_an_inspect_name_is_none_that_the_json_has_already() -> None:
    (reported,) = problems_of(saying("inspect.cards", "pods"))
    assert reported.startswith('acme.toml: inspect.cards is "pods", which the inspect JSON uses for something else')


def test_the_default_unit_is_one_of_the_choices() -> None:
    assert problems_of(saying("unit.default", "TiB")) == [
        'acme.toml: unit.default is "TiB"; it must be one of the units in unit.mib: GiB, 0.1'
    ]
    assert problems_of({**SMALLEST, "unit": {"default": "GiB"}}) == [
        'acme.toml: unit.default is "GiB"; it must be one of the units in unit.mib: MiB'
    ]


def test_an_empty_list_of_units_is_reported() -> None:
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
def test_a_setting_without_its_resource_is_reported(setting: str, resource: str) -> None:
    (reported,) = problems_of(saying(resource, NOTHING))
    assert reported.startswith(f"acme.toml: {setting} is ")
    assert f" without {resource}" in reported


@pytest.mark.parametrize("key", ["name", "key"])
def test_an_unhealthy_configmap_is_complete_or_absent(key: str) -> None:
    (reported,) = problems_of(saying(f"unhealthy.{key}", NOTHING))
    assert reported.startswith(f"acme.toml: unhealthy.{key} is missing; it must ")
    assert problems_of(saying("unhealthy", NOTHING)) == []


@pytest.mark.parametrize(
    "known",
    [
        "title",
        "annotations.index",
        "unit.mib",
        "unit.mib.0.1",
        "texts.no-card-has-room",
        "container.env",
        "container.cdi.name",
        "enforcement.ways.runtime",
        "enforcement.ways.runtime.env.ACME_LIMIT",
    ],
)
def test_unverified_may_name_any_key_or_entry(known: str) -> None:
    assert problems_of({**COMPLETE, "unverified": [known]}) == []


@pytest.mark.parametrize(
    "unknown",
    [
        "titel",
        "resources",
        "container.env.NOBODY",
        "unit.mib.TiB",
        "texts.nothing",
        "enforcement.ways.nobody",
        "enforcement.ways.runtime.env.NOBODY",
    ],
)
def test_unverified_must_name_a_key_of_the_profile(unknown: str) -> None:
    (reported,) = problems_of({**COMPLETE, "unverified": [unknown]})
    assert reported.startswith(f'acme.toml: unverified[0] is "{unknown}"; it must be a key of this profile')


def test_an_unverified_entry_of_a_broken_table_is_not_reported_again() -> None:
    assert len(problems_of(saying("container.env", {"ACME_VISIBLE": "{index}", "1X": "x"}))) == 1


def static(**rules: object) -> dict[str, Any]:
    return {**SMALLEST, "driver": {"name": "static", "static": rules}}


def test_a_driver_is_named() -> None:
    (reported,) = problems_of({**SMALLEST, "driver": {"every_s": 1}})
    assert reported.startswith("acme.toml: driver.name is missing; it must be one of nvidia, ")


@pytest.mark.parametrize(
    ("rules", "has"),
    [
        ({}, "no source of cards"),
        ({"cards": []}, "no source of cards"),
        ({"cards": [{"memory_mib": 1}], "glob": "/dev/z*"}, "cards and glob"),
        ({"command": ["z"], "sysfs": {"devices": "/sys/z/*"}}, "sysfs and command"),
    ],
)
def test_static_cards_have_one_source(rules: dict[str, Any], has: str) -> None:
    says = f"acme.toml: driver.static has {has}; it must have one of cards, glob, sysfs and command"
    assert problems_of(static(**rules)) == [says]


@pytest.mark.parametrize(
    "rules",
    [
        {"cards": [{"memory_mib": 1}]},
        {"glob": "/dev/z*", "memory_mib": 1},
        {"command": ["z"], "pattern": r"(?P<index>\d+) (?P<memory_gib>\d+)"},
        {"command": ["z"], "pattern": r"(?P<id>\S+)", "memory_mib": 1},
        {"command": ["z"], "block_pattern": r"(?P<pci>\S+)\n(?P<memory_mib>\d+)"},
        {"command": ["z"], "json": {"cards": "gpus", "memory": "memory.total"}},
        {"command": ["z"], "json": {"id": "uuid", "healthy": "state", "healthy_value": "OK"}, "memory_mib": 1},
        {"sysfs": {"devices": "/sys/bus/pci/drivers/z/*", "memory_file": "size"}},
        {"sysfs": {"devices": "/sys/bus/pci/drivers/z/*", "dmem": True}},
    ],
)
def test_each_source_with_its_keys_is_enough(rules: dict[str, Any]) -> None:
    assert problems_of(static(**rules)) == []


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({"glob": "/dev/z*"}, "driver.static.memory_mib is missing; it must "),
        ({"command": ["z"], "pattern": r"(?P<index>\d+)"}, "driver.static.memory_mib is missing; it must "),
        ({"command": ["z"], "memory_mib": 1}, "driver.static has nothing to read the cards from the output of command; it must "),
        ({"command": ["z"], "pattern": "(?P<id>x)", "json": {"id": "x"}}, "driver.static has pattern and json; it must "),
        ({"glob": "/dev/z*", "memory_mib": 1, "json": {"id": "x"}}, "driver.static.json is there without a command; it must "),
        ({"command": ["z"], "json": {"id": "x"}}, "driver.static.memory_mib is missing; it must "),
        ({"sysfs": {"devices": "/sys/z/*"}}, "driver.static.memory_mib is missing; it must "),
        ({"sysfs": {"memory_file": "size"}}, "driver.static.sysfs.devices is missing; it must "),
        ({"command": ["z"], "memory_mib": 1, "json": {"model": "x"}}, "driver.static.json names no value of a card; it must "),
        (
            {"command": ["z"], "memory_mib": 1, "json": {"id": "x", "healthy": "state"}},
            "driver.static.json.healthy_value is missing; it must ",
        ),
        (
            {"command": ["z"], "memory_mib": 1, "json": {"id": "x", "healthy_value": "OK"}},
            "driver.static.json.healthy is missing; it must ",
        ),
        ({"cards": [{"memory_mib": 1}], "pattern": "(?P<id>x)"}, "driver.static.pattern is there without a command"),
    ],
)
def test_a_source_needs_its_own_keys(rules: dict[str, Any], says: str) -> None:
    (reported,) = problems_of(static(**rules))
    assert reported.startswith(f"acme.toml: {says}")


def test_static_rules_belong_to_the_static_driver() -> None:
    (reported,) = problems_of(saying("driver.name", "stream"))
    assert reported.startswith('acme.toml: driver.static.cards is there, but driver.name is "stream"')


@pytest.mark.parametrize(
    ("cards", "says"),
    [
        ([{"memory_mib": 1}, {"memory_mib": 1, "index": 0}], "driver.static.cards[1].index is 0, which another card has"),
        ([{"memory_mib": 1, "count": 3}, {"memory_mib": 1, "index": 2}], "driver.static.cards[1].index is 2"),
        ([{"memory_mib": 1, "id": "A"}, {"memory_mib": 1, "id": "A"}], 'driver.static.cards[1].id is "A", which another'),
        ([{"memory_mib": 1, "id": "A", "count": 2}], 'driver.static.cards[0].id is "A" for 2 cards; it must contain {index}'),
    ],
)
def test_declared_cards_differ(cards: list[dict[str, Any]], says: str) -> None:
    (reported,) = problems_of(static(cards=cards))
    assert reported.startswith(f"acme.toml: {says}")


@pytest.mark.parametrize(
    ("strategy", "key"), [("volume-mounts", "container.volume_mounts.container_path"), (["envvar", "cdi"], "container.cdi.name")]
)
def test_a_strategy_has_its_template(strategy: object, key: str) -> None:
    (reported,) = problems_of({**SMALLEST, "container": {"strategy": strategy}})
    assert reported.startswith(f"acme.toml: {key} is missing, but container.strategy has ")


@pytest.mark.parametrize(
    ("order", "says"),
    [
        (["runtme"], 'enforcement.order[0] is "runtme"; it must be one of runtime, late, nobody; did you mean runtime?'),
        (["late", "late"], 'enforcement.order[1] is "late" again; each way must be there once'),
        (["nobody", "late"], 'enforcement.order[1] is "late" after nobody'),
        (["watch", "late"], 'enforcement.order[1] is "late" after nobody'),
        (["watch", "nobody"], 'enforcement.order[1] is "nobody" again'),
    ],
)
def test_the_order_names_ways_once_and_nobody_last(order: list[str], says: str) -> None:
    (reported,) = problems_of(saying("enforcement.order", order))
    assert reported.startswith(f"acme.toml: {says}")


@pytest.mark.parametrize(
    ("ways", "says"),
    [
        ({"nobody": {"env": {"X": "x"}}}, "enforcement.ways.nobody is the name of "),
        ({"watch": {"env": {"X": "x"}}}, "enforcement.ways.watch is the name of "),
        ({"a": {"set_by": "dmem", "env": {"X": "x"}}}, 'enforcement.ways.a.env is there, but set_by is "dmem"'),
        ({"a": {"set_by": "dmem", "mounts": ["/x"]}}, 'enforcement.ways.a.mounts is there, but set_by is "dmem"'),
        (
            {"a": {"env": {"X": "x"}, "region": "x/{index}"}},
            'enforcement.ways.a.region is "x/{index}", but set_by is "variables"',
        ),
        ({"a": {"set_by": "nvml", "region": "x/{index}"}}, 'enforcement.ways.a.region is "x/{index}", but set_by is "nvml"'),
        ({"a": {}}, "enforcement.ways.a.env is missing; it must "),
        ({"a": {"env": {"X": "x"}, "requires": [{}]}}, "enforcement.ways.a.requires[0] has both file and command or neither"),
        ({"a": {"env": {"X": "x"}, "requires": [{"file": "/x", "command": ["x"]}]}}, "enforcement.ways.a.requires[0] has both"),
        ({"a": {"env": {"X": "x"}, "requires": [{"file": "/x", "pattern": "(x)"}]}}, "enforcement.ways.a.requires[0].pattern"),
    ],
)
def test_a_way_is_complete(ways: dict[str, Any], says: str) -> None:
    (reported,) = problems_of({**SMALLEST, "enforcement": {"ways": ways}})
    assert reported.startswith(f"acme.toml: {says}")


def test_a_limit_on_a_cgroup_needs_no_variables() -> None:
    ways = {"a": {"set_by": "dmem", "region": "acme/card{index}", "min_mib": 64}, "b": {"set_by": "dmem"}}
    assert problems_of({**SMALLEST, "enforcement": {"ways": ways}}) == []


SHAPED: dict[str, Any] = {
    **SMALLEST,
    "resources": {"memory": "tiny.example/mem", "whole": "tiny.example/tpu"},
    "unit": {"default": "512", "mib": {"512": 512}},
    "request": {"max_cards": 1, "shapes": [{"name": "half", "mib": 8192}, {"name": "quarter", "mib": 4096}]},
    "container": {"env": {"TINY_SHAPE": "{shape}"}},
}


def test_shapes_of_one_card_in_one_unit_are_right() -> None:
    assert problems_of(SHAPED) == []


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("request.max_cards", 2, "request.max_cards is 2 with request.shapes; it must be 1"),
        ("unit.mib", {"512": 512, "GiB": 1024}, "unit.mib has 512, GiB with request.shapes; it must have one unit"),
        ("request.shapes", [{"name": "a", "mib": 700}], "request.shapes[0].mib is 700; it must be a multiple of 512"),
        (
            "request.shapes",
            [{"name": "a", "mib": 512}, {"name": "a", "mib": 1024}],
            'request.shapes[1].name is "a", which another',
        ),
        ("request.shapes", [{"name": "a", "mib": 512}, {"name": "b", "mib": 512}], "request.shapes[1].mib is 512, which another"),
        ("request.shapes", NOTHING, 'container.env.TINY_SHAPE is "{shape}" without request.shapes'),
        ("resources.memory", NOTHING, 'request.shapes is ["half", "quarter"] without resources.memory'),
    ],
)
def test_shapes_that_cannot_be_counted_are_reported(key: str, value: object, says: str) -> None:
    (reported,) = problems_of(saying(key, value, SHAPED))
    assert reported.startswith(f"acme.toml: {says}")


@pytest.mark.parametrize("table", ["container.annotations", "container.envvar", "enforcement.ways.late.env"])
def test_a_shape_is_named_nowhere_without_shapes(table: str) -> None:
    (reported,) = problems_of(saying(f"{table}.X", "{shape}", SMALLEST))
    assert reported.startswith(f"acme.toml: {table}.X is ")


@pytest.mark.parametrize(
    ("paths", "strategy", "says"),
    [
        (["/dev/z{ordinal}"], "device-nodes", "has 1 paths and hardware.device_nodes 2"),
        (["/dev/z{ordinal}", "/dev/z{ordinal}"], "device-nodes", "has the same path twice"),
        (["/dev/z{ordinal}", "/dev/z{ordinal}c"], "cdi", "has {ordinal} with the strategy cdi"),
        (["/dev/z{ordinal}", "/dev/z{ordinal}c"], "device-nodes", ""),
        (["/dev/z{index}", "/dev/z{index}c"], "cdi", ""),
    ],
)
def test_paths_in_the_container_are_those_of_the_device_files(paths: list[str], strategy: str, says: str) -> None:
    hardware = {"device_nodes": ["/dev/zpu{minor}", "/dev/zpu{minor}c"], "container_device_nodes": paths}
    container = {"strategy": strategy, "cdi": {"name": "tiny.example/tpu={id}"}}
    reported = problems_of({**SMALLEST, "hardware": hardware, "container": container})
    assert [line.startswith(f"acme.toml: hardware.container_device_nodes {says}") for line in reported] == (
        [True] if says else []
    )


@pytest.mark.parametrize(
    ("hardware", "static", "says"),
    [
        ({"device_nodes": ["/dev/null"], "container_device_nodes": ["/dev/tpu{index}"]}, {"cards": [{"memory_mib": 1}]}, ""),
        ({"device_nodes": ["/dev/null"]}, {"cards": [{"memory_mib": 1}]}, "without hardware.container_device_nodes"),
        (
            {"device_nodes": ["/dev/null"], "container_device_nodes": ["/dev/tpu{index}"]},
            {"glob": "/dev/tpu*", "memory_mib": 1},
            "without driver.static.cards",
        ),
    ],
)
def test_only_a_declared_card_can_be_without_a_device_file(
    hardware: dict[str, object], static: dict[str, object], says: str
) -> None:
    """/dev/null stands for a card that is not there; a card that a driver finds has a file of its own."""
    reported = problems_of({**SMALLEST, "hardware": hardware, "driver": {"name": "static", "static": static}})
    assert [line.startswith(f'acme.toml: hardware.device_nodes has "/dev/null" {says}') for line in reported] == (
        [True] if says else []
    )


def test_the_number_of_cards_is_not_in_the_record() -> None:
    (reported,) = problems_of(saying("request.cards_annotation", "ACME_POD"))
    assert reported.startswith('acme.toml: request.cards_annotation is "ACME_POD", and so is annotations.pod_units')
