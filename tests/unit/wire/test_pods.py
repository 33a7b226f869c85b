"""What a pod's manifest requests, and which cards its record has."""

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import click
import msgspec
import pytest

from accelshare.extender.command import extender
from accelshare.ledger.facts import AgentSeen
from accelshare.ledger.nouns import Ask, LimitNeed, Slice
from accelshare.ledger.refusals import Reason, Refusal
from accelshare.vendors.catalog import Catalog, load
from accelshare.vendors.refusal_texts import CARD_COUNT_ANNOTATION, ENFORCEMENT_ANNOTATION
from accelshare.wire import pods as pods_module
from accelshare.wire.objects import SpecWithPreferences
from accelshare.wire.pods import ENFORCEMENT, AgentIdentity, InitAmount, PodReader, default_limits, peak, prefers_some_nodes
from accelshare.wire.quantity import thousandths
from tests.unit.wire.objects import pod

MEMORY, WHOLE = "aliyun.com/gpu-mem", "nvidia.com/gpu"
XPU, COUNT = "baidu.com/xpu-mem", "baidu.com/xpu-count"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load()


@pytest.fixture(scope="module")
def reader(catalog: Catalog) -> PodReader:
    return PodReader(catalog)


def decode(reader: PodReader, content: dict[str, Any]) -> Any:
    return reader.decode(json.dumps(content).encode())


def test_a_slice_is_requested_of_one_card(reader: PodReader) -> None:
    assert decode(reader, pod({MEMORY: "3"})).request == (Ask("nvidia", 1, 3),)


@pytest.mark.parametrize(("amount", "units"), [(3, 3), ("3", 3), ("3k", 3000), ("1Ki", 1024), ("3e2", 300), ("3000m", 3)])
def test_amounts_are_kubernetes_quantities(reader: PodReader, amount: object, units: int) -> None:
    assert decode(reader, pod({MEMORY: amount})).request == (Ask("nvidia", 1, units),)


@pytest.mark.parametrize("amount", ["1500m", "-1", "many", "", "1" * 80, "9e99", "3000000000", "NaN", "1e9999999", True])
def test_an_impossible_amount_is_refused(reader: PodReader, amount: object) -> None:
    fact = decode(reader, pod({MEMORY: amount})) if not isinstance(amount, bool) else None
    assert fact is None or fact.refusal == Refusal(Reason.AMOUNT_UNREADABLE, "nvidia")


def test_requests_count_if_there_are_no_limits(reader: PodReader) -> None:
    content = pod()
    content["spec"]["containers"] = [{"name": "a", "resources": {"requests": {MEMORY: "3"}}}]
    assert decode(reader, content).request == (Ask("nvidia", 1, 3),)


def test_a_pod_that_requests_no_card_is_no_fact(reader: PodReader) -> None:
    assert decode(reader, pod({"cpu": "2"})) is None
    assert decode(reader, pod({MEMORY: "0"})) is None
    assert decode(reader, {"metadata": {"name": "bare"}}) is None
    assert decode(reader, {"metadata": {"name": "n"}, "spec": {"containers": None, "initContainers": None}}) is None


def test_whole_cards_and_slices_and_vendors_together(reader: PodReader) -> None:
    asked = pod({MEMORY: "3", WHOLE: "2", "streamcomputing.com/npu": "1"})
    assert decode(reader, asked).request == (
        Ask("nvidia", 1, 3),
        Ask("nvidia", 2, whole=True),
        Ask("stream", 1, whole=True),
    )


def test_the_count_label_divides_the_amount(reader: PodReader) -> None:
    assert decode(reader, pod({XPU: "8000"}, labels={COUNT: "4"})).request == (Ask("kunlun", 4, 2000),)


def test_several_cards_of_any_vendor_can_be_requested_by_annotation(reader: PodReader) -> None:
    content = pod({MEMORY: "8"}, annotations={"accelshare.io/card-count": "2"})
    assert decode(reader, content).request == (Ask("nvidia", 2, 4),)


@pytest.mark.parametrize("count", ["0", "two", "", "1.5", "65", "٣", "9999999999"])
def test_an_invalid_count_is_refused(reader: PodReader, count: str) -> None:
    fact = decode(reader, pod({XPU: "8000"}, labels={COUNT: count}))
    assert fact.refusal == Refusal(Reason.CARD_COUNT_UNREADABLE, "kunlun")
    assert fact.request == (Ask("kunlun", 1, 8000),)


def test_a_remainder_is_refused(reader: PodReader) -> None:
    fact = decode(reader, pod({XPU: "8000"}, labels={COUNT: "3"}))
    assert fact.refusal == Refusal(Reason.CARD_COUNT_LEAVES_REMAINDER, "kunlun")


def test_more_whole_cards_than_the_vendor_allows_are_refused(reader: PodReader) -> None:
    fact = decode(reader, pod({"streamcomputing.com/npu": "2"}))
    assert fact.refusal == Refusal(Reason.TOO_MANY_WHOLE_CARDS, "stream")
    assert decode(reader, pod({WHOLE: "8"})).refusal is None


@pytest.mark.parametrize("amount", [256, 1000])
def test_more_whole_cards_than_any_node_has_are_not_read_as_fewer(reader: PodReader, amount: int) -> None:
    fact = decode(reader, pod({WHOLE: amount}))
    assert (fact.request, fact.refusal) == ((Ask("nvidia", min(amount, 257), whole=True),), None)


def test_a_binding_is_told_from_a_pod_that_names_its_node(reader: PodReader) -> None:
    content = pod({MEMORY: 3}) | {"status": {"conditions": [{"type": "PodScheduled", "status": "True"}]}}
    assert decode(reader, content).scheduled
    content["status"]["conditions"][0]["status"] = "False"
    assert not decode(reader, content).scheduled
    assert not decode(reader, pod({MEMORY: 3})).scheduled


def test_whole_cards_and_a_slice_of_one_kind_in_one_container_are_refused(reader: PodReader) -> None:
    """In two containers of a pod they are two requests, and each container has its own."""
    both = pod({MEMORY: "3", WHOLE: "1"})
    assert decode(reader, both).refusal == Refusal(Reason.WHOLE_AND_SLICE_IN_ONE_CONTAINER, "nvidia")
    assert decode(reader, pod({MEMORY: "3", WHOLE: "0"})).refusal is None
    assert decode(reader, pod({MEMORY: "3", "enflame.com/gcu": "1"})).refusal is None
    apart = pod({MEMORY: "3"})
    apart["spec"]["containers"].append({"resources": {"limits": {WHOLE: "1"}}})
    assert decode(reader, apart).refusal is None


@pytest.mark.parametrize(
    ("said", "limits"), [("required", LimitNeed.REQUIRED), ("preferred", LimitNeed.PREFERRED), (None, LimitNeed.ANY)]
)
def test_slices_of_every_vendor_need_what_the_annotation_says(reader: PodReader, said: str | None, limits: LimitNeed) -> None:
    """Pods of one template and different annotations are different requests. Whole cards have no limit."""
    annotations = {ENFORCEMENT_ANNOTATION: said} if said is not None else None
    fact = decode(reader, pod({MEMORY: "4", XPU: "8", "enflame.com/gcu": "1"}, annotations=annotations))
    assert fact.refusal is None
    assert fact.request == (Ask("enflame", whole=True), Ask("kunlun", 1, 8, limits=limits), Ask("nvidia", 1, 4, limits=limits))


@pytest.mark.parametrize("said", ["", "Required", "required ", "yes", "true", "none", "x" * 200_000, "\x1b[2J"])
def test_another_value_of_the_enforcement_annotation_is_refused(reader: PodReader, said: str) -> None:
    fact = decode(reader, pod({MEMORY: "4"}, annotations={ENFORCEMENT_ANNOTATION: said}))
    assert fact.refusal == Refusal(Reason.ENFORCEMENT_UNREADABLE, "nvidia")
    assert fact.request == (Ask("nvidia", 1, 4),)
    assert decode(reader, pod({WHOLE: "1"}, annotations={ENFORCEMENT_ANNOTATION: said})).refusal is None


def test_the_default_is_for_slices_of_pods_that_say_nothing(catalog: Catalog) -> None:
    reader = PodReader(catalog, default_limits=LimitNeed.REQUIRED)
    assert decode(reader, pod({MEMORY: "4"})).request == (Ask("nvidia", 1, 4, limits=LimitNeed.REQUIRED),)
    preferring = pod({MEMORY: "4"}, annotations={ENFORCEMENT_ANNOTATION: "preferred"})
    assert decode(reader, preferring).request == (Ask("nvidia", 1, 4, limits=LimitNeed.PREFERRED),)
    assert decode(reader, pod({WHOLE: "1"})).request == (Ask("nvidia", 1, whole=True),)


def test_the_default_is_named_as_the_annotation_is() -> None:
    choices = next(option for option in extender.params if option.name == "default_enforcement").type
    assert isinstance(choices, click.Choice)
    assert set(choices.choices) == set(ENFORCEMENT)
    assert {name: default_limits(name) for name in ENFORCEMENT} == ENFORCEMENT
    assert default_limits(None) is LimitNeed.ANY


def test_a_record_over_other_cards_keeps_what_the_pod_requires(reader: PodReader) -> None:
    record = {"nvidia": [{"index": 0, "units": 4}, {"index": 1, "units": 4}]}
    annotations = {"accelshare.io/assignment": json.dumps(record), ENFORCEMENT_ANNOTATION: "required"}
    fact = decode(reader, pod({MEMORY: "8"}, annotations=annotations, node="n1"))
    assert fact.request == (Ask("nvidia", 2, 4, limits=LimitNeed.REQUIRED),)
    assert fact.slices == (Slice("nvidia", 0, 4), Slice("nvidia", 1, 4))


def test_our_record_takes_precedence_and_amounts_come_from_the_request(reader: PodReader) -> None:
    record = {"nvidia": [{"index": 2, "id": "GPU-2", "units": 999}]}
    annotations = {"accelshare.io/assignment": json.dumps(record), "ALIYUN_COM_GPU_MEM_IDX": "1"}
    fact = decode(reader, pod({MEMORY: "3"}, annotations=annotations, node="n1"))
    assert fact.slices == (Slice("nvidia", 2, 3, id="GPU-2"),)
    assert fact.problems == ()


@pytest.mark.parametrize("count", ["1", "3", "4", "x"])
def test_the_record_decides_how_many_cards_a_bound_pod_has(reader: PodReader, count: str) -> None:
    """Its owner can edit the annotation with the count, after a bind too; the amount in all stays what its containers ask."""
    record = {"nvidia": [{"index": 0, "id": "A", "units": 3}, {"index": 1, "id": "B", "units": 3}]}
    annotations = {"accelshare.io/assignment": json.dumps(record), "accelshare.io/card-count": count}
    fact = decode(reader, pod({MEMORY: "6"}, annotations=annotations, node="n1"))
    assert fact.request == (Ask("nvidia", 2, 3),)
    assert fact.slices == (Slice("nvidia", 0, 3, id="A"), Slice("nvidia", 1, 3, id="B"))
    unbound = decode(reader, pod({MEMORY: "6"}, annotations=annotations))
    assert unbound.request != fact.request
    assert unbound.slices == ()


@pytest.mark.parametrize("units", [(1, 5), (6, 6), (0, 6), (3,), (2, 2)])
def test_a_record_with_other_amounts_than_its_request_places_nothing(reader: PodReader, units: tuple[int, ...]) -> None:
    record = {"nvidia": [{"index": index, "units": each} for index, each in enumerate(units)]}
    annotations = {"accelshare.io/assignment": json.dumps(record), "accelshare.io/card-count": "3"}
    fact = decode(reader, pod({MEMORY: "6"}, annotations=annotations, node="n1"))
    assert (fact.request, fact.slices) == ((Ask("nvidia", 3, 2),), ())


def test_a_record_of_an_original_system_is_read(reader: PodReader) -> None:
    fact = decode(reader, pod({MEMORY: "3"}, annotations={"ALIYUN_COM_GPU_MEM_IDX": "1"}, node="n1"))
    assert fact.slices == (Slice("nvidia", 1, 3),)
    two = pod({XPU: "8"}, labels={COUNT: "2"}, annotations={"BAIDU_COM_XPU_MEM_IDX": "3,0"}, node="n1")
    assert decode(reader, two).slices == (Slice("kunlun", 0, 4), Slice("kunlun", 3, 4))


def test_annotations_of_an_unbound_pod_are_no_record(reader: PodReader) -> None:
    assert decode(reader, pod({MEMORY: "3"}, annotations={"ALIYUN_COM_GPU_MEM_IDX": "1"})).slices == ()


def test_a_record_for_a_vendor_that_was_not_requested_is_ignored(reader: PodReader) -> None:
    fact = decode(reader, pod({MEMORY: "3"}, annotations={"enflame.com/gcu-device-id": "1"}, node="n1"))
    assert (fact.slices, fact.problems) == ((), ())


@pytest.mark.parametrize("index", ["", "x", "-1", "0,1", "99999", "1.0", "9" * 5000])
def test_an_unreadable_record_is_reported_and_places_nothing(reader: PodReader, index: str) -> None:
    fact = decode(reader, pod({MEMORY: "3"}, annotations={"ALIYUN_COM_GPU_MEM_IDX": index}, node="n1"))
    assert fact.slices == ()
    (problem,) = fact.problems
    assert "ALIYUN_COM_GPU_MEM_IDX" in problem
    assert len(problem) < 200


@pytest.mark.parametrize(
    "record", ["{", "[]", "null", '{"nvidia": 3}', '{"nvidia": [{"index": "0"}]}', '{"nvidia": [{"index": -1}]}', "[" * 10_000]
)
def test_a_broken_record_of_ours_falls_back_to_the_original_keys(reader: PodReader, record: str) -> None:
    annotations = {"accelshare.io/assignment": record, "ALIYUN_COM_GPU_MEM_IDX": "1"}
    fact = decode(reader, pod({MEMORY: "3"}, annotations=annotations, node="n1"))
    assert fact.slices == (Slice("nvidia", 1, 3),)


DEEP = "[" * 30_000 + "]" * 30_000


@pytest.mark.parametrize(
    "record",
    [DEEP, f'{{"nvidia": {DEEP}}}', f'{{"nvidia": [{{"more": {DEEP}}}]}}', f'{{"nvidia": [{{"index": {DEEP}}}]}}', "x" * 300_000],
)
def test_an_unreadable_record_does_not_hide_its_pod(reader: PodReader, record: str) -> None:
    fact = decode(reader, pod({MEMORY: "3"}, annotations={"accelshare.io/assignment": record}, node="n1"))
    assert (fact.node, fact.request, fact.slices) == ("n1", (Ask("nvidia", 1, 3),), ())
    (problem,) = fact.problems
    assert "accelshare.io/assignment" in problem
    assert len(problem) < 300


@pytest.mark.parametrize("entry", [{"index": 256}, {"index": 0, "id": "x" * 129}, {"index": 9**30}])
def test_an_oversized_record_places_nothing(reader: PodReader, entry: dict[str, Any]) -> None:
    annotations = {"accelshare.io/assignment": json.dumps({"nvidia": [entry]})}
    assert decode(reader, pod({MEMORY: "3"}, annotations=annotations, node="n1")).slices == ()


def test_an_unread_deep_part_of_a_record_does_no_harm(reader: PodReader) -> None:
    record = f'{{"nvidia": [{{"index": 2, "more": {DEEP}}}]}}'
    fact = decode(reader, pod({MEMORY: "3"}, annotations={"accelshare.io/assignment": record}, node="n1"))
    assert fact.slices == (Slice("nvidia", 2, 3),)


@pytest.mark.parametrize(
    ("phase", "ended"), [("Pending", False), ("Running", False), ("Succeeded", True), ("Failed", True), (None, False)]
)
def test_only_succeeded_and_failed_are_the_end(reader: PodReader, phase: str | None, ended: bool) -> None:
    assert decode(reader, pod({MEMORY: "3"}, phase=phase)).ended is ended


def test_pods_of_one_template_share_what_they_need(reader: PodReader) -> None:
    first, second = (decode(reader, pod({MEMORY: "3", "cpu": "500m", "memory": "1Gi"})) for _ in range(2))
    assert first.needs is second.needs
    assert dict(first.needs) == {MEMORY: 3000, "cpu": 500, "memory": 1024**3 * 1000}


@pytest.mark.parametrize("resources", [1, 50])
def test_pods_that_each_have_their_own_amounts_do_not_fill_the_memory(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, resources: int
) -> None:
    monkeypatch.setattr(pods_module, "TEMPLATES_REMEMBERED", 10_000)
    reader = PodReader(catalog)
    sizes: list[int] = []
    for number in range(1, 200):
        others = {f"example.com/r{place}": str(number) for place in range(resources)}
        assert dict(decode(reader, pod({MEMORY: "3", **others})).needs)["example.com/r0"] == 1000 * number
        sizes.append(reader._templates.size)
    assert 5_000 < max(sizes) <= 10_000
    first = decode(reader, pod({MEMORY: "3"}))
    assert decode(reader, pod({MEMORY: "3"})).needs is first.needs


@pytest.mark.parametrize(
    ("spec", "prefers"),
    [
        ({}, False),
        ({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}}, False),
        ({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}}, False),
        ({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}}, True),
        ({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}}, True),
        ({"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}}, True),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}, False),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, True),
    ],
)
def test_soft_preferences_are_recognized(spec: dict[str, Any], prefers: bool) -> None:
    assert prefers_some_nodes(msgspec.json.decode(json.dumps(spec), type=SpecWithPreferences)) is prefers


@pytest.mark.parametrize(
    "large",
    [
        lambda number: pod({"aliyun.com/gpu-mem": 4}, annotations={CARD_COUNT_ANNOTATION: f"{number}" * 50_000}),
        lambda number: pod({f"example.com/{number}-{part}": 1 for part in range(5_000)}),
    ],
    ids=["count", "resources"],
)
def test_contents_of_large_pods_are_not_cached(reader: PodReader, large: Callable[[int], dict[str, Any]]) -> None:
    """A user who may create pods could otherwise fill the memory of all readers, long after these pods are gone."""
    decode(reader, pod({"aliyun.com/gpu-mem": 4}))
    tracemalloc.start()
    try:
        for number in range(10, 60):
            decode(reader, large(number))
        assert tracemalloc.get_traced_memory()[0] < 500_000
    finally:
        tracemalloc.stop()


def needing(reader: PodReader, **spec: Any) -> dict[str, int]:
    content = pod({MEMORY: "3"})
    content["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1", "memory": "1k"}
    content["spec"] |= spec
    return {name: amount // 1000 for name, amount in decode(reader, content).needs}


def test_overhead_is_added_to_what_a_pod_needs(reader: PodReader) -> None:
    """As kube-scheduler counts it, so that other victims free as much."""
    needs = needing(reader, overhead={"cpu": "2", "ephemeral-storage": "5"})
    assert needs == {"cpu": 3, "memory": 1000, "ephemeral-storage": 5, MEMORY: 3}


def test_pod_level_requests_count_for_all_containers(reader: PodReader) -> None:
    """Pod-level resources (Kubernetes 1.34): CPU, memory and huge pages; an amount only in limits counts too."""
    whole_pod = {"requests": {"cpu": "4"}, "limits": {"cpu": "8", "memory": "2k", "hugepages-2Mi": "4", MEMORY: "99"}}
    needs = needing(reader, resources=whole_pod, overhead={"cpu": "2"})
    assert needs == {"cpu": 6, "memory": 2000, "hugepages-2Mi": 4, MEMORY: 3}


def test_templates_that_differ_in_overhead_or_pod_level_requests_are_distinct(reader: PodReader) -> None:
    assert needing(reader)["cpu"] == 1
    assert needing(reader, overhead={"cpu": "2"})["cpu"] == 3
    assert needing(reader, resources={"requests": {"cpu": "7"}})["cpu"] == 7
    assert needing(reader)["cpu"] == 1


def agent_pod(**metadata: Any) -> dict[str, Any]:
    content = pod(labels={"accelshare.io/agent": "true"}, node="n1", phase="Running")
    content["metadata"] |= {"namespace": "kube-system", **metadata}
    content["spec"]["serviceAccountName"] = "accelshare-agent"
    content["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    return content


def test_the_nodes_agent_has_the_agents_namespace_and_service_account(catalog: Catalog) -> None:
    """Any user can give a pod a label; only users with access to the agent's namespace can use its service account."""
    reader = PodReader(catalog, agents=AgentIdentity("kube-system", "accelshare-agent"))
    assert decode(reader, agent_pod()) == AgentSeen("u", "n1", ready=True, version=7)
    assert decode(reader, agent_pod(namespace="somebody")) is None
    assert decode(reader, agent_pod(labels={})) is None
    other = agent_pod()
    other["spec"]["serviceAccountName"] = "default"
    assert decode(reader, other) is None
    del other["spec"]["serviceAccountName"]
    assert decode(reader, other) is None


@pytest.mark.parametrize(
    ("named", "rejected"),
    [("aliyun.com/gpu-mem", True), ("example.com/fpga", False), ("", True)],
    ids=["over a card", "over another plugin's device", "over something that is not named"],
)
def test_a_pod_is_rejected_only_over_a_card(reader: PodReader, named: str, rejected: bool) -> None:
    """A request for a device that another plugin cannot allocate must not pause the node's cards for all pods."""
    content = pod({MEMORY: "3", "example.com/fpga": "1"}, node="n1", phase="Failed")
    message = f"Allocate failed due to requested number of devices unavailable for {named}. Requested: 1, Available: 0"
    content["status"] |= {"reason": "UnexpectedAdmissionError", "message": message}
    assert decode(reader, content).rejected is rejected


def test_each_amount_of_a_pod_with_many_containers_is_read_once(reader: PodReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any user can make a pod of 2,000 containers that each name a resource of their own: reading it took seconds each time."""
    looked_at: list[object] = []

    def counted(value: object) -> int:
        looked_at.append(value)
        return thousandths(value)

    monkeypatch.setattr("accelshare.wire.pods.thousandths", counted)
    content = pod({MEMORY: "2"})
    content["spec"]["containers"] += [{"resources": {"limits": {f"example.com/{n}": "1"}}} for n in range(300)]
    content["spec"]["initContainers"] = [{"resources": {"limits": {f"example.com/{n}": "2"}}} for n in range(300)]
    needs = dict(decode(reader, content).needs)
    assert len(needs) == 301
    assert needs["example.com/7"] == 2000
    assert len(looked_at) == 601


def test_required_plugins_of_many_containers_are_one_text(reader: PodReader) -> None:
    """An annotation of 200 kB on a pod of 1,000 containers was read 1,000 times, which took 19 s."""
    content = pod({MEMORY: "2"})
    content["metadata"]["annotations"] = {"required-plugins.noderesource.dev": "a, " * 50_000}
    content["spec"]["containers"] += [{"name": f"c{n}"} for n in range(100)]
    notes = dict(decode(reader, content).runtime_notes)
    values = [value for key, value in notes.items() if "/container.c" in key]
    assert len(values) == 100
    assert len({id(value) for value in values}) == 1
    assert json.loads(values[0]) == ["accelshare", "a"]


@pytest.mark.parametrize(
    ("apps", "steps", "most"),
    [
        ([4], [], 4),
        ([4, 8], [], 12),
        ([4], [InitAmount(8)], 8),
        ([4, 8], [InitAmount(8)], 12),
        ([4], [InitAmount(8), InitAmount(3)], 8),
        ([4], [InitAmount(2, stays=True)], 6),
        ([4], [InitAmount(2, stays=True), InitAmount(5)], 7),
        ([4], [InitAmount(5), InitAmount(2, stays=True)], 6),
        ([1], [InitAmount(2, stays=True), InitAmount(3, stays=True), InitAmount(4)], 9),
        ([], [InitAmount(2, stays=True)], 2),
        ([], [], 0),
    ],
)
def test_init_containers_run_one_by_one_beside_the_sidecars_before_them(
    apps: list[int], steps: list[InitAmount], most: int
) -> None:
    assert peak(apps, steps) == most


NPU, WHOLE_NPU, SGPU = "huawei.com/Ascend910B3-memory", "huawei.com/Ascend910B3", "mthreads.com/sgpu-memory"


@pytest.mark.parametrize(("requested", "counted"), [(1, 16384), (10_000, 16384), (16384, 16384), (20_000, 32768)])
def test_a_slice_with_shapes_is_counted_with_its_shape(reader: PodReader, requested: int, counted: int) -> None:
    fact = decode(reader, pod({NPU: str(requested)}))
    assert (fact.request, fact.refusal) == ((Ask("ascend", 1, counted),), None)
    assert dict(fact.needs)[NPU] == requested * 1000, "kube-scheduler and kubelet count what is requested"


def test_a_request_larger_than_every_shape_is_refused_and_counted_as_it_is(reader: PodReader) -> None:
    fact = decode(reader, pod({NPU: "40000"}))
    assert (fact.request, fact.refusal) == ((Ask("ascend", 1, 40000),), Refusal(Reason.LARGER_THAN_ANY_SHAPE, "ascend"))


def test_each_container_takes_a_shape_of_its_own(reader: PodReader) -> None:
    """The vendor's runtime makes one for each container: two small ones are not one large one."""
    content = pod()
    content["spec"]["containers"] = [{"name": n, "resources": {"limits": {NPU: "9000"}}} for n in ("a", "b")]
    content["spec"]["initContainers"] = [{"name": "i", "resources": {"limits": {NPU: "20000"}}}, {"name": "none"}]
    fact = decode(reader, content)
    assert (fact.request, fact.refusal) == ((Ask("ascend", 1, 32768),), None)
    content["spec"]["initContainers"].append({"name": "s", "restartPolicy": "Always", "resources": {"limits": {NPU: "1"}}})
    assert decode(reader, content).request == (Ask("ascend", 1, 3 * 16384),)


def test_units_and_shapes_of_a_vendor_go_together(reader: PodReader) -> None:
    assert decode(reader, pod({SGPU: "5"})).request == (Ask("mthreads", 1, 8),)


def test_a_slice_with_a_shape_is_of_one_card(reader: PodReader) -> None:
    fact = decode(reader, pod({NPU: "32768"}, annotations={CARD_COUNT_ANNOTATION: "2"}))
    assert fact.refusal == Refusal(Reason.CARD_COUNT_UNREADABLE, "ascend")


def test_whole_cards_have_no_shape(reader: PodReader) -> None:
    assert decode(reader, pod({WHOLE_NPU: "2"})).request == (Ask("ascend", 2, whole=True),)


def test_a_record_of_a_shape_is_read_with_the_shapes_units(reader: PodReader) -> None:
    """Amounts come from the request: an edited record cannot make the slice smaller."""
    record = {"accelshare.io/assignment": '{"ascend":[{"index":3,"id":"0000:c1:00.0","units":1}]}'}
    fact = decode(reader, pod({NPU: "10000"}, annotations=record, node="n1"))
    assert fact.slices == (Slice("ascend", 3, 16384, False, "0000:c1:00.0"),)
    edited = decode(reader, pod({NPU: "10000"}, annotations={**record, CARD_COUNT_ANNOTATION: "4"}, node="n1"))
    assert (edited.request, edited.slices) == (fact.request, fact.slices)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> PodReader:
    folder = tmp_path_factory.mktemp("profiles")
    (folder / "own.toml").write_text('extends = "nvidia"\n[request]\ncards_annotation = "acme.example/cards"\n')
    return PodReader(load([folder]))


def test_the_vendors_own_annotation_requests_several_cards(own: PodReader) -> None:
    assert decode(own, pod({MEMORY: "8"}, annotations={"acme.example/cards": "2"})).request == (Ask("nvidia", 2, 4),)
    assert decode(own, pod({MEMORY: "8"}, annotations={CARD_COUNT_ANNOTATION: "4"})).request == (Ask("nvidia", 4, 2),)
    both = {"acme.example/cards": "2", CARD_COUNT_ANNOTATION: "4"}
    assert decode(own, pod({MEMORY: "8"}, annotations=both)).request == (Ask("nvidia", 2, 4),)
    wrong = decode(own, pod({MEMORY: "8"}, annotations={"acme.example/cards": "two"}))
    assert wrong.refusal == Refusal(Reason.CARD_COUNT_UNREADABLE, "nvidia")
