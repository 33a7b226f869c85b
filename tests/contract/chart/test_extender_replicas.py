"""How many extenders the chart runs; a single one has the same objects as before there were several."""

from typing import Any

import pytest
import yaml

from accelshare.extender.own_pod import RELEASE
from deploy.render import CHART
from tests.contract.chart.rendered_objects import Object, named, objects, one, preset, setting

NAME = "gpushare-schd-extender"
SEVERAL = [f"--lease={NAME}", f"--service={NAME}", "--pod=$(POD_NAMESPACE)/$(POD_NAME)"]


def deployment(things: list[Object]) -> Any:
    return one(things, "Deployment", NAME)["spec"]


def test_two_run_by_default_on_different_nodes_if_there_are_some() -> None:
    things = objects(*preset("gpushare"))
    spec = deployment(things)
    pod = spec["template"]["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert [argument for argument in pod["containers"][0]["args"] if argument in SEVERAL] == SEVERAL
    assert {entry["name"] for entry in pod["containers"][0]["env"]} == {"POD_NAMESPACE", "POD_NAME"}
    assert list(pod["affinity"]["podAntiAffinity"]) == ["preferredDuringSchedulingIgnoredDuringExecution"]
    assert NAME in named(things, "Role")


def test_the_service_selects_no_pod_because_the_holder_writes_its_endpoints() -> None:
    things = objects(*preset("gpushare"))
    selector, labels = one(things, "Service", NAME)["spec"]["selector"], deployment(things)["template"]["metadata"]["labels"]
    assert not selector.items() <= labels.items()
    assert deployment(things)["selector"]["matchLabels"].items() < selector.items()


def test_extenders_find_the_others_of_their_release_by_labels_that_the_chart_sets() -> None:
    labels = deployment(objects(*preset("gpushare")))["template"]["metadata"]["labels"]
    assert set(RELEASE) <= set(labels)


@pytest.mark.parametrize("arguments", [setting(extender__replicas=1), ["--kube-version=1.22.0"]], ids=["asked for", "1.22"])
def test_one_alone_has_no_lease_and_ends_before_the_next_starts(arguments: list[str]) -> None:
    things = objects(*preset("gpushare"), *arguments)
    spec = deployment(things)
    pod = spec["template"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert not [argument for argument in pod["containers"][0]["args"] if "lease" in argument or "--pod" in argument]
    assert "affinity" not in pod
    assert NAME not in named(things, "Role")
    assert one(things, "Service", NAME)["spec"]["selector"] == spec["selector"]["matchLabels"]


def test_an_affinity_of_your_own_replaces_the_default() -> None:
    own: Object = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
    pod = deployment(objects(*preset("gpushare"), *setting(extender__affinity=own)))["template"]["spec"]
    assert pod["affinity"] == own


def test_openshift_grants_addresses_of_pods_and_another_owner_of_endpoint_slices() -> None:
    for openshift in (True, False):
        role = one(objects(*preset("gpushare"), *setting(openshift__enabled=openshift)), "Role", NAME)
        resources = [resource for rule in role["rules"] for resource in rule["resources"]]
        assert ("endpointslices/restricted" in resources) == openshift
        assert any("delete" in rule["verbs"] for rule in role["rules"]) == openshift


def test_two_is_the_default_in_the_values() -> None:
    assert yaml.safe_load((CHART / "values.yaml").read_text())["extender"]["replicas"] == 2
