"""What a container gets for its cards: by strategy, for one card and for several."""

from dataclasses import replace
from typing import Any

import pytest

from accelshare.vendors.catalog import load
from accelshare.vendors.container_edits import (
    CardShare,
    ContainerEdits,
    DeviceNode,
    EditsError,
    Mount,
    edits,
    path_pattern,
    shown_cards,
    shows_cards,
)
from accelshare.vendors.enforcement import Enforcement
from accelshare.vendors.profile import Profile
from accelshare.vendors.validation import parse, to_data
from tests.unit.vendors.builders import SMALLEST, profile

CATALOG = load()


def share(index: int, **over: Any) -> CardShare:
    said = {"minor": index, "id": f"ID-{index}", "units": 4, "card_units": 16, "unit_mib": 1024, **over}
    return CardShare(index=index, **said)


def given(
    vendor: Profile, *cards: CardShare, pod_units: int | None = None, enforcement: Enforcement | None = None, **over: Any
) -> ContainerEdits:
    cards = tuple(replace(card, enforcement=card.enforcement or enforcement) for card in cards)
    units = sum(card.units for card in cards)
    said: dict[str, Any] = {"exists": lambda path: True, **over}
    return edits(vendor, cards=cards, container_units=units, pod_units=units if pod_units is None else pod_units, **said)


def saying_env(**env: str) -> Profile:
    return parse({**SMALLEST, "container": {"env": env}}, file="tiny.toml")


def choosing(vendor: str, *strategy: str) -> Profile:
    data = to_data(CATALOG[vendor])
    data["container"]["strategy"] = list(strategy)
    return parse(data, file=f"{vendor}.toml")


def test_a_slice_of_a_gpu() -> None:
    """The card by UUID, and the set that gpushare's users read, the index in it."""
    got = given(CATALOG["nvidia"], share(1, id="GPU-1", units=3, card_units=15, minor=0), pod_units=5)
    assert got == ContainerEdits(
        env={
            "NVIDIA_VISIBLE_DEVICES": "GPU-1",
            "ALIYUN_COM_GPU_MEM_IDX": "1",
            "ALIYUN_COM_GPU_MEM_POD": "5",
            "ALIYUN_COM_GPU_MEM_CONTAINER": "3",
            "ALIYUN_COM_GPU_MEM_DEV": "15",
        }
    )


def test_a_node_may_switch_isolation_off_by_label() -> None:
    nvidia = CATALOG["nvidia"]
    assert given(nvidia, share(0), node_labels={"cgpu.disable.isolation": "true"}).env["CGPU_DISABLE"] == "true"
    assert "CGPU_DISABLE" not in given(nvidia, share(0), node_labels={"cgpu.disable.isolation": "false"}).env
    assert "CGPU_DISABLE" not in given(nvidia, share(0)).env


def test_a_gpu_by_volume_mounts() -> None:
    got = given(choosing("nvidia", "volume-mounts"), share(0, id="GPU-a"), share(1, id="GPU-b"))
    assert got.env["NVIDIA_VISIBLE_DEVICES"] == "/var/run/nvidia-container-devices"
    assert got.mounts == (
        Mount("/dev/null", "/var/run/nvidia-container-devices/GPU-a"),
        Mount("/dev/null", "/var/run/nvidia-container-devices/GPU-b"),
    )
    assert not got.device_nodes


def test_a_gpu_by_device_nodes() -> None:
    """By minor number, with the shared files the host has; an image's own request for all cards is ignored."""
    got = given(choosing("nvidia", "device-nodes"), share(2, minor=5), exists=lambda path: path != "/dev/nvidia-modeset")
    assert got.env["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert [node.host_path for node in got.device_nodes] == [
        "/dev/nvidia5",
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
    ]
    assert got.device_nodes[0] == DeviceNode("/dev/nvidia5", "/dev/nvidia5", "rw")


def test_a_gpu_by_cdi() -> None:
    got = given(choosing("nvidia", "cdi"), share(0, id="GPU-a"), share(3, id="GPU-b"))
    assert got.cdi_devices == ("nvidia.com/gpu=GPU-a", "nvidia.com/gpu=GPU-b")
    assert got.env["NVIDIA_VISIBLE_DEVICES"] == "void"


@pytest.mark.parametrize(("order", "value"), [(("envvar", "device-nodes"), "ID-0"), (("device-nodes", "envvar"), "void")])
def test_the_first_strategy_that_sets_a_variable_wins(order: tuple[str, ...], value: str) -> None:
    got = given(choosing("nvidia", *order), share(0))
    assert got.env["NVIDIA_VISIBLE_DEVICES"] == value
    assert got.device_nodes


def test_two_xpus_are_joined_by_commas() -> None:
    got = given(CATALOG["kunlun"], share(0, unit_mib=1), share(2, unit_mib=1))
    assert got.env == {"CXPU_VISIBLE_DEVICES": "0,2"}
    assert [node.container_path for node in got.device_nodes] == ["/dev/xpu0", "/dev/xpu2", "/dev/xpuctrl"]


def test_a_gcu_is_visible_by_its_own_device_file_only() -> None:
    got = given(CATALOG["enflame"], share(0, minor=3), exists=lambda path: False)
    assert got.env == {"ENFLAME_VISIBLE_DEVICES": "3"}
    assert got.device_nodes == (DeviceNode("/dev/gcu3", "/dev/gcu3", "rw"),)


def test_an_npu_has_its_clusters_and_its_control_file() -> None:
    got = given(CATALOG["stream"], share(1, whole=True))
    assert [node.host_path.removeprefix("/dev/stc1") for node in got.device_nodes] == ["", "c0", "c1", "c2", "c3", "ctrl"]
    assert got.env == {}


def test_every_strategy_of_a_profile_is_applied() -> None:
    got = given(profile(), share(1, minor=7, id="Z"), node_labels={"acme.example/fast": "true"})
    assert got == ContainerEdits(
        env={
            "ACME_VISIBLE": "1",
            "ACME_BYTES": str(4 * 2**30),
            "ACME_CARDS": "Z",
            "ACME_CDI": "yes",
            "ACME_FAST": "1",
        },
        device_nodes=(DeviceNode("/dev/zpu7", "/dev/zpu7", "rwm"), DeviceNode("/dev/zpuctl", "/dev/zpuctl", "rwm")),
        mounts=(Mount("/dev/zero", "/run/zpu/Z"),),
        cdi_devices=("acme.example/zpu=Z",),
        annotations={"acme.example/cards": "Z"},
    )


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("{index}", "0,3"),
        ("{ordinal}={share_mib}M", "0=2048M,1=1024M"),
        ("{units}", "3"),
        ("{mib}", "3072"),
        ("{bytes}", str(3 * 2**30)),
        ("{share_units}", "2,1"),
        ("{pod_units}/{pod_mib}/{pod_bytes}", f"5/5120/{5 * 2**30}"),
        ("{card_units}", "16,8"),
        ("{card_mib}", "16384,8192"),
        ("constant", "constant"),
        ("of {units}: {id}", "of 3: ID-0,of 3: ID-3"),
    ],
)
def test_a_template_is_rendered_for_each_card_or_once_if_all_are_equal(template: str, value: str) -> None:
    got = given(saying_env(X=template), share(0, units=2), share(3, units=1, card_units=8), pod_units=5)
    assert got.env == {"X": value}


@pytest.mark.parametrize(
    ("unit_mib", "units", "mib", "octets"),
    [
        (102.4, 10, "1024", 1024 * 2**20),
        (102.4, 1, "102", 107374182),
        (1.024, 1000, "1024", 1024 * 2**20),
        (1, 4500, "4500", None),
    ],
)
def test_parts_of_a_gb_become_whole_numbers_and_are_never_rounded_up(
    unit_mib: float, units: int, mib: str, octets: int | None
) -> None:
    got = given(saying_env(M="{mib}", B="{bytes}"), share(0, units=units, unit_mib=unit_mib))
    assert got.env == {"M": mib, "B": str(octets or units * 2**20)}


LIMIT = Enforcement("runtime", {"ACME_LIMIT": "{share_bytes}", "ACME_VISIBLE": "{ordinal}"})


def test_a_limit_takes_precedence_over_other_variables() -> None:
    got = given(profile(), share(0), share(1), enforcement=LIMIT)
    assert got.env["ACME_LIMIT"] == str(4 * 2**30)
    assert got.env["ACME_VISIBLE"] == "0,1"


def test_a_whole_card_has_no_limit() -> None:
    assert "ACME_LIMIT" not in given(profile(), share(0, whole=True), enforcement=LIMIT).env


def test_kunluns_limit_is_in_bytes_and_nvidias_in_whole_mib() -> None:
    kunlun, nvidia = CATALOG["kunlun"].enforcement.ways["runtime"], CATALOG["nvidia"].enforcement.ways["toolkit"]
    got = given(CATALOG["kunlun"], share(0, units=4500, unit_mib=1), enforcement=Enforcement("runtime", kunlun.env))
    assert got.env["CXPU_CONTAINER_MEMORY_LIMIT"] == str(4500 * 2**20)
    got = given(CATALOG["nvidia"], share(0), share(1), enforcement=Enforcement("toolkit", nvidia.env))
    assert (got.env["NVIDIA_GPU_MEMORY_LIMIT"], got.env["NVIDIA_GPU_MEMORY_REQUEST"]) == ("4096", "0")


def test_mps_is_limited_card_by_card_as_the_container_counts_them() -> None:
    mps = CATALOG["nvidia"].enforcement.ways["mps"]
    got = given(CATALOG["nvidia"], share(5), share(7), enforcement=Enforcement("mps", mps.env))
    assert got.env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=4096M,1=4096M"


def test_each_card_has_the_variables_of_its_own_way() -> None:
    """A way can be possible for one card of a node and not for another."""
    other = Enforcement("other", {"ACME_OTHER": "{ordinal}"}, mounts=("/run/other",))
    cards = (
        share(0),
        replace(share(1), enforcement=other),
        replace(share(2), enforcement=replace(LIMIT, rejected_ways=("x: y",))),
    )
    got = given(profile(), *cards, enforcement=LIMIT)
    assert (got.env["ACME_VISIBLE"], got.env["ACME_OTHER"]) == ("0,2", "1")
    assert [mount.host_path for mount in got.mounts if mount.host_path == "/run/other"] == ["/run/other"]


def test_a_card_without_the_number_a_template_needs_is_an_error() -> None:
    """Better no container than one with another card's device file."""
    with pytest.raises(EditsError, match=r"/dev/gcu\{minor\} needs \{minor\}, which is not known of card ID-0"):
        given(parse({**SMALLEST, "hardware": {"device_nodes": ["/dev/gcu{minor}"]}}, file="x"), share(0, minor=None))
    with pytest.raises(EditsError, match=r"X: \{minor\} needs"):
        given(saying_env(X="{minor}"), share(0, minor=None))


def test_no_cards_are_an_error() -> None:
    with pytest.raises(EditsError, match="without cards"):
        given(profile())


def test_an_id_with_braces_is_just_text() -> None:
    assert given(saying_env(X="{id}"), share(0, id="{units}")).env == {"X": "{units}"}


def vnpu(vendor: Profile, way: str) -> Enforcement:
    return Enforcement(way, vendor.enforcement.ways[way].env)


def test_a_slice_of_an_npu_names_its_shape() -> None:
    ascend = CATALOG["ascend"]
    got = given(ascend, share(3, units=16384, unit_mib=1), enforcement=vnpu(ascend, "vnpu"))
    assert got == ContainerEdits(env={"ASCEND_VISIBLE_DEVICES": "3", "ASCEND_VNPU_SPECS": "vir05_1c_16g"})
    whole = given(ascend, share(3, units=65536, unit_mib=1, whole=True), enforcement=vnpu(ascend, "vnpu"))
    assert whole == ContainerEdits(env={"ASCEND_VISIBLE_DEVICES": "3"})


def test_a_slice_of_a_moore_threads_gpu_is_limited_in_bytes() -> None:
    mthreads = CATALOG["mthreads"]
    got = given(mthreads, share(1, units=8, unit_mib=512), enforcement=vnpu(mthreads, "sgpu"))
    assert got.env == {"MTHREADS_VISIBLE_DEVICES": "1", "MTHREADS_QOS_MEMORY_LIMIT": str(4 * 2**30)}


@pytest.mark.parametrize("vendor", ["amd", "intel"])
def test_a_gpu_by_its_nodes_in_dri(vendor: str) -> None:
    got = given(CATALOG[vendor], share(1, pci="0000:03:00.0", card_node="card1", render_node="renderD129"))
    shared = ("/dev/kfd",) if vendor == "amd" else ()
    assert [node.container_path for node in got.device_nodes] == ["/dev/dri/card1", "/dev/dri/renderD129", *shared]
    assert got.env == {}
    with pytest.raises(EditsError, match=r"\{render_node\}"):
        given(CATALOG[vendor], share(1, card_node="card1"))


def renumbering(*paths: str) -> Profile:
    hardware = {"device_nodes": ["/dev/zpu{minor}", "/dev/zpu{minor}ctl"], "container_device_nodes": list(paths)}
    return parse({**SMALLEST, "hardware": hardware, "container": {"strategy": "device-nodes"}}, file="tiny.toml")


def test_a_container_may_number_its_own_cards_from_0() -> None:
    got = given(renumbering("/dev/zpu{ordinal}", "/dev/zpu{ordinal}ctl"), share(5, minor=7), share(2, minor=4))
    assert [(node.host_path, node.container_path) for node in got.device_nodes] == [
        ("/dev/zpu7", "/dev/zpu0"),
        ("/dev/zpu7ctl", "/dev/zpu0ctl"),
        ("/dev/zpu4", "/dev/zpu1"),
        ("/dev/zpu4ctl", "/dev/zpu1ctl"),
    ]


def test_renumbered_files_do_not_show_which_cards_they_are() -> None:
    """/dev/zpu0 in the container may be any card, so it proves nothing; a path with the card's own number does."""
    renumbered = renumbering("/dev/zpu{ordinal}", "/dev/zpu{ordinal}ctl")
    assert not shows_cards(renumbered)
    assert shown_cards(renumbered, [share(0)], env={}, devices={"/dev/zpu0", "/dev/zpu0ctl"}, mounts=()) == set()
    moved = renumbering("/dev/z/{index}", "/dev/z/{index}ctl")
    assert shows_cards(moved)
    assert shown_cards(moved, [share(0), share(1)], env={}, devices={"/dev/z/1", "/dev/z/1ctl"}, mounts=()) == {1}


@pytest.mark.parametrize(
    ("template", "path", "other"),
    [
        ("/dev/zpu{minor}", "/dev/zpu12", "/dev/zpuctl"),
        ("/dev/dri/{card_node}", "/dev/dri/card1", "/dev/dri/renderD128"),
        ("/dev/dri/{render_node}", "/dev/dri/renderD128", "/dev/dri/card1"),
        ("/dev/dri/by-path/pci-{pci}-card", "/dev/dri/by-path/pci-0000:03:00.0-card", "/dev/dri/by-path/x"),
    ],
)
def test_paths_of_a_template_are_recognized(template: str, path: str, other: str) -> None:
    assert path_pattern(template).fullmatch(path)
    assert not path_pattern(template).fullmatch(other)


def test_a_whole_card_has_no_shape_in_any_variable() -> None:
    data = to_data(CATALOG["ascend"])
    data["container"]["env"] = {"NPU_SHAPE": "{shape}", "NPU": "{index}"}
    own = parse(data, file="ascend.toml")
    assert given(own, share(3, units=16384, unit_mib=1)).env["NPU_SHAPE"] == "vir05_1c_16g"
    assert "NPU_SHAPE" not in given(own, share(3, units=65536, unit_mib=1, whole=True)).env
    with pytest.raises(EditsError, match=r"NPU_SHAPE: \{shape\} needs"):
        given(own, share(3, units=40_000, unit_mib=1))
