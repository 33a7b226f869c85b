"""From data to a profile: each key in its place, each default as promised, and back again."""

import pytest

from accelshare.ledger.refusals import Reason
from accelshare.vendors.problems import ProfileError, VendorError
from accelshare.vendors.profile import (
    NOBODY,
    Annotations,
    Cdi,
    ContainerRules,
    DeviceNodes,
    DriverRules,
    EnforcementRules,
    Hardware,
    Http,
    InspectDialect,
    ProcessRules,
    RequestRules,
    Requirement,
    ResourceNames,
    StaticCard,
    StaticRules,
    UnhealthyConfigMap,
    Unit,
    VolumeMounts,
    Way,
)
from accelshare.vendors.validation import parse, to_data
from tests.unit.vendors.builders import COMPLETE, SMALLEST, profile, saying


def test_every_key_arrives_in_its_place() -> None:
    acme = profile()
    assert (acme.name, acme.title, acme.noun) == ("acme", "Acme ZPU (zpushare)", "ZPU")
    assert acme.node_label == ("acme.example/share", "true")
    assert acme.resources == ResourceNames("acme.example/zpu-mem", "acme.example/zpu-count", "acme.example/zpu")
    assert acme.request == RequestRules(cards_label="acme.example/cards", max_cards=16, max_whole_cards=4)
    assert acme.unit == Unit("GiB", {"GiB": 1024, "0.1": 102.4}, {"0.1": "0.1 GB"})
    assert acme.annotations == Annotations("ACME_IDX", "ACME_DEV", "ACME_POD", "ACME_ASSIGNED", "ACME_TIME")
    assert acme.http == Http("/zpushare-scheduler", 32000)
    assert acme.inspect == InspectDialect(
        "zpushare", "totalZPU", "usedZPU", "availableZPU", "devs", pod_uid=True, pod_created=True
    )
    assert acme.unhealthy == UnhealthyConfigMap(namespace="ops", name="unhealthy-zpu-{node}", key="zpus")
    assert acme.hardware == Hardware(("/dev/zpu{minor}",), shared_device_nodes=("/dev/zpuctl",))
    assert acme.driver == DriverRules(
        "static",
        ("libzpu.so.1",),
        ("zpu-smi",),
        3,
        0.5,
        static=StaticRules(
            (
                StaticCard(16384, id="Z-A", model="Z1", minor=7, numa=1, pci="0000:3b:00.0"),
                StaticCard(8192, count=2, index=4),
            )
        ),
        processes=ProcessRules(("zpu-smi", "-p"), r"(?P<index>\d+) (?P<pid>\d+) (?P<memory_mib>\d+)"),
    )
    assert acme.container == ContainerRules(
        env={"ACME_VISIBLE": "{index}", "ACME_BYTES": "{bytes}"},
        strategy=("envvar", "volume-mounts", "device-nodes", "cdi"),
        annotations={"acme.example/cards": "{id}"},
        node_label_env={"acme.example/fast=true": "ACME_FAST=1"},
        envvar={"ACME_CARDS": "{id}"},
        volume_mounts=VolumeMounts("/dev/zero", "/run/zpu/{id}", {"ACME_CARDS": "/run/zpu"}),
        device_nodes=DeviceNodes("rwm", {"ACME_CARDS": "void"}),
        cdi=Cdi("acme.example/zpu={id}", write_spec=False, env={"ACME_CDI": "yes"}),
    )
    runtime = Way(
        {"ACME_LIMIT": "{share_bytes}"},
        (
            Requirement(file="/sys/module/zpu/version", at_least="2.1"),
            Requirement(command=("zpu-runtime", "--version"), pattern="v([0-9.]+)", at_least="1.0"),
        ),
    )
    late = Way({"ACME_LATE": "{mib}"})
    assert acme.enforcement == EnforcementRules(("runtime", "nobody"), {"runtime": runtime, "late": late})
    assert acme.enforcement.in_order == (("runtime", runtime), (NOBODY, Way()))
    assert acme.unverified == ("resources.count", "unit.mib.GiB", "texts.no-cards", "container.env.ACME_VISIBLE")
    assert acme.text(Reason.NO_CARDS) == "nothing here"


def test_an_omitted_key_has_its_default() -> None:
    tiny = parse(SMALLEST, file="tiny.toml")
    assert tiny.node_label is None
    assert tiny.resources == ResourceNames(memory=None, count=None, whole="tiny.example/tpu")
    assert tiny.request == RequestRules(cards_label=None, max_cards=64, max_whole_cards=None)
    assert tiny.unit == Unit("MiB", {"MiB": 1})
    assert tiny.annotations == Annotations()
    assert tiny.http == Http()
    assert tiny.inspect == InspectDialect(None, "total", "used", None, "devices", pod_uid=False, pod_created=False)
    assert tiny.unhealthy is None
    assert tiny.hardware == Hardware()
    assert tiny.driver is None
    assert tiny.container == ContainerRules()
    assert tiny.container.strategy == ("envvar", "device-nodes")
    assert tiny.enforcement.in_order == ((NOBODY, Way()),)
    assert tiny.unverified == ()


def test_the_unhealthy_configmap_is_in_kube_system_by_default() -> None:
    data = {**SMALLEST, "unhealthy": {"name": "unhealthy-{node}", "key": "cards"}}
    assert parse(data, file="tiny.toml").unhealthy == UnhealthyConfigMap(name="unhealthy-{node}", key="cards")
    assert UnhealthyConfigMap(name="x", key="y").namespace == "kube-system"


def test_the_unhealthy_configmap_is_named_after_its_node() -> None:
    assert UnhealthyConfigMap(name="bad-{node}-zpu", key="zpus").name_on("n1") == "bad-n1-zpu"


def test_one_strategy_needs_no_list() -> None:
    assert parse({**SMALLEST, "container": {"strategy": "envvar"}}, file="tiny.toml").container.strategy == ("envvar",)


def test_a_unit_has_a_size_and_a_label_for_people() -> None:
    unit = profile().unit
    assert unit.mib[unit.default] == 1024
    assert unit.label("0.1") == "0.1 GB"
    assert unit.label("GiB") == "GiB"


@pytest.mark.parametrize("data", [COMPLETE, SMALLEST])
def test_a_profile_written_out_and_read_again_is_the_same(data: dict[str, object]) -> None:
    first = parse(data, file="a.toml")
    assert parse(to_data(first), file="b.toml") == first


def test_a_profile_is_a_value() -> None:
    """Equal if its content is equal, hashable and immutable."""
    acme = profile()
    assert acme == profile()
    assert len({acme, profile()}) == 1
    with pytest.raises(AttributeError):
        acme.noun = "GPU"  # type: ignore[misc]
    with pytest.raises(TypeError):
        acme.unit.mib["GiB"] = 1  # type: ignore[index]
    with pytest.raises(TypeError):
        acme.texts[Reason.NO_CARDS] = "x"  # type: ignore[index]


def test_the_data_may_change_later_without_changing_the_profile() -> None:
    data = saying("title", "Acme")
    acme = parse(data, file="acme.toml")
    data["unit"]["mib"]["GiB"] = 1
    data["hardware"]["device_nodes"].append("/dev/other{index}")
    assert acme.unit.mib["GiB"] == 1024
    assert acme.hardware.device_nodes == ("/dev/zpu{minor}",)


def test_the_error_carries_its_problems() -> None:
    with pytest.raises(ProfileError) as caught:
        parse({"name": "acme"}, file="acme.toml")
    assert isinstance(caught.value, VendorError)
    assert [problem.key for problem in caught.value.problems] == ["title", "noun", "resources"]
    assert str(caught.value).splitlines() == [str(problem) for problem in caught.value.problems]
