"""The chart renders for every preset and for several presets together."""

import json
import re

import pytest
import yaml

from accelshare import __version__
from accelshare.vendors import catalog
from deploy.render import CHART, PRESETS, helm
from tests.contract.chart.rendered_objects import ALL, MIXTURES, SECOND, containers, named, objects, one, pods, preset, setting


@pytest.mark.parametrize("arguments", MIXTURES, ids=" ".join)
def test_the_chart_passes_helms_own_strict_check(arguments: list[str]) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", CHART, "--kube-version", "1.36.4", *arguments)


@pytest.mark.parametrize("arguments", MIXTURES, ids=" ".join)
def test_no_object_is_made_twice(arguments: list[str]) -> None:
    things = objects(*arguments)
    keys = [(thing["kind"], thing["metadata"]["name"], thing["metadata"].get("namespace", "")) for thing in things]
    assert len(keys) == len(set(keys))


def test_the_chart_has_the_version_of_the_program() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


@pytest.mark.parametrize(
    ("version", "budget", "policy"),
    [
        ("1.18.20", "policy/v1beta1", False),
        ("1.22.0", "policy/v1", False),
        ("1.29.3", "policy/v1", False),
        ("1.30.0", "policy/v1", True),
    ],
)
def test_old_clusters_get_what_they_know(version: str, budget: str, policy: bool) -> None:
    things = objects(*preset("gpushare"), version=version)
    assert one(things, "PodDisruptionBudget")["apiVersion"] == budget
    assert bool(named(things, "ValidatingAdmissionPolicy")) == policy
    # Without the policy anybody could write a grant.
    for workload in (one(things, "Deployment", "gpushare-schd-extender"), one(things, "DaemonSet", "gpushare-device-plugin-ds")):
        assert ("--resize" in workload["spec"]["template"]["spec"]["containers"][0]["args"]) == policy


def test_a_cluster_that_has_no_admission_policies_gets_none_unless_it_is_said() -> None:
    """An API server may have a kind switched off, whatever its version."""
    others, policies = (
        f"--api-versions={kind}" for kind in ("apps/v1/Deployment", "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy")
    )
    enabled = setting(admissionPolicy__enabled=True)
    for arguments, made in (([others], []), ([others, policies], POLICIES), ([others, *enabled], POLICIES)):
        things = objects(*preset("stc"), *arguments)
        assert sorted(named(things, "ValidatingAdmissionPolicy")) == made
        assert sorted(named(things, "ValidatingAdmissionPolicyBinding")) == made


POLICIES = ["accelshare-records", "stc-device-plugin-daemonset"]


@pytest.mark.parametrize(
    ("version", "bound", "confined"), [("1.18.20", False, False), ("1.19.16", False, True), ("1.20.0", True, True)]
)
def test_pods_of_old_clusters_can_start(version: str, bound: bool, confined: bool) -> None:
    """kube-root-ca.crt is in every namespace from 1.20 on, and 1.18 refuses the field seccompProfile."""
    things = objects(*preset("gcushare"), *setting(tls__enabled=False, nodes__names=["n1"]), version=version)
    for title, pod in pods(things):
        assert ("seccompProfile" in pod["securityContext"]) == confined, title
        if "serviceAccountName" in pod:
            assert pod["automountServiceAccountToken"] == (not bound), title
            assert ("kube-root-ca.crt" in str(pod["volumes"])) == bound, title
            for container in pod["containers"]:
                assert ("serviceaccount" in str(container["volumeMounts"])) == bound, title


@pytest.mark.parametrize("text", ['name = "mine"\n', '\n  name = "mine"\n\n', '# a: b\r\nname = "mine"', "<&>\t{{ x }}"])
def test_a_profile_arrives_to_the_byte(text: str) -> None:
    """Whatever it begins with: TOML may be indented."""
    things = objects(*preset("gpushare"), *setting(profiles={"mine.toml": text}))
    for name in ("accelshare-profiles", "accelshare-memory-units"):
        assert one(things, "ConfigMap", name)["data"] == {"mine.toml": text}


# Vendors side by side.


def test_one_agent_serves_every_enabled_vendor_on_the_nodes_of_each() -> None:
    things = objects(*preset(*ALL), *setting(vendors__stream__nodeLabel="npu=true"))
    agent = one(things, "DaemonSet", "stc-device-plugin-daemonset")["spec"]["template"]["spec"]
    args = agent["containers"][0]["args"]
    assert [arg for arg in args if arg.startswith("--vendor=")] == [f"--vendor={name}" for name in sorted(PRESETS)]
    assert [arg for arg in args if "unit" in arg] == [
        "--memory-unit=enflame=1",
        "--memory-unit=kunlun=MiB",
        "--memory-unit=nvidia=GiB",
    ]
    terms = agent["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [(e["key"], e["values"]) for term in terms for e in term["matchExpressions"]] == [
        ("enflame.com/gcushare", ["true"]),
        ("xpushare", ["true"]),
        ("gpushare", ["true"]),
        ("npu", ["true"]),
    ]
    paths = {volume["hostPath"]["path"] for volume in agent["volumes"] if "hostPath" in volume}
    assert {"/usr/local/xpu", "/usr/local/hpe"} <= paths


def test_a_vendor_without_a_label_runs_everywhere_or_on_the_named_nodes() -> None:
    everywhere = one(objects(*preset("stc", "gpushare")), "DaemonSet", "gpushare-device-plugin-ds")["spec"]["template"]["spec"]
    assert "affinity" not in everywhere
    some = one(objects(*preset("stc"), *setting(nodes__names=["a", "b"])), "DaemonSet", "stc-device-plugin-daemonset")
    rules = some["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    terms = rules["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [term["matchFields"][0]["values"] for term in terms] == [["a"], ["b"]]


def test_a_selector_takes_the_place_of_the_labels() -> None:
    things = objects(*preset("gpushare"), *setting(nodes__selector={"pool": "gpu"}))
    agent = one(things, "DaemonSet", "gpushare-device-plugin-ds")["spec"]["template"]["spec"]
    assert agent["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "gpu"}
    assert "affinity" not in agent


def test_a_vendor_of_ones_own_is_one_more_entry() -> None:
    entry = {"enabled": True, "nodeLabel": "acme=true", "memoryUnit": "GiB", "resources": {"memory": "acme.example/zpu-mem"}}
    things = objects(*SECOND, *setting(vendors__acme=entry, profiles={"acme.toml": 'name = "acme"\n'}))
    args = one(things, "DaemonSet")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert {"--vendor=acme", "--memory-unit=acme=GiB", "--profiles=/etc/accelshare/profiles"} <= set(args)
    assert one(things, "ConfigMap", "accelshare-profiles")["data"] == {"acme.toml": 'name = "acme"\n'}
    assert "acme.example/zpu-mem" in one(things, "ConfigMap", "accelshare-scheduler")["data"]["config.yaml"]
    assert named(things, "Pod") == ["accelshare-test-acme"]


ACME = """\
# name = "other"
name = "acme"
title = "Acme ZPU"
noun = "ZPU"
node_label = "acme.example/share=true"

[resources] # what pods request
memory = "acme.example/zpu-mem"
count = "acme.example/zpu-count"
whole = 'acme.example/zpu'

[unhealthy]
name = "unhealthy-zpu-{node}"
key = "zpus"

[annotations]
index = "acme.example/index"
assigned = "acme.example/assigned"

[container]
env = { memory = "not this one" }
"""
ACME_IN_OTHER_WORDS = """\
name = 'acme'
title = "Acme ZPU"
noun = "ZPU"
node_label = "acme.example/share=true"
resources = { whole = "acme.example/zpu", memory = "acme.example/zpu-mem" }
unhealthy.name = "unhealthy-zpu-{node}"
unhealthy.key = "zpus"
annotations.index = "acme.example/index"
annotations.assigned = "acme.example/assigned"
"""


@pytest.mark.parametrize("text", [ACME, ACME_IN_OTHER_WORDS, ACME.replace("\n", "\r\n")])
def test_the_names_of_a_vendor_of_ones_own_are_those_of_its_profile(text: str) -> None:
    """Said once, in the profile: the chart needs no more than that it is enabled."""
    values = setting(vendors__acme__enabled=True, profiles={"acme.toml": text}, nodes__names=["n1"])
    things = objects(*SECOND, *values)
    scheduler = yaml.safe_load(one(things, "ConfigMap", "accelshare-scheduler")["data"]["config.yaml"])
    managed = [resource["name"] for resource in scheduler["extenders"][0]["managedResources"]]
    assert managed == ["acme.example/zpu-mem", "acme.example/zpu"]
    agent = one(things, "DaemonSet")["spec"]["template"]["spec"]
    (term,) = agent["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert (term["matchExpressions"][0]["key"], term["matchExpressions"][0]["values"]) == ("acme.example/share", ["true"])
    (card,) = one(things, "Pod", "accelshare-test-acme")["spec"]["containers"]
    assert card["resources"]["limits"]["acme.example/zpu-mem"] == 1
    policy = one(things, "ValidatingAdmissionPolicy", "accelshare-records")
    assert "acme.example/index" in str(policy)
    assert "acme.example/assigned" in str(policy)
    roles = [t["metadata"]["namespace"] for t in things if t["kind"] == "Role" and "configmaps" in str(t["rules"])]
    assert "kube-system" in roles


def test_what_the_profile_says_comes_before_the_values() -> None:
    text = 'extends = "nvidia"\n\n[resources]\nmemory = "acme.example/gpu-mem"\n'
    things = objects(*preset("gpushare"), *SECOND, *setting(profiles={"mine.toml": text}))
    config = one(things, "ConfigMap", "accelshare-scheduler")["data"]["config.yaml"]
    assert "acme.example/gpu-mem" in config
    assert "aliyun.com/gpu-mem" not in config
    assert "nvidia.com/gpu" in config


def test_a_model_of_ones_own_has_what_it_inherits() -> None:
    text = 'name = "ascend-310p3"\nextends = "ascend"\n[resources]\nmemory = "huawei.com/Ascend310P-memory"\n'
    things = objects(*SECOND, *setting(profiles={"x.toml": text}, **{"vendors__ascend-310p3__enabled": True}))
    config = one(things, "ConfigMap", "accelshare-scheduler")["data"]["config.yaml"]
    assert "huawei.com/Ascend310P-memory" in config


@pytest.mark.parametrize("name", ["amd", "intel", "mthreads", "ascend"])
def test_a_new_vendor_is_enabled_by_one_value(name: str) -> None:
    things = objects(*setting(**{f"vendors__{name}__enabled": True}))
    assert f"accelshare-test-{name}" in named(things, "Pod")


def test_the_chart_knows_which_profiles_the_image_has() -> None:
    (line,) = [line for line in (CHART / "templates" / "_vendors.tpl").read_text().splitlines() if line.startswith('["amd"')]
    assert json.loads(line) == [profile.name for profile in catalog.load()]


# Where the seeds' users find their names.


@pytest.mark.parametrize(
    ("name", "extender", "agent", "service"),
    [
        ("gpushare", "gpushare-schd-extender", "gpushare-device-plugin-ds", ("NodePort", 12345, 32766)),
        ("xpushare", "xpushare-scheduler-extender", "xpushare-device-plugin-ds", ("NodePort", 12345, 31868)),
        ("gcushare", "gcushare-scheduler-extender", "gcushare-device-plugin", ("ClusterIP", 32766, None)),
        ("stc", "accelshare-extender", "stc-device-plugin-daemonset", ("ClusterIP", 12345, None)),
    ],
)
def test_presets_have_the_names_and_ports_of_the_originals(
    name: str, extender: str, agent: str, service: tuple[str, int, int | None]
) -> None:
    things = objects(*preset(name))
    assert named(things, "Deployment") == [extender]
    assert agent in named(things, "DaemonSet")
    spec = one(things, "Service", extender)["spec"]
    assert (spec["type"], spec["ports"][0]["port"], spec["ports"][0].get("nodePort")) == service


def test_gcushare_users_find_their_log_files() -> None:
    args = [arg for _, pod in pods(objects(*preset("gcushare"))) for c in containers(pod) for arg in c.get("args", [])]
    assert {re.sub("^--log-file=", "", arg) for arg in args if arg.startswith("--log-file=")} == {
        "/var/log/topscloud/gcushare/gcushare-scheduler-extender.log",
        "/var/log/topscloud/gcushare/gcushare-device-plugin.log",
    }


def test_the_agent_looks_into_directories_of_the_host_that_a_site_names() -> None:
    """Below /host, where --host-root says that the host is; nothing may be written there."""
    things = objects(*preset("gpushare"), *setting(agent__lookInto=["/tmp/nvidia-mps", "/opt/acme", "/opt/acme"]))
    pod = next(thing for thing in things if thing["kind"] == "DaemonSet" and "agent" in str(thing["spec"]["selector"]))
    spec = pod["spec"]["template"]["spec"]
    (agent,) = spec["containers"]
    assert "--host-root=/host" in agent["args"]
    mounts = {mount["name"]: mount for mount in agent["volumeMounts"]}
    seen = [
        (volume["hostPath"]["path"], mounts[volume["name"]]["mountPath"], mounts[volume["name"]]["readOnly"])
        for volume in spec["volumes"]
        if volume["name"].startswith("look-")
    ]
    assert seen == [("/tmp/nvidia-mps", "/host/tmp/nvidia-mps", True), ("/opt/acme", "/host/opt/acme", True)]


@pytest.mark.parametrize(
    ("values", "mounted", "off"),
    [
        ({}, True, False),
        ({"agent__limits__enabled": False}, False, True),
        ({"agent__delivery": "device-plugin"}, False, False),
        ({"agent__limits": None}, True, False),  # values of an earlier release
    ],
    ids=["default", "switched-off", "device-plugin", "earlier-values"],
)
def test_the_agent_gets_the_hosts_cgroups_only_to_set_limits(values: dict[str, object], mounted: bool, off: bool) -> None:
    things = objects(*preset("gpushare"), *setting(**values))
    pod = next(thing for thing in things if thing["kind"] == "DaemonSet" and "agent" in str(thing["spec"]["selector"]))
    spec = pod["spec"]["template"]["spec"]
    (agent,) = spec["containers"]
    volumes = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
    mounts = {mount["name"]: mount["mountPath"] for mount in agent["volumeMounts"]}
    found = (volumes.get("cgroup"), mounts.get("cgroup"))
    assert found == (("/sys/fs/cgroup", "/sys/fs/cgroup") if mounted else (None, None))
    assert ("--no-limits" in agent["args"]) is off


def test_the_agent_gets_a_capability_only_if_a_site_asks_for_it() -> None:
    """The API server refuses SYS_ADMIN beside allowPrivilegeEscalation: false."""
    for values, rights in (
        ({}, {"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": False}),
        ({"agent__limits__capabilities": ["SYS_ADMIN"]}, {"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}}),
    ):
        things = objects(*preset("gpushare"), *setting(**values))
        pod = next(thing for thing in things if thing["kind"] == "DaemonSet" and "agent" in str(thing["spec"]["selector"]))
        (agent,) = pod["spec"]["template"]["spec"]["containers"]
        context = agent["securityContext"]
        assert {key: context[key] for key in ("capabilities", "allowPrivilegeEscalation") if key in context} == rights


@pytest.mark.parametrize("enabled", [False, True])
def test_the_dashboard_is_on_loopback_and_only_by_choice(enabled: bool) -> None:
    """With it the extender may also watch quotas, which it lists before it grants a resize, and nothing more."""
    things = objects(*preset("gpushare"), *setting(extender__dashboard=enabled))
    name = "gpushare-schd-extender"
    (container,) = one(things, "Deployment", name)["spec"]["template"]["spec"]["containers"]
    assert [flag for flag in container["args"] if "dashboard" in flag] == ["--dashboard=127.0.0.1:12348"] * enabled
    rights = [rule for rule in one(things, "ClusterRole", name)["rules"] if "resourcequotas" in rule["resources"]]
    assert rights == [{"apiGroups": [""], "resources": ["resourcequotas"], "verbs": ["list", *["watch"] * enabled]}]
    assert {port["containerPort"] for port in container["ports"]} == {12345, 12346}


def test_fake_cards_are_on_every_node_and_need_nothing_of_the_host() -> None:
    """Also on control-plane nodes, because a cluster of kind or minikube often has no other."""
    agent = one(objects(*preset("fake")), "DaemonSet", "accelshare-agent")["spec"]["template"]["spec"]
    assert "affinity" not in agent
    assert "node-role.kubernetes.io/control-plane" in {toleration.get("key") for toleration in agent["tolerations"]}
    (container,) = agent["containers"]
    assert "privileged" not in container["securityContext"]
    assert [volume for volume in agent["volumes"] if volume["name"].startswith("vendor-")] == []
    assert {"--vendor=enflame", "--vendor=kunlun", "--vendor=nvidia", "--vendor=stream"} <= set(container["args"])
