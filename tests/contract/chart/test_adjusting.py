"""Values with which a site adjusts the chart's objects, and installs without hooks."""

import pytest
import yaml

from deploy.render import PRESETS, documents, template
from tests.contract.chart.rendered_objects import SECOND, Object, containers, hook, named, objects, one, pods, preset, setting

AGENT = "gpushare-device-plugin-ds"
EXTENDER = "gpushare-schd-extender"


def test_one_registry_is_put_before_every_image() -> None:
    things = objects(*preset("gpushare"), *SECOND, "--set=global.imageRegistry=registry.example/site")
    images = {container["image"] for _, pod in pods(things) for container in containers(pod)}
    assert {image.rpartition(":")[0] for image in images} == {
        "registry.example/site/accelshare",
        "registry.example/site/kube-scheduler",
    }


def test_a_digest_is_kept_behind_the_registry() -> None:
    digest = "sha256:" + "0" * 64
    things = objects(*preset("stc"), *setting(image__digest=digest), "--set=global.imageRegistry=registry.example/")
    assert {c["image"] for _, pod in pods(things) for c in containers(pod)} == {f"registry.example/accelshare@{digest}"}


def test_a_name_replaces_ours_in_the_names_of_all_parts() -> None:
    on = [*SECOND, "--set=vendors.nvidia.enabled=true"]
    things = objects(*on, "--set=nameOverride=other", "--set=fullnameOverride=cards")
    assert set(named(things, "Deployment") + named(things, "DaemonSet")) == {"cards-extender", "cards-scheduler", "cards-agent"}
    assert "cards-scheduler-manager" in named(objects(on[-1], "--set=nameOverride=cards"), "DaemonSet")
    kept = objects(*preset("gpushare"), "--set=nameOverride=cards")
    assert set(named(kept, "DaemonSet")) == {AGENT, "cards-scheduler-manager"}, "a preset's own names stay"


def test_affinity_is_added_to_the_nodes_of_the_vendors() -> None:
    avoid: Object = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    without = one(objects(*preset("gpushare")), "DaemonSet", AGENT)["spec"]["template"]["spec"]["affinity"]
    agent = one(objects(*preset("gpushare"), *setting(agent__affinity=avoid)), "DaemonSet", AGENT)
    assert agent["spec"]["template"]["spec"]["affinity"] == without | avoid


def test_variables_and_security_contexts_are_added_to_what_the_chart_has() -> None:
    variable = {"name": "HTTPS_PROXY", "value": "http://proxy.example"}
    changes = {"extraEnv": [variable], "securityContext": {"runAsUser": 7}, "podSecurityContext": {"fsGroup": 7}}
    values = {f"{part}__{key}": value for part in ("agent", "extender") for key, value in changes.items()}
    things = objects(*preset("gpushare"), *setting(**values))
    for kind, name in (("DaemonSet", AGENT), ("Deployment", EXTENDER)):
        pod = one(things, kind, name)["spec"]["template"]["spec"]
        before = one(objects(*preset("gpushare")), kind, name)["spec"]["template"]["spec"]
        (container,), (former,) = pod["containers"], before["containers"]
        assert container["env"] == [*former.get("env", []), variable]
        assert container["securityContext"] == former["securityContext"] | {"runAsUser": 7}
        assert pod["securityContext"] == before["securityContext"] | {"fsGroup": 7}


def test_service_accounts_get_the_annotations_of_their_part() -> None:
    parts = {"extender": EXTENDER, "agent": AGENT, "manager": "accelshare-scheduler-manager"}
    values = {f"{part}__serviceAccountAnnotations": {"site.example/role": part} for part in parts}
    things = objects(*preset("gpushare"), *setting(**values))
    for part, name in parts.items():
        assert one(things, "ServiceAccount", name)["metadata"]["annotations"] == {"site.example/role": part}


def test_without_hooks_there_is_none_and_no_object_that_only_hooks_use() -> None:
    for arguments in (preset(*PRESETS.values()), [*preset("gpushare"), *SECOND]):
        things = objects(*arguments, *setting(hooks__enabled=False, tests__enabled=False))
        assert [thing["metadata"]["name"] for thing in things if hook(thing)] == []
        assert not {"accelshare-uninstall", "accelshare-memory-units"} & {thing["metadata"]["name"] for thing in things}


def test_without_hooks_the_managers_create_the_certificates_or_an_ordinary_job_does() -> None:
    off = setting(hooks__enabled=False)
    assert named(objects(*preset("gpushare"), *off), "Job") == []
    (first,) = named(objects(*preset("gpushare"), *SECOND, *off), "Job")
    (other,) = named(objects(*preset("gpushare"), *SECOND, *off, *setting(image__tag="2")), "Job")
    assert first.startswith("accelshare-certificates-")
    assert first != other, "a Job cannot be changed, so another image needs another Job"


def test_the_uninstall_can_be_rendered_alone_by_a_site_without_hooks() -> None:
    """As docs/how-to/gitops.md does it; the plain manifests have the same Job, which other tests run."""
    alone = template("--set", "vendors.nvidia.enabled=true", "--show-only", "templates/hooks/uninstall.yaml")
    things = [yaml.safe_load(document.text) for document in documents(alone)]
    job = one(things, "Job", "accelshare-uninstall")
    assert job["spec"]["template"]["spec"]["serviceAccountName"] in named(things, "ServiceAccount")


def test_labels_of_the_operator_reach_its_objects_and_the_sidecars_label_the_dashboard() -> None:
    labels = {"release": "kube-prometheus-stack"}
    on = setting(metrics__podMonitor=True, metrics__prometheusRule=True, metrics__grafanaDashboard=True)
    things = objects(*preset("gpushare"), *on, *setting(metrics__operatorLabels=labels, metrics__interval="45s"))
    for kind in ("PodMonitor", "PrometheusRule"):
        assert labels.items() <= one(things, kind)["metadata"]["labels"].items()
    assert one(things, "PodMonitor")["spec"]["podMetricsEndpoints"][0]["interval"] == "45s"
    dashboard = one(things, "ConfigMap", "accelshare-grafana-dashboard")
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"


@pytest.mark.parametrize(
    ("address", "begins"),
    [
        (None, "docs/how-to/runbooks.md#"),
        ("https://docs.example/docs/how-to/runbooks.html", "https://docs.example/docs/how-to/runbooks.html#"),
    ],
)
def test_alerts_link_to_the_runbooks_where_people_read_them(address: str | None, begins: str) -> None:
    """None is a value that `helm upgrade --reuse-values` does not bring."""
    things = objects(*preset("gpushare"), *setting(metrics__prometheusRule=True, metrics__runbooksUrl=address))
    rules = [rule for group in one(things, "PrometheusRule")["spec"]["groups"] for rule in group["rules"] if "alert" in rule]
    assert [rule["annotations"]["runbook_url"] for rule in rules] == [begins + rule["alert"].lower() for rule in rules]
