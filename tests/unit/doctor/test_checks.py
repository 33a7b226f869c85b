"""Each check names its trouble with the object and the fix, and says nothing about a healthy cluster."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import pytest

from accelshare.agent.metrics import AgentMetrics
from accelshare.doctor.checks import CHECKS, examine
from accelshare.doctor.findings import Finding
from accelshare.doctor.live_cluster import PODS, LiveCertificate
from accelshare.doctor.reading import series_of
from accelshare.extender.metrics import Metrics as ExtenderMetrics
from accelshare.kube.named_data import Place
from tests.unit.doctor.builders import (
    NAMESPACE,
    NOW,
    Objects,
    asking,
    inventory,
    lease,
    node,
    part_pod,
    scheduler,
    workload,
)

STATE = Place("ConfigMap", NAMESPACE, "accelshare-scheduler-config")
SECOND = Place("ConfigMap", NAMESPACE, "accelshare-scheduler")


def record(index: int, card_id: str, units: int = 4) -> dict[str, str]:
    return {"accelshare.io/assignment": json.dumps({"nvidia": [{"index": index, "id": card_id, "units": units}]})}


def no_extender(objects: Objects) -> None:
    objects.pods[0] = part_pod("extender-1", "extender", ready=False)


def two_extenders(objects: Objects) -> None:
    objects.deployments = [workload("accelshare-extender", "extender", replicas=2)]


def lease_does_not_exist(objects: Objects) -> None:
    two_extenders(objects)
    objects.pods[0] = part_pod("extender-1", "extender", words=["--lease=accelshare-extender"])


def no_agent(objects: Objects) -> None:
    objects.pods.remove(objects.pod("agent-1"))


def agent_not_ready(objects: Objects) -> None:
    no_agent(objects)
    objects.pods.append(part_pod("agent-1", "agent", labels={"accelshare.io/agent": "true"}, ready=False))


def unreadable_inventory(objects: Objects) -> None:
    objects.nodes = [node(entries="{]")]


def paused_delivery(objects: Objects) -> None:
    objects.nodes = [node(entries=inventory(delivers=False))]


def lost_card(objects: Objects) -> None:
    """Card 0 is gone; card 1 is still there."""
    cards = [{"index": 1, "size": 16, "id": "GPU-1"}]
    objects.nodes = [node(entries=inventory(cards=cards))]
    objects.pods.append(asking("train", on="n1", annotations=record(0, "GPU-0")))


def corrected(objects: Objects) -> None:
    corrections = {"uid-train": json.dumps({"nvidia": [{"index": 1, "id": "GPU-1", "units": 4}]})}
    objects.nodes[0]["metadata"]["annotations"]["accelshare.io/corrected-assignments"] = json.dumps(corrections)
    objects.pods.append(asking("train", on="n1", annotations=record(0, "GPU-0")))


def oversold(objects: Objects) -> None:
    objects.pods += [asking(name, 12, on="n1", annotations=record(0, "GPU-0", 12)) for name in ("a", "b")]


def scheduler_not_configured(objects: Objects) -> None:
    objects.pods[3] = scheduler(configured=False)


def scheduler_without_manager(objects: Objects) -> None:
    scheduler_not_configured(objects)
    objects.daemon_sets = objects.daemon_sets[:1]
    objects.pods.remove(objects.pod("manager-1"))


def manager_failed(objects: Objects) -> None:
    objects.config_maps = {STATE: {"wanted": "applied", "node.n1": "failed: no such file"}}


def dead_address(objects: Objects) -> None:
    message = 'Post "https://10.96.0.9:12345/accelshare/filter": dial tcp 10.96.0.9:12345: connect: connection refused'
    objects.pods.append(asking("waits", message=message))


def second_scheduler_calls_nobody(objects: Objects) -> None:
    objects.deployments.append(workload("accelshare-scheduler", "second-scheduler"))
    objects.pods.append(part_pod("second-1", "second-scheduler", image="kube-scheduler"))
    objects.config_maps = {SECOND: {"config.yaml": "extenders:\n- urlPrefix: https://gone.kube-system.svc:12345/accelshare\n"}}


def service_with_another_port(objects: Objects) -> None:
    objects.services[0]["spec"]["ports"] = [{"port": 80}]


def mixed_versions(objects: Objects) -> None:
    objects.pods[2] = part_pod("manager-1", "scheduler-manager", image="accelshare:0.1")


def validator_off(objects: Objects) -> None:
    objects.nodes = [node(entries=inventory(insists=False, delivery="device-plugin"))]


def tenant_agent_label(objects: Objects) -> None:
    objects.pods.append(asking("liar", on="n1", labels={"accelshare.io/agent": "true"}, annotations=record(0, "GPU-0")))


def tenant_behind_service(objects: Objects) -> None:
    objects.pods.append(part_pod("liar", "extender", account="default", image="accelshare:0.2"))


def clock_ahead(objects: Objects) -> None:
    objects.leases = [lease("n1", renewed="2026-05-01T11:00:30.123456Z", written="2026-05-01T11:00:00Z")]


def waits_for_another_scheduler(objects: Objects) -> None:
    objects.pods.append(asking("waits", message=None, spec={"schedulerName": "nobody"}))


def waits_though_it_fits(objects: Objects) -> None:
    objects.pods.append(asking("waits"))


def waits_for_cards_of_nobody(objects: Objects) -> None:
    resources = {"limits": {"baidu.com/xpu-mem": "100"}}
    objects.pods.append(asking("waits", spec={"containers": [{"name": "main", "resources": resources}]}))


def cards_without_label(objects: Objects) -> None:
    objects.nodes.append(node("n2", entries="{}", labels={"gpushare": "no"}))
    del objects.nodes[1]["metadata"]["annotations"]
    objects.nodes[1]["status"]["allocatable"]["aliyun.com/gpu-mem"] = "16"
    objects.nodes[1]["status"]["allocatable"]["aliyun.com/gpu-count"] = "1"


def original_installed(objects: Objects) -> None:
    objects.deployments.append({"metadata": {"name": "gpushare-schd-extender", "namespace": NAMESPACE}, "spec": {}})


def no_record(objects: Objects) -> None:
    objects.pods.append(asking("train", on="n1"))


def old_kubelet(objects: Objects) -> None:
    objects.nodes[0]["status"]["nodeInfo"]["kubeletVersion"] = "v1.18.0"


CASES: list[tuple[Callable[[Objects], None], str, str, str]] = [
    (no_extender, "extender", "deployment/kube-system/accelshare-extender", "kubectl describe pods -n kube-system"),
    (two_extenders, "leases", "deployment/kube-system/accelshare-extender", "--replicas=1"),
    (lease_does_not_exist, "leases", "deployment/kube-system/accelshare-extender", "--replicas=1"),
    (no_agent, "agents", "node/n1", "kubectl describe daemonset/accelshare-agent -n kube-system"),
    (agent_not_ready, "agents", "node/n1", "kubectl logs -n kube-system agent-1"),
    (unreadable_inventory, "inventories", "node/n1", "kubectl get node n1"),
    (paused_delivery, "inventories", "node/n1", "kubectl logs -n kube-system agent-1"),
    (lost_card, "drift", "pod/ml/train", "kubectl delete pod train -n ml"),
    (corrected, "drift", "pod/ml/train", "kubectl delete pod train -n ml"),
    (oversold, "oversold", "card/n1/nvidia/0", "accelshare inspect n1"),
    (scheduler_not_configured, "scheduler", "pod/kube-system/kube-scheduler-n1", "scheduler.mode=manager"),
    (scheduler_without_manager, "scheduler", "pod/kube-system/kube-scheduler-n1", "scheduler.mode=manager"),
    (manager_failed, "scheduler", "node/n1", "accelshare scheduler-config status"),
    (dead_address, "scheduler-address", "https://10.96.0.9:12345/accelshare", "kube-system/accelshare-extender"),
    (service_with_another_port, "scheduler-address", "daemonset of managers in kube-system", "kubectl get service"),
    (mixed_versions, "versions", "namespace/kube-system", "kubectl rollout status"),
    (validator_off, "validator", "node/n1", "accelshare runtime-config apply"),
    (tenant_agent_label, "tenant-labels", "pod/ml/liar", "kubectl label pod liar -n ml accelshare.io/agent-"),
    (tenant_behind_service, "tenant-labels", "pod/kube-system/liar", "kubectl label pod liar -n kube-system"),
    (clock_ahead, "clocks", "node/n1", "timedatectl"),
    (waits_for_another_scheduler, "waiting-pods", "pod/ml/waits", "schedulerName"),
    (waits_though_it_fits, "waiting-pods", "pod/ml/waits", "accelshare explain waits -n ml"),
    (waits_for_cards_of_nobody, "waiting-pods", "pod/ml/waits", "label a node"),
    (cards_without_label, "labels", "cluster", "kubectl label node n2 gpushare=true"),
    (original_installed, "originals", "cluster", "kubectl scale deployment/gpushare-schd-extender"),
    (no_record, "cards-in-use", "cluster", "delete them"),
    (old_kubelet, "kubernetes", "cluster", "prefer kubelet 1.19"),
]


def test_a_healthy_cluster_has_no_findings() -> None:
    objects = Objects()
    objects.pods.append(asking("train", on="n1", annotations=record(0, "GPU-0")))
    objects.pods.append(asking("large", 400))  # it waits because it is too large for any card
    objects.pods.append(asking("new", created=NOW.isoformat()))  # it has only just been created
    objects.pods.append(asking("gated", spec={"schedulingGates": [{"name": "later"}]}))
    ok = LiveCertificate(f"{NAMESPACE}/accelshare-ca", NOW - timedelta(days=1), NOW + timedelta(days=80))
    pages = {f"{NAMESPACE}/extender-1": {'accelshare_watch_up{what="pods"}': 1.0}}
    assert examine(objects.live(certificates=(ok,), pages=pages)) == []


@pytest.mark.parametrize(("change", "check", "name", "fix"), CASES, ids=lambda value: getattr(value, "__name__", None))
def test_the_check_names_what_is_wrong(change: Callable[[Objects], None], check: str, name: str, fix: str) -> None:
    objects = Objects()
    change(objects)
    found = [each for each in examine(objects.live()) if each.check == check]
    assert [each.object for each in found] == [name]
    assert fix in found[0].fix
    assert found[0].what


def test_every_check_has_a_case() -> None:
    assert {check for _, check, _, _ in CASES} | {"certificates", "watches"} == set(CHECKS)


def test_a_second_scheduler_that_calls_no_service_is_named() -> None:
    objects = Objects()
    second_scheduler_calls_nobody(objects)
    objects.daemon_sets = objects.daemon_sets[:1]
    objects.pods.remove(objects.pod("manager-1"))
    (found,) = examine(objects.live())
    assert (found.check, found.object) == ("scheduler-address", "deployment/kube-system/accelshare-scheduler")
    assert "kube-system/gone" in found.what


def test_a_pod_that_uses_the_first_scheduler_beside_a_second_one_is_named() -> None:
    """Only the second kube-scheduler calls the extender."""
    objects = Objects()
    objects.deployments.append(workload("accelshare-scheduler", "second-scheduler"))
    objects.pods.append(part_pod("second-1", "second-scheduler", image="kube-scheduler"))
    objects.pods.append(asking("waits"))
    found = [each for each in examine(objects.live()) if each.check == "waiting-pods"]
    assert [each.fix for each in found] == ["set schedulerName: accelshare-scheduler in its template"]


@pytest.mark.parametrize(
    ("spec", "node_spec"),
    [
        ({"nodeSelector": {"zone": "a"}}, {}),
        ({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"x": 1}}}}, {}),
        ({"topologySpreadConstraints": [{"maxSkew": 1}]}, {}),
        ({}, {"unschedulable": True}),
        ({}, {"taints": [{"key": "a", "effect": "NoSchedule"}]}),
    ],
    ids=str,
)
def test_a_pod_that_other_rules_keep_away_is_not_said_to_fit(spec: dict[str, Any], node_spec: dict[str, Any]) -> None:
    objects = Objects()
    objects.nodes[0]["spec"] = node_spec
    objects.pods.append(asking("waits", spec=spec))
    assert examine(objects.live()) == []


def test_certificates_that_ended_or_were_not_renewed_are_named() -> None:
    places = [f"{NAMESPACE}/{name}" for name in ("ended", "near", "fine", "broken")]
    days = [-1, 10, 40]
    made = NOW - timedelta(days=80)
    certificates = [LiveCertificate(place, made, NOW + timedelta(days=day)) for place, day in zip(places, days, strict=False)]
    found = examine(
        Objects().live(certificates=(*certificates, LiveCertificate(places[3], problem="the certificate cannot be read")))
    )
    assert [(each.object, each.grade.value) for each in found] == [
        (f"secret/{NAMESPACE}/ended", "problem"),
        (f"secret/{NAMESPACE}/broken", "problem"),
        (f"secret/{NAMESPACE}/near", "warning"),
    ]
    assert {each.fix for each in found} == {"accelshare certificates ensure --namespace kube-system"}


@pytest.mark.parametrize(
    ("pod", "series", "value"),
    [
        ("extender-1", 'accelshare_watch_up{what="pods"}', 0.0),
        ("extender-1", 'accelshare_watch_silent_seconds{what="nodes"}', 400.0),
        ("agent-1", "accelshare_agent_watch_current", 0.0),
    ],
)
def test_a_stale_watch_is_named(pod: str, series: str, value: float) -> None:
    (found,) = examine(Objects().live(pages={f"{NAMESPACE}/{pod}": {series: value}}))
    assert (found.check, found.object) == ("watches", f"pod/{NAMESPACE}/{pod}")
    assert f"kubectl logs -n {NAMESPACE} {pod}" in found.fix


@dataclass
class StaleWatch:
    """Of the extender, as far as its metrics ask for it."""

    watching: bool = False
    silent_s: float = 400.0


def test_stale_watches_are_named_by_the_pages_that_extender_and_agent_serve() -> None:
    """The names of series are those of the product."""
    extender, agent = ExtenderMetrics(), AgentMetrics()
    extender.watches("pods", cast(Any, StaleWatch()))
    agent.watch_current.set(0)
    pages = {f"{NAMESPACE}/extender-1": series_of(extender.text()), f"{NAMESPACE}/agent-1": series_of(agent.text())}
    found = examine(Objects().live(pages=pages))
    assert {(each.check, each.object) for each in found} == {
        ("watches", f"pod/{NAMESPACE}/extender-1"),
        ("watches", f"pod/{NAMESPACE}/agent-1"),
    }


def test_what_could_not_be_read_is_not_judged() -> None:
    """Without pods, no node has an agent in sight; that must not look like a missing agent."""
    objects = Objects()
    objects.pods = []
    assert examine(objects.live(unread={PODS: "403"})) == []
    assert [each.check for each in examine(objects.live())][:1] == ["extender"]


def test_problems_come_first() -> None:
    objects = Objects()
    validator_off(objects)
    no_agent(objects)
    grades = [each.grade.value for each in examine(objects.live())]
    assert grades == sorted(grades, key=["problem", "warning", "note"].index)
    assert len(set(grades)) > 1


def test_many_waiting_pods_are_counted() -> None:
    objects = Objects()
    objects.pods += [asking(f"waits-{number}") for number in range(30)]
    found: list[Finding] = examine(objects.live())
    assert len(found) == 21
    assert "10 more of the first 30 waiting pods" in found[-1].what
