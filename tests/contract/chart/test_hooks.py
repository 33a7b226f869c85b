"""Hook Jobs before an install and an uninstall, and what an upgrade does not change."""

import json
import re

from deploy.render import CHART
from tests.contract.chart.rendered_objects import ALL, EVERYTHING, SECOND, containers, hook, named, objects, one, preset, setting


def test_hooks_come_with_their_rights_before_them_and_go_after_them() -> None:
    things = objects(*EVERYTHING)
    for job in [thing for thing in things if thing["kind"] == "Job"]:
        account = job["spec"]["template"]["spec"]["serviceAccountName"]
        moment, weight = hook(job), int(job["metadata"]["annotations"]["helm.sh/hook-weight"])
        rights = [t for t in things if t["metadata"]["name"] == account and t["kind"] != "Job"]
        assert {"ServiceAccount"} < {right["kind"] for right in rights}
        for right in rights:
            assert hook(right) == moment
            assert int(right["metadata"]["annotations"]["helm.sh/hook-weight"]) < weight
            assert "hook-succeeded" in right["metadata"]["annotations"]["helm.sh/hook-delete-policy"]


def test_the_uninstall_puts_schedulers_back_first() -> None:
    job = one(objects(*preset("gpushare")), "Job", "accelshare-uninstall")
    assert [c["name"] for c in containers(job["spec"]["template"]["spec"])] == [
        "restore-schedulers",
        "remove-certificates",
        "remove-traces",
        "remove-labels",
    ]


def test_memory_units_are_looked_at_before_an_upgrade_does_anything() -> None:
    """Also before a rollback, which may bring an old unit back; with the units that the agents will get."""
    things = objects(*EVERYTHING, *setting(vendors__enflame__memoryUnit="0.1", vendors__nvidia__memoryUnit=""))
    job = one(things, "Job", "accelshare-memory-units")
    assert hook(job) == "pre-upgrade,pre-rollback"
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["args"] == [
        "preflight",
        "--only=memory-units",
        "--memory-unit=enflame=0.1",
        "--memory-unit=kunlun=MiB",
        "--memory-unit=nvidia=",
    ]
    others = [t for t in things if "pre-upgrade" in hook(t) and t["metadata"]["name"] != "accelshare-memory-units"]
    assert others
    weight = "helm.sh/hook-weight"
    assert all(int(job["metadata"]["annotations"][weight]) < int(t["metadata"]["annotations"][weight]) for t in others)
    assert one(things, "ClusterRole", "accelshare-memory-units")["rules"] == [
        {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list"]}
    ]


def test_where_no_card_is_sliced_there_is_no_unit_to_look_at() -> None:
    assert "accelshare-memory-units" not in named(objects(*preset("stc")), "Job")


def test_units_are_judged_by_the_profiles_that_are_to_come() -> None:
    """The ConfigMap of the release before is still in place, or none is, when the hook runs."""
    things = objects(*preset("gpushare"), *setting(profiles={"mine.toml": 'name = "mine"'}))
    pod = one(things, "Job", "accelshare-memory-units")["spec"]["template"]["spec"]
    assert {"name": "profiles", "configMap": {"name": "accelshare-memory-units"}} in pod["volumes"]
    theirs, ours = (one(things, "ConfigMap", f"accelshare-{name}") for name in ("profiles", "memory-units"))
    assert ours["data"] == theirs["data"]
    assert hook(ours) == "pre-upgrade,pre-rollback"


def test_a_job_that_fails_lets_helm_print_its_words() -> None:
    for job in [thing for thing in objects(*EVERYTHING) if thing["kind"] == "Job"]:
        assert job["metadata"]["annotations"]["helm.sh/hook-output-log-policy"] == "hook-failed"


def test_named_nodes_are_labelled_for_each_vendor_once() -> None:
    things = objects(*preset("gpushare", "xpushare"), *setting(nodes__names=["n1", "n2"]))
    job = one(things, "Job", "accelshare-node-labels")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["node-labels", "apply", "--label=xpushare=true", "--label=gpushare=true", "n1", "n2"]
    assert "accelshare-node-labels" not in named(objects(*preset("gpushare")), "Job")


def test_an_upgrade_does_not_change_what_workloads_are_found_by() -> None:
    """A changed selector cannot be applied, and a changed pod template is the only thing that starts pods anew."""
    old = objects(*preset("gpushare"))
    new = objects(*preset("gpushare"), *setting(image__tag="9.9.9", vendors__nvidia__memoryUnit="MiB", extender__policy="spread"))
    for kind, name in (("Deployment", "gpushare-schd-extender"), ("DaemonSet", "gpushare-device-plugin-ds")):
        assert one(old, kind, name)["spec"]["selector"] == one(new, kind, name)["spec"]["selector"]


def test_certificates_are_renewed_without_a_manager_too() -> None:
    assert named(objects(*preset("gpushare")), "CronJob") == []
    renewal = one(objects(*preset("gpushare"), *SECOND), "CronJob")
    job = one(objects(*preset("gpushare"), *SECOND), "Job", "accelshare-certificates")
    args = renewal["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert args == job["spec"]["template"]["spec"]["containers"][0]["args"]


def test_the_shortest_certificate_is_looked_at_in_its_last_third() -> None:
    """tls.leafDays may be 1: then eight hours are left when it is due."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    shortest_h = 24 * schema["properties"]["tls"]["properties"]["leafDays"]["minimum"]
    schedule = one(objects(*preset("gpushare"), *SECOND), "CronJob")["spec"]["schedule"]
    every_h = re.fullmatch(r"\d+ \*/(\d+) \* \* \*", schedule)
    assert every_h is not None, schedule
    assert int(every_h[1]) < shortest_h / 3


def test_helm_test_asks_for_one_unit_or_one_card() -> None:
    things = objects(*preset(*ALL))
    asked = {
        pod["metadata"]["name"]: {k: v for k, v in pod["spec"]["containers"][0]["resources"]["limits"].items() if "/" in k}
        for pod in things
        if pod["kind"] == "Pod"
    }
    assert asked == {
        "accelshare-test-nvidia": {"aliyun.com/gpu-mem": 1},
        "accelshare-test-kunlun": {"baidu.com/xpu-mem": 1},
        "accelshare-test-enflame": {"enflame.com/gcu-memory": 1},
        "accelshare-test-stream": {"streamcomputing.com/npu": 1},
    }
