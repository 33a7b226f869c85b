"""Every rule about a single value: a violation is reported with key, value and what would be correct."""

import pytest

from accelshare.ledger.refusals import Reason
from accelshare.vendors.validation import keys, parse, sections
from accelshare.vendors.value_types import OWN_PATHS
from tests.unit.vendors.builders import COMPLETE, NOTHING, SMALLEST, problems_of, saying

LONG = "x" * 121

WRONG: dict[str, list[object]] = {
    "name": ["Acme", "9lives", "a b", "", 7, "a" * 64, ["acme"]],
    "extends": ["Acme", 7, ""],
    "title": ["", LONG, 7, "two\nlines", " led by a blank"],
    "noun": ["", "Z PU", "Z-PU", "1PU", "Z" * 17, 1],
    "node_label": ["share", "=true", "acme.example/share=a b", "a b=true", "x=" + "v" * 64, True, "_x=1"],
    "unverified": ["resources.count", {"a": 1}],
    "resources.memory": [
        "gpu",
        "cpu/",
        "/gpu",
        "kubernetes.io/gpu",
        "sub.kubernetes.io/gpu",
        "requests.acme.example/gpu",
        "a/b/c",
        "Acme.example/gpu",
        "acme.example/-gpu",
        "acme..example/gpu",
        "acme.example/" + "g" * 64,
        "a" * 245 + "/gpu",
        "",
        3,
    ],
    "resources.count": ["gpu", "kubernetes.io/gpu", 3],
    "resources.whole": ["gpu", "kubernetes.io/gpu", 3],
    "request.cards_label": ["", "a b", "Acme.example/cards", "acme.example/", 5, "x" * 64],
    "request.cards_annotation": ["", "a b", "accelshare.io/card-count", "acme.example/", 5],
    "request.max_cards": [0, 1025, -1, 1.0, "64", True],
    "request.max_whole_cards": [0, 1025, 1.5, "1", True],
    "request.max_slices_per_card": [0, 1025, 1.5, "1", True],
    "request.shapes": [
        3,
        "vir04",
        ["vir04"],
        [{"name": "vir04"}],
        [{"mib": 1024}],
        [{"name": "", "mib": 1024}],
        [{"name": "a b", "mib": 1024}],
        [{"name": "{index}", "mib": 1024}],
        [{"name": "vir04", "mib": 0}],
        [{"name": "vir04", "mib": 1.5}],
        [{"name": "vir04", "mib": 1024, "cores": 4}],
    ],
    "unit.default": ["", "G iB", 1, "x" * 17],
    "unit.mib": [
        3,
        ["GiB"],
        {"GiB": 0},
        {"GiB": -1},
        {"GiB": "1024"},
        {"GiB": True},
        {"GiB": float("inf")},
        {"GiB": float("nan")},
        {"GiB": 1024, "big": 2**20 + 1},
        {"GiB": 10**400},
        {"GiB": {"GiB": {"GiB": 1}}},
        {"GiB": 1024, "a b": 1},
        {"GiB": 1024, "x" * 17: 1},
    ],
    "unit.labels": [3, {"GiB": ""}, {"GiB": 1}, {"a b": "x"}],
    "annotations.index": ["", "a b", "-IDX", "a/b/c", 1, "x" * 64, "accelshare.io/cards", "Accelshare.io/cards"],
    "annotations.card_size": ["", "a b", 1],
    "annotations.pod_units": ["", "a b", 1],
    "annotations.assigned": ["", "a b", True],
    "annotations.assign_time": ["", "a b", 1],
    "http.prefix": [
        "",
        "/",
        "zpushare",
        "/Zpu",
        "/zpu/",
        "/a/b",
        "/a b",
        1,
        "//zpu",
        "/..",
        "/zpu/..",
        "/zpu%2f",
        "/zpu?x",
        "/zpu#x",
        "/zpu\n",
        *OWN_PATHS,
    ],
    "http.node_port": [0, 65536, "32000", True, 1.5],
    "inspect.command": ["", "ZPU", "zpu-share", "zpu share", "1zpu", 1],
    "inspect.total": ["", "1total", "total zpu", 1],
    "inspect.used": ["", "used-zpu", 1],
    "inspect.available": ["", "a.b", False],
    "inspect.cards": ["", "the cards", 1],
    "inspect.pod_uid": [1, "true", ""],
    "inspect.pod_created": [0, "no", ""],
    "texts": [
        "no",
        ["no"],
        {"no-cards": ""},
        {"no-cards": LONG},
        {"no-cards": "{n} left"},
        {"no-cards": "n} left"},
        {"no-cards": "%d left"},
        {"no-cards": "none."},
        {"no-cards": "two\nlines"},
        {"no-cards": 1},
        {"no-card": "none"},
    ],
    "unhealthy.namespace": ["", "Kube", "a_b", "a" * 64, 1],
    "unhealthy.name": ["", "unhealthy", "Un-{node}", "{node}-{node}", "un {node}", "{other}-{node}", 1],
    "unhealthy.key": ["", "a b", "a/b", 1],
    "hardware.device_nodes": [
        "/dev/zpu{index}",
        ["/dev/zpu"],
        ["/sys/zpu{index}"],
        ["/dev/{card}"],
        ["/dev/zpu{}"],
        ["/dev/{index!r}"],
        ["/dev/../zpu{index}"],
        ["dev/zpu{index}"],
        ["/dev/zpu{index"],
        ["/dev/zpu {index}"],
        ["/dev/zpu{index:3}"],
        [3],
    ],
    "hardware.container_device_nodes": [
        "/dev/zpu{ordinal}",
        ["/dev/zpu"],
        ["/sys/zpu{ordinal}"],
        ["/dev/{units}"],
        ["/dev/../zpu{ordinal}"],
        [3],
    ],
    "hardware.shared_device_nodes": ["/dev/zpuctl", ["/dev/zpu{index}"], ["/sys/zpuctl"], ["/dev/"], [3]],
    "container.env": [
        "{index}",
        {"1X": "{index}"},
        {"A-B": "x"},
        {"X": ""},
        {"X": "{uuid}"},
        {"X": "{index!r}"},
        {"X": "{index:3}"},
        {"X": "{0}"},
        {"X": "{index"},
        {"X": 1},
    ],
    "driver.name": ["acme", "", 1, "Static"],
    "driver.libraries": ["libzpu.so", [""], [1]],
    "driver.tools": ["zpu-smi", [""], [1]],
    "driver.timeout_s": [0, -1, "10", True, 3601, 10**400],
    "driver.every_s": [0, -0.5, "2", True, float("nan")],
    "driver.card_memory_mib": [0, -1, 2**24 + 1, 1.5, "1024", True],
    "driver.static.cards": [
        3,
        [3],
        [{}],
        [{"memory_mib": 0}],
        [{"memory_mib": "16384"}],
        [{"memory_mib": 1, "colour": "red"}],
        [{"memory_mib": 1, "count": 0}],
        [{"memory_mib": 1, "index": -1}],
        [{"memory_mib": 1, "id": ""}],
        [{"memory_mib": 1, "id": "Z-{minor}"}],
        [{"memory_mib": 1, "minor": 1.5}],
        [{"memory_mib": 1, "model": ""}],
        [{"memory_mib": 1, "numa": "0"}],
        [{"memory_mib": 1, "pci": "3b:00.0"}],
    ],
    "driver.static.sysfs.devices": ["", "/dev/zpu*", "sys/zpu*", "/sys/../etc/*", "/sys/a/**/b", "/sys/a b", 3],
    "driver.static.sysfs.memory_file": ["", "/etc/passwd", "../size", "a/../b", "a b", 3],
    "driver.static.sysfs.dmem": ["yes", 1, []],
    "driver.static.sysfs.id_file": ["", "../id", 3],
    "driver.static.sysfs.model_file": ["", "/model", 3],
    "driver.static.block_pattern": ["", "(", "no group", r"(?P<memory_mib>\d+)", r"(?P<index>\d+) (?P<colour>\w+)", 3],
    **{
        f"driver.static.json.{name}": ["", ".", "a..b", "a.", "two\nlines", "x" * 121, 3, ["gpus"]]
        for name in ("cards", "index", "id", "memory", "minor", "model", "pci", "healthy")
    },
    "driver.static.json.memory_unit": ["", "MB", "mib", 1],
    "driver.static.json.healthy_value": ["", "two\nlines", True],
    "driver.static.glob": ["", "/sys/zpu*", "zpu*", "/dev/", "/dev/../zpu*", 3],
    "driver.static.command": ["zpu-smi", [""], [1]],
    "driver.static.pattern": [
        "",
        "(",
        "no group",
        r"(?P<memory_mib>\d+)",
        r"(?P<index>\d+) (?P<colour>\w+)",
        "(?P<index>a{99999999999999})",
        "(?P<index>[[a])",
        3,
        "(?P<index>x)" * 40,
    ],
    "driver.static.memory_mib": [0, 1.5, "1", True],
    "driver.static.model": ["", 1],
    "driver.processes.command": ["zpu-smi", [], [""], [1]],
    "driver.processes.pattern": [
        "",
        "(",
        r"(?P<pid>\d+)",
        r"(?P<index>\d+)",
        r"(?P<pid>\d+)(?P<index>\d+)(?P<healthy>x)",
        r"(?P<pid>\d+)(?P<id>\w+)" + "x" * 3000,
    ],
    "container.strategy": ["", "env", [], ["envvar", "envvar"], ["envvar", 1], 3, {"envvar": True}],
    "container.annotations": ["x", {"a b": "x"}, {"accelshare.io/x": "y"}, {"x": "{uuid}"}],
    "container.node_label_env": ["x", {"fast": "A=1"}, {"a=b": "A"}, {"a=b": "1A=1"}, {"a=b": 1}],
    "container.none": ["x", {"1X": "x"}, {"X": 1}, {"X": "two\nlines"}],
    "container.other_resources": ["example.com/", ["example.com"], ["Example.com/"], ["/"]],
    "container.cdi_kinds": ["example.com/card", ["example.com"], ["example.com/card=0"], [""]],
    "container.vendor_annotations": ["example.com/", ["example"], ["/x"], [1]],
    "container.runtime_handlers": ["nvidia", [7], [""], ["a\nb"]],
    "container.runtime_handler_required": ["yes", 1],
    "container.envvar": ["x", {"1X": "x"}, {"X": "{uuid}"}],
    "container.volume_mounts.host_path": ["", "dev/null", "/a/../b", 1],
    "container.volume_mounts.container_path": ["", "run/{id}", "/run/cards", "/run/{units}", "/run/../{id}", "/run/{id", 1],
    "container.volume_mounts.env": ["x", {"X": "{uuid}"}],
    "container.device_nodes.permissions": ["", "wr", "x", 6],
    "container.device_nodes.env": ["x", {"X": "{uuid}"}],
    "container.cdi.name": [
        "",
        "gpu={id}",
        "acme.example/zpu",
        "acme.example/zpu=all",
        "acme.example/zpu={units}",
        "a/b={id} c",
        1,
    ],
    "container.cdi.write_spec": [1, "true"],
    "container.cdi.env": ["x", {"X": "{uuid}"}],
    "enforcement.order": ["nobody", [""], [1], ["Nobody"], ["somebody"]],
    "enforcement.ways": [
        "x",
        {"late": "x"},
        {"A": {"env": {"X": "x"}}},
        {"late": {"env": {"X": "x"}, "kind": "env"}},
        {"late": {"env": "x"}},
        {"late": {"set_by": "preload"}},
        {"late": {"set_by": "dmem", "region": "acme/card"}},
        {"late": {"set_by": "dmem", "region": "acme/{id} 1"}},
        {"late": {"set_by": "dmem", "min_mib": -1}},
        {"late": {"set_by": "dmem", "not_limited": "compute"}},
        {"late": {"set_by": "dmem", "not_limited": ["two\nlines"]}},
        {"late": {"env": {"X": "{uuid}"}}},
        {"late": {"env": {"X": "x"}, "colour": 1}},
        {"late": {"env": {"X": "x"}, "requires": "x"}},
        {"late": {"env": {"X": "x"}, "requires": ["x"]}},
        {"late": {"env": {"X": "x"}, "requires": [{"file": "x"}]}},
        {"late": {"env": {"X": "x"}, "requires": [{"command": "x"}]}},
        {"late": {"env": {"X": "x"}, "requires": [{"file": "/x", "at_least": 1.2}]}},
        {"late": {"env": {"X": "x"}, "requires": [{"file": "/x", "at_least": "1", "pattern": "no group"}]}},
        {"late": {"env": {"X": "x"}, "requires": [{"file": "/x", "atleast": "1"}]}},
        {"late": {"env": {"X": "x"}, "requires": [{"file": "/x", "at_least": "1", "pattern": "(a{99999999999999})"}]}},
    ],
}

IN_SYSFS = saying("driver.static", {"sysfs": {"devices": "/sys/bus/pci/drivers/zpu/*", "memory_file": "size"}})

RIGHT: dict[str, list[object]] = {
    "name": ["a", "acme-2", "a" * 63],
    "title": ["x" * 120, "昆仑芯 XPU"],
    "node_label": ["share=true", "acme.example/share=", "a.b/c_d.e=1.2_3-4", "x=" + "v" * 63],
    "resources.memory": ["acme.example/gpu-mem", "a.b/G_P.u", "a" * 244 + "/gpu"],
    "request.max_cards": [1, 1024],
    "unit.mib": [{"GiB": 1024, "0.1": 102.4}, {"GiB": 2**20, "0.1": 0.001}],
    "annotations.index": ["ALL_CAPS_9", "Acme.Example/idx", "x", "x" * 63],
    "http.prefix": ["/a", "/zpu-2", "/accelshare-2", "/metric"],
    "http.node_port": [1, 65535],
    "texts": [{}, {"no-cards": "x" * 120}, {"unknown-node": "Node, unknown"}],
    "unhealthy.name": ["{node}", "a.{node}.b", "a" * 114 + "{node}"],
    "request.cards_annotation": ["acme.example/cards"],
    "request.max_slices_per_card": [1, 1024],
    "hardware.device_nodes": [
        [],
        ["/dev/zpu/{index}c0"],
        ["/dev/{minor}-{index}"],
        ["/dev/dri/{card_node}", "/dev/dri/{render_node}"],
        ["/dev/dri/by-path/pci-{pci}-render"],
    ],
    "container.env": [
        {"_X": "{id}", "ACME_VISIBLE": "void"},
        {"ACME_VISIBLE": "{units}/{card_units} of {pod_units}, {mib} {minor}"},
        {"ACME_VISIBLE": "{ordinal}={share_mib}M {share_bytes} {pod_bytes} {card_mib}"},
    ],
    "driver.name": ["static"],
    "driver.every_s": [0.1, 3600],
    "driver.card_memory_mib": [1, 122880, 2**24],
    "driver.static.cards": [[{"memory_mib": 1}], [{"count": 3, "memory_mib": 1, "id": "Z-{index}"}, {"memory_mib": 2}]],
    "container.strategy": ["envvar", "cdi", ["device-nodes", "envvar"]],
    "container.device_nodes.permissions": ["r", "rw", "m", "rwm"],
    "container.runtime_handlers": [[], ["acme", "acme-runtime"]],
    "container.runtime_handler_required": [True, False],
    "container.node_label_env": [{}, {"cgpu.disable.isolation=true": "X="}],
    "container.cdi.name": ["k8s.device-plugin.example.com/gpu={id}", "a/b=card{index}"],
    "enforcement.order": [["nobody"], ["late"], ["late", "runtime", "nobody"], ["late", "watch"]],
}


def test_the_complete_and_the_smallest_profile_are_valid() -> None:
    assert problems_of(COMPLETE) == []
    assert problems_of(SMALLEST) == []


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in WRONG.items() for value in values if value is not NOTHING]
)
def test_a_wrong_value_is_reported_with_its_key(key: str, value: object) -> None:
    """One wrong value is one problem: its file, its key, and what it must be (or which key was meant)."""
    base = IN_SYSFS if key.startswith("driver.static.sysfs.") else COMPLETE
    reported = problems_of(saying(key, value, base))
    assert len(reported) == 1, reported
    assert reported[0].startswith(f"acme.toml: {key}")
    assert "; it must " in reported[0] or "; did you mean " in reported[0]


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in RIGHT.items() for value in values])
def test_a_correct_value_is_accepted(key: str, value: object) -> None:
    assert problems_of(saying(key, value, saying("unverified", []))) == []


def test_wrong_values_of_every_key_are_tested() -> None:
    """A row added to the schema needs a row in the table above."""
    assert WRONG.keys() == keys().keys()


@pytest.mark.parametrize("key", ["name", "title", "noun"])
def test_a_missing_required_key_is_reported(key: str) -> None:
    reported = problems_of(saying(key, NOTHING))
    assert len(reported) == 1
    assert reported[0].startswith(f"acme.toml: {key} is missing; it must ")


@pytest.mark.parametrize("section", list(sections()))
def test_a_section_must_be_a_table(section: str) -> None:
    reported = problems_of(saying(section, "x"))
    assert f'acme.toml: {section} is "x"; it must be a table' in reported


def test_the_message_gives_file_key_value_and_rule() -> None:
    assert problems_of(saying("request.max_cards", 0)) == [
        "acme.toml: request.max_cards is 0; it must be a whole number from 1 to 1024"
    ]


def test_an_entry_of_a_list_is_named_by_its_place() -> None:
    (reported,) = problems_of(saying("hardware.shared_device_nodes", ["/dev/zpuctl", "/etc"]))
    assert reported.startswith('acme.toml: hardware.shared_device_nodes[1] is "/etc"; it must be a path under /dev')


def test_a_long_value_is_cut_in_the_message() -> None:
    (reported,) = problems_of(saying("title", "x" * 5000))
    assert "xxx…; it must be one line of text" in reported
    assert len(reported) < 200


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("titel", "title"),
        ("resurces", "resources"),
        ("resources.memroy", "resources.memory"),
        ("annotations.card_sise", "annotations.card_size"),
        ("texts.no-card-has-rom", "texts.no-card-has-room"),
        ("extnds", "extends"),
    ],
)
def test_an_unknown_key_suggests_the_nearest_known_one(wrong: str, meant: str) -> None:
    assert problems_of(saying(wrong, "x")) == [f"acme.toml: {wrong} is no key of a profile; did you mean {meant}?"]


def test_a_key_like_no_other_gets_no_suggestion() -> None:
    assert problems_of(saying("qqqqq", 1)) == ["acme.toml: qqqqq is no key of a profile"]


def test_every_reason_may_have_a_text() -> None:
    for reason in Reason:
        assert problems_of(saying(f"texts.{reason.value}", "some text")) == []


def test_all_problems_of_a_file_are_reported_at_once() -> None:
    data = saying("request.max_cards", 0)
    data = saying("http.prefix", "zpu", data)
    data = saying("noun", NOTHING, data)
    data = saying("colour", "red", data)
    data = saying("unit.default", "TiB", data)
    reported = "\n".join(problems_of(data))
    assert len(reported.splitlines()) == 5
    for part in (
        "request.max_cards is 0",
        'http.prefix is "zpu"',
        "noun is missing",
        "colour is no key",
        'unit.default is "TiB"',
    ):
        assert part in reported


def test_the_former_name_of_nobody_is_still_read() -> None:
    """A profile that no longer loads would disable its vendor on every node."""
    read = parse({**SMALLEST, "enforcement": {"order": ["watch"]}}, file="x")
    assert read.enforcement.order == ("nobody",)
