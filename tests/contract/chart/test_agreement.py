"""The chart agrees with the code, and the plain manifests agree with the chart."""

from collections.abc import Iterator

import click
import pytest
import yaml

from accelshare.cli import accelshare
from accelshare.extender.serving import STOP_S
from accelshare.install.scheduler import content
from accelshare.install.scheduler.desired_config import HTTP2_VARIABLES, DesiredConfig, SchedulerSettings, TlsFiles
from accelshare.install.scheduler.release import dialect, parse
from accelshare.vendors import catalog
from accelshare.vendors.profile import Profile
from accelshare.wire.pods import AGENT_LABEL
from deploy.render import CHART, MANIFESTS, PRESETS, ROOT, files
from tests.contract.chart.rendered_objects import ALL, MIXTURES, SECOND, containers, objects, one, pods, preset, setting

SHIPPED = {profile.name: profile for profile in catalog.load([])}
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())


def calls(arguments: list[str]) -> Iterator[tuple[str, list[str]]]:
    for title, pod in pods(objects(*arguments)):
        for container in containers(pod):
            if "args" in container and "command" not in container:
                yield f"{title}/{container['name']}", [str(argument) for argument in container["args"]]


@pytest.mark.parametrize("arguments", MIXTURES, ids=" ".join)
def test_every_container_calls_a_command_with_flags_that_it_has(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsed by the program's own parser. Files that exist only in the container are not looked for."""
    found = list(calls(arguments))
    assert found
    for title, args in found:
        command: click.Command = accelshare
        left = list(args)
        while isinstance(command, click.Group):
            following = command.get_command(click.Context(command), left.pop(0))
            assert following is not None, f"{title}: {args}"
            command = following
        for option in command.params:
            if isinstance(option.type, click.Path):
                monkeypatch.setattr(option.type, "exists", False)
        command.make_context(title, left)


@pytest.mark.parametrize("arguments", MIXTURES, ids=" ".join)
def test_every_argument_is_text(arguments: list[str]) -> None:
    """`--vendor: x` or a bare number in a list of arguments is refused by the API server, late."""
    for title, pod in pods(objects(*arguments)):
        for container in containers(pod):
            assert all(isinstance(word, str) for word in [*container.get("args", []), *container.get("command", [])]), title


@pytest.mark.parametrize("value", ["", "preferred", "required"])
def test_the_extender_gets_the_default_of_enforcement(value: str) -> None:
    arguments = [*preset("gpushare"), *setting(extender__defaultEnforcement=value)]
    (args,) = [args for title, args in calls(arguments) if title == "Deployment/gpushare-schd-extender/extender"]
    assert [arg for arg in args if arg.startswith("--default-enforcement")] == (
        [f"--default-enforcement={value}"] if value else []
    )


@pytest.mark.parametrize(
    ("values", "version", "offered"),
    [
        ({}, "1.36.4", True),
        ({}, "1.20.15", True),
        ({}, "1.19.16", False),
        ({"scheduler__mode": "second"}, "1.36.4", True),
        ({"scheduler__mode": "none"}, "1.36.4", False),
        ({"scheduler__mode": "none", "extender__http2": True}, "1.36.4", True),
        ({"extender__http2": False}, "1.36.4", False),
        ({"tls__enabled": False}, "1.36.4", False),
    ],
)
def test_http2_is_offered_where_the_chart_sets_the_variables_for_it_or_by_choice(
    values: dict[str, object], version: str, offered: bool
) -> None:
    (extender,) = [
        pod["containers"][0]
        for title, pod in pods(objects(*preset("gpushare"), *setting(**values), version=version))
        if title == "Deployment/gpushare-schd-extender"
    ]
    assert ("--http2" in extender["args"]) == offered


def test_the_second_scheduler_has_the_variables_for_http2_with_tls() -> None:
    for secure in (True, False):
        things = objects(*preset("gpushare"), *SECOND, *setting(tls__enabled=secure))
        (container,) = one(things, "Deployment", "accelshare-scheduler")["spec"]["template"]["spec"]["containers"]
        variables = {variable["name"]: variable["value"] for variable in container.get("env", [])}
        assert variables == (HTTP2_VARIABLES if secure else {})


def test_the_extender_has_the_time_to_leave_that_it_takes() -> None:
    """kubelet must not kill it while it waits for binds in doubt."""
    (pod,) = [spec for title, spec in pods(objects(*preset("gpushare"))) if title == "Deployment/gpushare-schd-extender"]
    assert pod["terminationGracePeriodSeconds"] >= STOP_S + 2


def test_the_rights_are_those_of_the_plain_files() -> None:
    things = objects(*preset("gpushare"))
    for part, name in (("extender", "gpushare-schd-extender"), ("agent", "gpushare-device-plugin-ds")):
        text = (ROOT / f"deploy/{part}-rbac.yaml").read_text().replace(f"accelshare-{part}", name)
        plain = list(yaml.safe_load_all(text))
        for kind in {document["kind"] for document in plain} & {"Role", "ClusterRole"}:
            role, chart = one(plain, kind), one(things, kind, name)
            assert chart["rules"] == role["rules"]
            assert chart["metadata"].get("namespace") == role["metadata"].get("namespace")


@pytest.mark.parametrize("profile", SHIPPED.values(), ids=lambda profile: profile.name)
def test_a_vendors_values_are_its_profiles(profile: Profile) -> None:
    values = VALUES["vendors"][profile.name]
    assert values["nodeLabel"] == ("=".join(profile.node_label) if profile.node_label else "")
    resources = {"memory": profile.resources.memory, "whole": profile.resources.whole}
    assert values["resources"] == {kind: name for kind, name in resources.items() if name}
    keys = (getattr(profile.annotations, field) for field in type(profile.annotations).__struct_fields__)
    assert values["recordAnnotations"] == [key for key in keys if key is not None]
    assert values["unhealthyNamespace"] == (profile.unhealthy.namespace if profile.unhealthy else "")
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())["properties"]["vendors"]["properties"][profile.name]
    allowed = schema["properties"].get("memoryUnit", {}).get("enum", [])
    units = set(profile.unit.mib) if profile.resources.memory else set()
    assert {str(unit) for unit in allowed if unit != ""} == units


def test_every_shipped_profile_can_be_switched_on_and_none_is() -> None:
    assert set(VALUES["vendors"]) == set(SHIPPED) >= set(PRESETS)
    assert not any(vendor["enabled"] for vendor in VALUES["vendors"].values())


@pytest.mark.parametrize("vendor", ["nvidia", "kunlun"])
def test_node_ports_are_the_profiles(vendor: str) -> None:
    assert one(objects(*preset(PRESETS[vendor])), "Service")["spec"]["ports"][0]["nodePort"] == SHIPPED[vendor].http.node_port


def test_agents_have_the_label_that_the_extender_watches() -> None:
    agent = one(objects(*preset("stc")), "DaemonSet", "stc-device-plugin-daemonset")
    assert agent["spec"]["template"]["metadata"]["labels"][AGENT_LABEL] == "true"


def test_the_second_scheduler_is_told_what_scheduler_config_would_tell_it() -> None:
    chart = one(objects(*preset(*ALL), *SECOND), "ConfigMap", "accelshare-scheduler")["data"]["config.yaml"]
    resources = [
        name
        for vendor in sorted(PRESETS)
        for name in (SHIPPED[vendor].resources.memory, SHIPPED[vendor].resources.whole)
        if name is not None
    ]
    folder = "/etc/accelshare/tls"
    tls = TlsFiles(f"{folder}/ca.crt", f"{folder}/tls.crt", f"{folder}/tls.key", "accelshare-extender")
    url = "https://xpushare-scheduler-extender.kube-system.svc:32766/accelshare"
    desired = DesiredConfig(url, tuple(resources), tls, settings=SchedulerSettings(100, None, None))
    election = {
        "leaderElect": True,
        "resourceLock": "leases",
        "resourceName": "accelshare-scheduler",
        "resourceNamespace": "kube-system",
    }
    moved = {"leaderElection": election, "profiles": [{"schedulerName": "accelshare-scheduler"}]}
    ours = yaml.safe_load(content.fresh(dialect(parse("v1.36.4"), "configuration"), desired, moved))
    theirs = yaml.safe_load(chart)
    assert theirs["extenders"][0].pop("httpTimeout") == "5000ms"
    assert ours["extenders"][0].pop("httpTimeout") == "5s"
    theirs["extenders"][0]["urlPrefix"] = url  # the names of presets are another test's
    assert theirs == ours


@pytest.mark.parametrize("vendor", PRESETS)
def test_the_manifests_are_the_charts(vendor: str) -> None:
    """`make manifests` writes them anew."""
    there = {
        str(path.relative_to(MANIFESTS / vendor)): path.read_text() for path in (MANIFESTS / vendor).rglob("*") if path.is_file()
    }
    assert there == files(vendor)


@pytest.mark.parametrize("vendor", PRESETS)
def test_the_manifests_know_no_helm(vendor: str) -> None:
    for path in (MANIFESTS / vendor).rglob("*.yaml"):
        assert "helm.sh/" not in path.read_text()
    applied = [document for document in yaml.safe_load_all((MANIFESTS / vendor / "accelshare.yaml").read_text()) if document]
    assert "accelshare-uninstall" not in {document["metadata"]["name"] for document in applied}


def test_profiles_reach_every_part_that_reads_them() -> None:
    things = objects(*preset("gpushare"), *setting(profiles={"mine.toml": 'name = "mine"'}))
    flag = "--profiles=/etc/accelshare/profiles"
    with_flag = [title for title, pod in pods(things) for container in containers(pod) if flag in container.get("args", [])]
    assert sorted(with_flag) == [
        "DaemonSet/accelshare-scheduler-manager",
        "DaemonSet/gpushare-device-plugin-ds",
        "Deployment/gpushare-schd-extender",
        "Job/accelshare-memory-units",
        "Job/accelshare-uninstall",
    ]
