"""Each check says what it sees, and what to do about it."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from accelshare.install.preflight import checks
from accelshare.install.preflight.checks.control_plane import check_permissions, check_ports, check_scheduler, needed_rights
from accelshare.install.preflight.checks.nodes import check_labels, check_runtimes, check_versions
from accelshare.install.preflight.checks.originals import check_originals
from accelshare.install.preflight.checks.pods import check_cards_in_use, check_memory_units
from accelshare.install.preflight.findings import Finding, Grade
from accelshare.install.preflight.snapshot import ClusterPart, PodWithCommands, Snapshot
from accelshare.vendors import catalog
from accelshare.vendors import originals as known_originals
from accelshare.vendors.catalog import Catalog
from accelshare.wire import inventory
from accelshare.wire.inventory import KindEntry
from accelshare.wire.objects import Metadata
from tests.unit.install.preflight.builders import node, pod, scheduler_pod, service, workload

ROOT = Path(__file__).parents[4]
SHIPPED = catalog.load()
OURS = {"app.kubernetes.io/part-of": "accelshare"}


def results(check: Callable[[Snapshot, Catalog], Iterator[Finding]], snapshot: Snapshot) -> list[tuple[Grade, str]]:
    return [(finding.grade, finding.message) for finding in check(snapshot, SHIPPED)]


@pytest.mark.parametrize(
    ("version", "grade", "words"),
    [
        ("v1.36.4", Grade.FINE, "configured by a configuration file"),
        ("v1.21.0", Grade.FINE, "configured by a policy"),
        ("v1.22.0", Grade.FINE, "configured by a configuration file"),
        ("v1.28.3+vendor", Grade.FINE, "configuration"),
        ("v1.10.2", Grade.PROBLEM, "1.18 to 1.36"),
        ("v1.15.0", Grade.PROBLEM, "1.18 to 1.36"),
        ("v1.40.0", Grade.PROBLEM, "1.18 to 1.36"),
        ("unknown", Grade.WARNING, "not a version of Kubernetes"),
    ],
)
def test_the_version_of_the_cluster_is_known_or_not(version: str, grade: Grade, words: str) -> None:
    ((found, says),) = results(check_versions, Snapshot(version))
    assert found is grade
    assert words in says


def test_an_old_kubelet_takes_no_advice_and_equal_ones_are_one_line() -> None:
    many = [node(f"n{number}") for number in range(1, 6)]
    found = results(check_versions, Snapshot("v1.36.4", nodes=(*many, node("old", kubelet="v1.18.20"))))[1:]
    assert found[1] == (Grade.FINE, "kubelet v1.36.4 on n1, n2, n3 and 2 more")
    assert found[0][0] is Grade.WARNING
    assert "kubelet v1.18.20 on old" in found[0][1]


def test_versions_without_end_are_one_short_line() -> None:
    """A node writes them itself: what Python refuses to read as a number would end every check for everybody."""
    nodes = (node("odd", kubelet="v1." + "9" * 5_000, runtime="containerd://2." + "9" * 5_000),)
    snapshot = Snapshot("v1.36.4", nodes=nodes)
    for check in (check_versions, check_runtimes):
        says = [finding.message for finding in check(snapshot, SHIPPED)]
        assert "on odd" in says[-1]
        assert all(len(line) < 300 for line in says)


@pytest.mark.parametrize(
    ("runtime", "words", "step"),
    [
        ("docker://20.10.7", "docker 20.10.7 on n1 has no NRI", ""),
        ("containerd://1.6.20", "older than 1.7 and has no NRI", ""),
        ("containerd://1.7.35", "disabled by default", "disable = false"),
        ("containerd://2.0.14", "cannot refuse a container", ""),
        ("containerd://2.1.0", "cannot refuse a container", ""),
        ("containerd://2.2.0", "once its validator is enabled", "default_validator"),
        ("containerd://2.4.2", "once its validator is enabled", "default_validator"),
        ("cri-o://1.25.0", "older than 1.26", ""),
        ("cri-o://1.28.1", "disabled", "enable_nri = true"),
        ("cri-o://1.33.0", "cannot refuse a container", ""),
        ("cri-o://1.34.2", "once its validator is enabled", "default validator"),
        ("", "'' on n1 has no NRI", ""),
    ],
)
def test_each_runtime_delivers_as_its_version_can(runtime: str, words: str, step: str) -> None:
    (finding,) = check_runtimes(Snapshot("v1.36.4", nodes=(node("n1", runtime=runtime),)), SHIPPED)
    assert words in finding.message
    assert finding.grade in (Grade.FINE, Grade.NOTE)
    assert step in " ".join(finding.do)
    assert bool(step) == bool(finding.do)


@pytest.mark.parametrize(
    ("delivery", "insists", "grade", "words", "step"),
    [
        ("nri", True, Grade.FINE, "containerd 2.4.2 on n1 delivers cards by pod identity", ""),
        ("nri", False, Grade.WARNING, "validator is off", "validator"),
        ("device-plugin+nri", False, Grade.NOTE, "the device plugin interface delivers cards, and NRI corrects it", "validator"),
        ("device-plugin", False, Grade.NOTE, "the device plugin interface delivers cards", "validator"),
    ],
)
def test_what_an_agent_has_found_out_counts_more_than_the_runtimes_version(
    delivery: str, insists: bool, grade: Grade, words: str, step: str
) -> None:
    entry = KindEntry([], delivery=delivery, insists=insists)
    nodes = (node("n1", inventory_entries={"nvidia": entry}), node("n2"), node("n3", inventory_entries={}))
    without, finding = check_runtimes(Snapshot("v1.36.4", nodes=nodes), SHIPPED)
    assert "containerd 2.4.2 on n2, n3 can deliver" in without.message
    assert finding.grade is grade
    assert words in finding.message
    assert step in " ".join(finding.do)
    assert bool(step) == bool(finding.do)


def test_an_inventory_that_cannot_be_read_is_none() -> None:
    broken = msgspec.structs.replace(node("n1"), metadata=Metadata("n1", annotations={inventory.KEY: "x"}))
    (finding,) = check_runtimes(Snapshot("v1.36.4", nodes=(broken,)), SHIPPED)
    assert "once its validator is enabled" in finding.message


# Memory units: what an upgrade wants, against the pods that live.

GPU_MEM = "aliyun.com/gpu-mem"


def units(wanted: dict[str, str], *pods: PodWithCommands, **nodes: str) -> list[tuple[Grade, str]]:
    """The results for these wanted units, with nodes that count in these units now."""
    with_units = tuple(node(name, inventory_entries={"nvidia": KindEntry([], unit=unit)}) for name, unit in nodes.items())
    return results(partial(check_memory_units, units=wanted), Snapshot(nodes=with_units, pods=pods))


def test_a_unit_cannot_change_under_living_pods_who_are_named() -> None:
    pods = (
        pod("b", {GPU_MEM: 3}),
        pod("a", {GPU_MEM: "3"}),
        pod("elsewhere", {GPU_MEM: 3}, on="n2"),
        pod("waits", {GPU_MEM: 3}, on=""),
    )
    assert units({"nvidia": "MiB"}, *pods, n1="GiB", n2="MiB") == [
        (
            Grade.PROBLEM,
            "nvidia: the memory unit of n1 is 'GiB' and cannot become 'MiB' while pods have requested memory in the old one: "
            "default/a, default/b",
        )
    ]


def test_an_empty_unit_is_the_profiles_own() -> None:
    ((grade, says),) = units({"nvidia": ""}, pod("a", {GPU_MEM: 3}), n1="MiB")
    assert grade is Grade.PROBLEM
    assert "is 'MiB' and cannot become 'GiB'" in says
    assert units({"nvidia": ""}, pod("a", {GPU_MEM: 3}), n1="GiB") == [
        (Grade.FINE, "nvidia: no node uses another memory unit than 'GiB'")
    ]


@pytest.mark.parametrize("limits", [{"nvidia.com/gpu": 1}, {GPU_MEM: "0"}, {"baidu.com/xpu-mem": 8}, {}], ids=str)
def test_pods_that_asked_for_no_amount_of_memory_are_in_nobodys_way(limits: dict[str, str | int]) -> None:
    ((grade, says),) = units({"nvidia": "MiB"}, pod("a", limits), n1="GiB")
    assert (grade, "may become 'MiB'" in says) == (Grade.NOTE, True)


def test_a_unit_that_the_vendor_has_not_is_told_with_those_it_has() -> None:
    ((grade, says),) = units({"nvidia": "TiB"}, n1="GiB")
    assert (grade, says) == (Grade.PROBLEM, "nvidia: memory unit 'TiB' is not known; it must be one of GiB, MiB")


def test_what_was_not_seen_is_not_allowed() -> None:
    """Where nodes or pods could not be read, a wanted unit is refused; without a wanted unit there is no finding."""
    hidden = Snapshot(unread={"pods": "forbidden"})
    ((grade, says),) = results(partial(check_memory_units, units={"nvidia": "MiB"}), hidden)
    assert (grade, "pods could not be read" in says) == (Grade.PROBLEM, True)
    assert results(partial(check_memory_units, units={}), hidden) == []


def test_a_single_check_reads_no_more_than_it_needs() -> None:
    """The hook of `helm upgrade` may list nodes and pods, and nothing else."""
    assert checks.parts(checks.chosen(["memory-units"])) == {ClusterPart.NODES, ClusterPart.PODS}
    assert checks.parts(checks.chosen()) == set(ClusterPart)


def test_an_install_elsewhere_also_needs_the_namespace_where_agents_read_config_maps() -> None:
    def roles(namespace: str) -> list[tuple[str, str]]:
        return sorted((right.resource, right.namespace) for right in needed_rights(namespace) if right.resource == "roles")

    assert roles("kube-system") == [("roles", "kube-system")]
    assert roles("ml") == [("roles", "kube-system"), ("roles", "ml")]


def test_a_missing_right_is_a_problem_and_named() -> None:
    rights = dict.fromkeys(needed_rights("ml"), True)
    assert results(check_permissions, Snapshot("v1.36.4", rights=rights)) == [
        (Grade.FINE, f"you have all rights that an install needs ({len(rights)})")
    ]
    first, *_, last = rights
    ((grade, says),) = results(check_permissions, Snapshot("v1.36.4", rights={**rights, first: False, last: False}))
    assert (grade, says) == (
        Grade.PROBLEM,
        "you may not: create configmaps in namespace ml; patch nodes in the whole cluster",
    )


def test_a_static_pod_is_told_by_its_manifest_and_what_it_reads_already_is_kept() -> None:
    pods = (scheduler_pod("cp1"), scheduler_pod("cp2", "--policy-config-file=/etc/kubernetes/policy.json"))
    found = results(check_scheduler, Snapshot("v1.20.0", pods=pods))
    assert found[0] == (Grade.FINE, "kube-scheduler is a static pod on cp1, cp2")
    assert found[1][0] is Grade.NOTE
    assert "kube-system/kube-scheduler-cp2 has --policy-config-file=/etc/kubernetes/policy.json" in found[1][1]


@pytest.mark.parametrize(
    ("snapshot", "words", "step"),
    [
        (
            Snapshot("v1.30.0", nodes=(node("cp1"),), scheduler_holder="cp1_4f"),
            "runs on cp1, but not in a pod",
            "--target systemd",
        ),
        (
            Snapshot("v1.18.0", nodes=(node("cp1", labels={"node-role.kubernetes.io/master": ""}), node("w1"))),
            "runs on cp1, but not in a pod",
            "scheduler.mode=none",
        ),
        (
            Snapshot("v1.30.0", nodes=(node("w1"),), scheduler_holder="ip-10-0_4f"),
            "managed by somebody else",
            "scheduler.mode=second",
        ),
        (Snapshot("v1.30.0", nodes=(node("w1"),)), "managed by somebody else", "scheduler.mode=second"),
        (Snapshot("v1.30.0", pods=(scheduler_pod("cp1", static=False),)), "not a static pod", "scheduler.mode=second"),
        (
            Snapshot("v1.19.0", pods=(scheduler_pod("cp1", namespace="openshift-kube-scheduler"),)),
            "an OpenShift operator owns kube-scheduler",
            "scheduler.mode=second",
        ),
    ],
)
def test_a_scheduler_of_another_kind_is_told_in_another_way(snapshot: Snapshot, words: str, step: str) -> None:
    (finding,) = check_scheduler(snapshot, SHIPPED)
    assert finding.grade is Grade.NOTE
    assert words in finding.message
    assert step in " ".join(finding.do)


def test_nodes_that_share_are_named_and_those_that_could_are_told_of() -> None:
    nodes = (
        node("a", labels={"gpushare": "true"}),
        node("b", gives={"aliyun.com/gpu-mem": "184"}),
        node("c", gives={"streamcomputing.com/npu": "4"}),
        node("d", labels={"xpushare": "false"}),
    )
    assert results(check_labels, Snapshot("v1.36.4", nodes=nodes)) == [
        (Grade.FINE, "NVIDIA GPU (gpushare): a with gpushare=true"),
        (
            Grade.WARNING,
            "NVIDIA GPU (gpushare): b has cards but no label gpushare=true, so no agent runs there",
        ),
        (Grade.FINE, "Stream Computing NPU: c; it needs no label"),
    ]
    (finding,) = check_labels(Snapshot("v1.36.4", nodes=(node("n"),)), SHIPPED)
    assert finding.grade is Grade.NOTE
    assert "kubectl label node NODE enflame.com/gcushare=true" in finding.do


def test_a_node_port_of_somebody_else_is_a_warning_and_ours_is_not() -> None:
    taken = Snapshot("v1.36.4", services=(service("gpushare-schd-extender", 32766), service("other", 30000)))
    ((grade, says),) = results(check_ports, taken)
    assert grade is Grade.WARNING
    assert "Service kube-system/gpushare-schd-extender has node port 32766" in says
    ours = Snapshot("v1.36.4", services=(service("gpushare-schd-extender", 32766, labels=OURS),))
    assert results(check_ports, ours) == [(Grade.FINE, "the node ports 31868, 32766 are free")]


@pytest.mark.parametrize("system", known_originals.load().systems, ids=lambda system: str(system.name))
def test_each_original_is_found_by_its_names_and_the_way_from_it_is_told(system: known_originals.Original) -> None:
    names = [name.partition("/") for name in (*system.schedulers, *system.plugins)]
    snapshot = Snapshot(
        "v1.22.0",
        deployments=tuple(workload(name) for kind, _, name in names if kind == "Deployment"),
        daemon_sets=tuple(workload(name) for kind, _, name in names if kind == "DaemonSet"),
    )
    (finding,) = check_originals(snapshot, SHIPPED)
    assert finding.grade is Grade.WARNING
    assert f"{system.name} is installed" in finding.message
    for _, _, name in names:
        assert name in finding.message
        assert any(name in step for step in finding.do)
    assert all(any(url in step for step in finding.do) for url in system.urls)
    assert finding.do[-1].endswith(system.page)
    assert (ROOT / system.page).is_file()
    assert system.profile in SHIPPED


def test_an_original_that_rests_is_only_noted_and_a_half_stopped_one_is_not() -> None:
    """As the guides stop it: scaled to none, and sent to nodes that do not exist."""
    extender, plugin = workload("gpushare-schd-extender", replicas=0), workload("gpushare-device-plugin-ds")
    parked = workload("gpushare-device-plugin-ds", selector={"gpushare": "true", "moved-to": "accelshare"})
    ((grade, says),) = results(check_originals, Snapshot("v1.36.4", deployments=(extender,), daemon_sets=(parked,)))
    assert (grade, "gpushare is installed but stopped" in says) == (Grade.NOTE, True)
    (finding,) = check_originals(Snapshot("v1.36.4", deployments=(extender,), daemon_sets=(plugin,)), SHIPPED)
    assert finding.grade is Grade.WARNING
    assert [step for step in finding.do if step.startswith("stop it")] == [
        "stop it: kubectl patch daemonset/gpushare-device-plugin-ds -n kube-system --type=merge "
        """-p '{"spec":{"template":{"spec":{"nodeSelector":{"moved-to":"accelshare"}}}}}'"""
    ]


def test_a_scheduler_that_still_asks_an_original_is_told_of() -> None:
    """Though the original itself is gone: its guide never says how to put kube-scheduler back."""
    pods = (scheduler_pod("cp1", "--policy-config-file=/etc/kubernetes/scheduler-policy-config.json"),)
    (finding,) = check_originals(Snapshot("v1.20.0", pods=pods), SHIPPED)
    assert finding.grade is Grade.WARNING
    assert "reads /etc/kubernetes/scheduler-policy-config.json, where the guide of gpushare or xpushare puts" in finding.message
    assert "http://127.0.0.1:31868/xpushare-scheduler" in finding.do[0]


def test_the_same_names_of_ours_are_ours() -> None:
    """A preset gives our workloads the original's names, so that its users find them again."""
    snapshot = Snapshot("v1.36.4", deployments=(workload("gpushare-schd-extender", labels=OURS),))
    assert results(check_originals, snapshot) == [
        (Grade.NOTE, "accelshare is already installed: Deployment/gpushare-schd-extender in kube-system")
    ]


def test_a_vendors_own_plugin_is_a_neighbour_to_keep_apart() -> None:
    ((grade, says),) = results(
        check_originals, Snapshot("v1.36.4", daemon_sets=(workload("nvidia-device-plugin-daemonset", "gpu-operator"),))
    )
    assert grade is Grade.WARNING
    assert "DaemonSet/nvidia-device-plugin-daemonset in gpu-operator allocates whole nvidia cards" in says


def test_an_empty_cluster_has_no_original() -> None:
    assert results(check_originals, Snapshot("v1.36.4")) == [(Grade.FINE, "no other system that shares these cards is installed")]


def test_running_pods_are_counted_and_those_without_a_record_are_named() -> None:
    record = {"ALIYUN_COM_GPU_MEM_IDX": "0"}
    pods = (
        pod("recorded", {"aliyun.com/gpu-mem": 3}, annotations=record),
        pod("ours", {"aliyun.com/gpu-mem": "3"}, annotations={"accelshare.io/assignment": "{}"}),
        pod("silent", {"aliyun.com/gpu-mem": 3}),
        pod("waiting", {"aliyun.com/gpu-mem": 3}, on=""),
        pod("whole", {"nvidia.com/gpu": 1}),
        pod("none", {"cpu": 1}),
    )
    found = results(check_cards_in_use, Snapshot("v1.36.4", pods=pods))
    assert [grade for grade, _ in found] == [Grade.NOTE, Grade.WARNING, Grade.NOTE]
    assert ": 3 pods with slices;" in found[0][1]
    assert "default/silent hold slices, but no annotation says of which card" in found[1][1]
    assert ": 1 pod with whole cards;" in found[2][1]


def test_what_could_not_be_read_is_said_and_not_judged() -> None:
    hidden = dict.fromkeys(("nodes", "pods", "services", "deployments", "daemonsets"), "forbidden")
    found = checks.findings(checks.chosen(), Snapshot("v1.36.4", unread=hidden), SHIPPED)
    assert [finding.check for finding in found] == ["unread"] * 5 + ["versions"]
    assert {finding.grade for finding in checks.check_unread(Snapshot("v1.36.4", unread=hidden), SHIPPED)} == {Grade.WARNING}
