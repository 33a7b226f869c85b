"""Every pod of the chart has only the privileges that it needs."""

import json

import pytest

from deploy.render import PRESETS
from tests.contract.chart.rendered_objects import (
    ALL,
    EVERYTHING,
    MIXTURES,
    SECOND,
    Object,
    containers,
    hook,
    named,
    objects,
    one,
    pods,
    preset,
    setting,
)


@pytest.mark.parametrize("arguments", MIXTURES, ids=" ".join)
def test_every_pod_has_bounded_rights_and_resources(arguments: list[str]) -> None:
    """A token of bounded life, never the one that is mounted by default; memory asked for; no root filesystem to write on."""
    for title, pod in pods(objects(*arguments)):
        assert pod["automountServiceAccountToken"] is False, title
        for volume in pod.get("volumes", []):
            for source in volume.get("projected", {}).get("sources", []):
                assert source.get("serviceAccountToken", {}).get("expirationSeconds", 3600) <= 86400, title
        for container in containers(pod):
            rights = container["securityContext"]
            assert rights["readOnlyRootFilesystem"] is True, title
            assert container["resources"]["requests"]["memory"], title
            if not rights.get("privileged"):
                assert rights["allowPrivilegeEscalation"] is False, title
                assert rights["capabilities"]["drop"] == ["ALL"], title


def test_only_agents_and_the_manager_are_root_or_see_the_host() -> None:
    """And the one step that gives the log directory to the extender, if there is one."""
    things = objects(*EVERYTHING, *setting(logs__directory=""))
    allowed = {"DaemonSet/stc-device-plugin-daemonset", "DaemonSet/accelshare-scheduler-manager"}
    for title, pod in pods(things):
        rooted = not pod["securityContext"].get("runAsNonRoot", False)
        host = any("hostPath" in volume for volume in pod.get("volumes", [])) or pod.get("hostNetwork", False)
        assert (rooted or host) == (title in allowed), title


@pytest.mark.parametrize(("vendor", "privileged"), [("gpushare", False), ("gcushare", False), ("xpushare", True), ("stc", True)])
def test_an_agent_is_privileged_only_for_a_driver_that_opens_device_files(vendor: str, privileged: bool) -> None:
    (agent,) = [pod for title, pod in pods(objects(*preset(vendor))) if "device-plugin" in title]
    assert agent["containers"][0]["securityContext"].get("privileged", False) == privileged


def test_openshift_chooses_users_and_grants_the_agent_its_constraints() -> None:
    things = objects(*preset("gpushare"), *setting(openshift__enabled=True))
    extender = one(things, "Deployment")["spec"]["template"]["spec"]
    assert "runAsUser" not in extender["securityContext"]
    binding = one(things, "RoleBinding", "gpushare-device-plugin-ds-scc")
    assert binding["roleRef"]["name"] == "system:openshift:scc:privileged"
    agent = one(things, "DaemonSet", "gpushare-device-plugin-ds")["spec"]["template"]["spec"]
    assert "/etc/crio" in {volume["hostPath"]["path"] for volume in agent["volumes"] if "hostPath" in volume}


def test_plain_http_comes_only_by_an_explicit_value() -> None:
    for arguments, secure in ((preset("gpushare"), True), ([*preset("gpushare"), *setting(tls__enabled=False)], False)):
        things = objects(*arguments)
        (extender,) = [pod for title, pod in pods(things) if title == "Deployment/gpushare-schd-extender"]
        manager = one(things, "DaemonSet", "accelshare-scheduler-manager")["spec"]["template"]["spec"]
        assert ("--client-ca=/tls/ca.crt" in extender["containers"][0]["args"]) == secure
        assert ("--plain-http" in manager["containers"][0]["args"]) != secure
        assert ("accelshare-certificates" in named(things, "Job")) == secure
        # The uninstall looks for them all the same: TLS may have been on before.
        roles = [thing for thing in things if thing["kind"] == "Role" and hook(thing) != "pre-delete"]
        assert ("secrets" in {rule["resources"][0] for role in roles for rule in role["rules"]}) == secure


def test_network_policies_open_the_ports_in_use_and_no_other() -> None:
    rules = ingress(networkPolicy__schedulerCIDRs=["10.0.0.0/24"])
    assert ports(rules) == {
        "gpushare-schd-extender": [12345],
        "gpushare-device-plugin-ds": [],
        "accelshare-hooks": [],
        "accelshare-scheduler": [],
    }
    assert rules["gpushare-schd-extender"][0]["from"][0] == {"ipBlock": {"cidr": "10.0.0.0/24"}}


def test_probe_ports_are_open_to_those_who_are_named_and_to_nobody_else() -> None:
    """kubelet needs no rule: a pod is always reachable from its own node. What is named twice over is one peer, not two."""
    prometheus = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}},
        "podSelector": {"matchLabels": {"app": "prometheus"}},
    }
    rules = ingress(networkPolicy__metricsFrom=[prometheus], agent__port=9999)
    assert ports(rules) == {
        "gpushare-schd-extender": [12345, 12346],
        "gpushare-device-plugin-ds": [9999],
        "accelshare-hooks": [],
        "accelshare-scheduler": [10259],
    }
    probes = [rule for found in rules.values() for rule in found if rule["ports"][0]["port"] != 12345]
    assert [rule["from"] for rule in probes] == [[prometheus]] * 3


def test_agents_see_the_hosts_processes_only_for_usage() -> None:
    for usage, sees in (({"enabled": False}, False), ({"enabled": True}, True)):
        agent = one(objects(*preset("gpushare"), *setting(agent__usage=usage)), "DaemonSet", "gpushare-device-plugin-ds")
        pod = agent["spec"]["template"]["spec"]
        assert pod.get("hostPID", False) == sees
        assert ("--usage" in pod["containers"][0]["args"]) == sees


@pytest.mark.parametrize(
    ("usage", "evicts"),
    [
        ({"enabled": True, "evictOverUseAfterSeconds": 600}, True),
        ({"enabled": True, "evictOverUseAfterSeconds": 0}, False),
        ({"enabled": False, "evictOverUseAfterSeconds": 600}, False),
    ],
)
def test_agents_may_ask_for_evictions_only_if_that_is_switched_on(usage: Object, evicts: bool) -> None:
    things = objects(*preset("gpushare"), *setting(agent__usage=usage))
    role = one(things, "ClusterRole", "gpushare-device-plugin-ds")
    assert [rule["verbs"] for rule in role["rules"] if "pods/eviction" in rule["resources"]] == ([["create"]] if evicts else [])
    args = one(things, "DaemonSet", "gpushare-device-plugin-ds")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert [arg for arg in args if "evict" in arg] == (["--evict-over-use-after=600"] if evicts else [])


def test_the_agents_policy_covers_evictions() -> None:
    """It allows dry runs alone: it cannot see the node of a pod that is evicted."""
    policy = one(objects(*preset("gpushare")), "ValidatingAdmissionPolicy", "gpushare-device-plugin-ds")["spec"]
    assert "pods/eviction" in policy["matchConstraints"]["resourceRules"][0]["resources"]
    (asks,) = [variable["expression"] for variable in policy["variables"] if variable["name"] == "asks"]
    assert "request.dryRun" in asks
    assert "'CREATE'" not in "".join(validation["expression"] for validation in policy["validations"])


def test_the_api_server_reaches_the_agents_only_for_usage() -> None:
    """`accelshare inspect` asks them through it."""
    on, planes = {"enabled": True}, ["10.0.0.1/32", "10.0.0.2/32"]
    peers = [{"ipBlock": {"cidr": cidr}} for cidr in planes]
    assert ingress(agent__usage=on)["gpushare-device-plugin-ds"] == []
    assert ingress(networkPolicy__apiServerCIDRs=planes)["gpushare-device-plugin-ds"] == []
    for name in ("apiServerCIDRs", "schedulerCIDRs"):
        (rule,) = ingress(agent__usage=on, **{f"networkPolicy__{name}": planes})["gpushare-device-plugin-ds"]
        assert (rule["ports"][0]["port"], rule["from"]) == (12347, peers)


def ingress(**values: object) -> dict[str, list[Object]]:
    """The rules of each network policy."""
    things = objects(*preset("gpushare"), *SECOND, *setting(**values))
    return {thing["metadata"]["name"]: thing["spec"].get("ingress", []) for thing in things if thing["kind"] == "NetworkPolicy"}


def ports(rules: dict[str, list[Object]]) -> dict[str, list[int]]:
    return {name: [port["port"] for rule in found for port in rule["ports"]] for name, found in rules.items()}


def test_agents_read_config_maps_only_where_a_profile_of_theirs_has_them() -> None:
    """One Role for each such namespace, none in the cluster: not that of a vendor that is off, and none where there is none."""
    acme = {"enabled": True, "resources": {"memory": "acme.example/zpu"}, "unhealthyNamespace": "acme"}
    for arguments, namespaces in (
        (preset("gpushare"), ["kube-system"]),
        (preset("gpushare", "xpushare"), ["kube-system"]),
        (preset("stc"), []),
        ([*preset("gpushare"), *setting(vendors__acme=acme)], ["acme", "kube-system"]),
    ):
        things = objects(*arguments, namespace="elsewhere")
        readers = [t for t in things if t["kind"] in ("Role", "ClusterRole") and hook(t) == "" and reads_config_maps(t)]
        assert sorted(role["metadata"]["namespace"] for role in readers) == namespaces
        account = [pod["serviceAccountName"] for title, pod in pods(things) if "device-plugin" in title]
        bindings = [t for t in things if t["kind"] == "RoleBinding" and t["roleRef"]["name"] in account]
        assert sorted(binding["metadata"]["namespace"] for binding in bindings) == namespaces
        for binding in bindings:
            assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account[0], "namespace": "elsewhere"}]


def reads_config_maps(role: Object) -> bool:
    return any("configmaps" in rule["resources"] and "list" in rule["verbs"] for rule in role["rules"])


def test_a_record_policy_protects_the_keys_of_the_enabled_vendors() -> None:
    """And of no other: another vendor's own extender goes on."""
    assert protected(*preset("gpushare"), *setting(vendors__nvidia__recordAnnotations=[])) == ["accelshare.io/assignment"]
    ours = protected(*preset("stc", "gcushare"))
    assert [key for key in ours if "enflame" in key] == ours[1:] != []


@pytest.mark.parametrize("name", ALL)
def test_values_of_an_older_chart_protect_no_less(name: str) -> None:
    """`helm upgrade --reuse-values` brings no new value: what a vendor's entry does not say is as the shipped one has it."""
    vendor = next(vendor for vendor, preset_of_it in PRESETS.items() if preset_of_it == name)
    said_nothing = {f"vendors__{vendor}__recordAnnotations": None, f"vendors__{vendor}__unhealthyNamespace": None}
    older = setting(**said_nothing, agent__guard=None, admissionPolicy__recordWriters=None, networkPolicy__metricsFrom=None)
    older += setting(agent__usage=None, networkPolicy__apiServerCIDRs=None, hooks__enabled=None, metrics__operatorLabels=None)
    older += setting(agent__affinity=None, agent__extraEnv=None, agent__securityContext=None, extender__podSecurityContext=None)
    older += ["--set-json=global=null"]
    assert objects(*preset(name), *older, namespace="cards") == objects(*preset(name), namespace="cards")


def protected(*arguments: str) -> list[str]:
    """The annotations that the policy names."""
    policy = one(objects(*arguments), "ValidatingAdmissionPolicy", "accelshare-records")
    (keys,) = [variable["expression"] for variable in policy["spec"]["variables"] if variable["name"] == "keys"]
    found: list[str] = json.loads(keys.replace("'", '"'))
    return found


def test_the_guard_leaves_alone_the_release_and_the_exempt_namespaces() -> None:
    for values, flags in (
        ({}, ["--exempt-namespace=kube-system", "--exempt-namespace=cards"]),
        ({"agent__guard__exemptNamespaces": ["dcgm", "cards"]}, ["--exempt-namespace=dcgm", "--exempt-namespace=cards"]),
        ({"agent__guard__enabled": False}, ["--no-guard"]),
    ):
        agent = one(objects(*preset("stc"), *setting(**values), namespace="cards"), "DaemonSet", "stc-device-plugin-daemonset")
        args = agent["spec"]["template"]["spec"]["containers"][0]["args"]
        assert [flag for flag in args if "guard" in flag or "exempt" in flag] == flags


def test_the_extender_is_told_who_the_agents_are() -> None:
    things = objects(*preset("gpushare"), namespace="cards")
    (args,) = [pod["containers"][0]["args"] for title, pod in pods(things) if title == "Deployment/gpushare-schd-extender"]
    assert {"--agent-namespace=cards", "--agent-service-account=gpushare-device-plugin-ds"} <= set(args)


def test_tls_files_come_as_a_whole_secret_so_that_they_are_renewed() -> None:
    for title, pod in pods(objects(*preset("gpushare"), *SECOND)):
        for container in containers(pod):
            assert [mount for mount in container.get("volumeMounts", []) if "subPath" in mount] == [], title
