"""Wrong values are refused before anything is created, with the value, its place and what would be right."""

import pytest

from deploy.render import HelmError
from tests.contract.chart.rendered_objects import objects, preset, setting

REFUSED = {
    "no vendor at all": ([], "no vendor is enabled"),
    "an unknown value": (setting(foo=1), "additional properties 'foo' not allowed"),
    "an unknown value of a part": (setting(extender__replica=2), "'/extender': additional properties 'replica' not allowed"),
    "a name with capitals": (setting(extender__name="Extender"), "'/extender/name': 'Extender' does not match pattern"),
    "a unit that the vendor has not": (
        setting(vendors__nvidia__memoryUnit="TiB"),
        "'/vendors/nvidia/memoryUnit': value must be one of '', 'GiB', 'MiB'",
    ),
    "a unit where there are no slices": (setting(vendors__stream__memoryUnit="GiB"), "additional properties 'memoryUnit' not"),
    "a policy that is none": (setting(extender__policy="random"), "'/extender/policy': value must be one of 'binpack', 'spread'"),
    "a default of enforcement that is none": (
        setting(extender__defaultEnforcement="always"),
        "'/extender/defaultEnforcement': value must be one of '', 'preferred', 'required'",
    ),
    "a way of delivery that is none": (setting(agent__delivery="magic"), "'auto', 'nri', 'device-plugin'"),
    "a label without a value": (setting(vendors__nvidia__nodeLabel="gpushare"), "'/vendors/nvidia/nodeLabel'"),
    "a relative log directory": (setting(logs__directory="var/log"), "'/logs/directory'"),
    "a node that is no name": (setting(nodes__names=["Node One"]), "'/nodes/names/0': 'Node One' does not match pattern"),
    "a port that is none": (setting(service__port=70000), "'/service/port': maximum: got 70,000, want 65,535"),
    "a node port without NodePort": (
        setting(service__type="ClusterIP", service__nodePort=32766),
        "service.nodePort is 32766 and service.type is ClusterIP",
    ),
    "two parts of one name": (setting(agent__name="gpushare-schd-extender"), "must differ; they are gpushare-schd-extender"),
    "a token that lives too short": (setting(tokenExpirationSeconds=60), "'/tokenExpirationSeconds': minimum: got 60, want 600"),
    "a CA that ends too soon": (setting(tls__caDays=300), "tls.caDays is 300 and tls.leafDays is 90: a CA must last"),
    "HTTP/2 without TLS": (setting(extender__http2=True, tls__enabled=False), "extender.http2 is true and tls.enabled is false"),
    "a choice of HTTP/2 that is none": (
        setting(extender__http2="yes"),
        "'/extender/http2': value must be one of true, false, 'auto'",
    ),
    "a digest that is none": (setting(image__digest="latest"), "'/image/digest'"),
    "a profile that is no TOML file": (
        setting(profiles={"x.yaml": ""}),
        "'/profiles': additional properties 'x.yaml' not allowed",
    ),
    "a vendor without a profile": (
        setting(vendors__acme={"enabled": True}),
        'vendors.acme is enabled and has no profile: no file under profiles has name = "acme", and the shipped ones are amd,',
    ),
    "a vendor with a mistake in its name": (
        setting(vendors__nvidai__enabled=True),
        "vendors.nvidai is enabled and has no profile",
    ),
    "a vendor whose name is nearly one": (setting(vendors__nvidai__enabled=True), "; did you mean nvidia?"),
    "a profile without resources": (
        setting(vendors__acme={"enabled": True}, profiles={"acme.toml": 'name = "acme"\n[container]\nmemory = "no"\n'}),
        "vendors.acme has no resource names: its profile must have memory or whole under [resources]",
    ),
    "a mistyped vendor that is not enabled": (setting(vendors__nvidai__nodeLabel="a=b"), "vendors.nvidai has no profile"),
    "a mistyped value of a vendor": (
        setting(vendors__nvidia__enabeld=True),
        "'/vendors/nvidia': additional properties 'enabeld'",
    ),
    "nodes of another affinity": (
        setting(agent__affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}),
        "choose the nodes by nodes.selector",
    ),
    "nodes to label without hooks": (setting(hooks__enabled=False, nodes__names=["n1"]), "nodes.names needs hooks.enabled"),
    "logs on OpenShift's hosts": (setting(openshift__enabled=True, logs__directory="/var/log/a"), "OpenShift does not let"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_wrong_value_is_refused_with_a_message(why: str) -> None:
    arguments, words = REFUSED[why]
    with pytest.raises(HelmError) as refused:
        objects(*(preset("gpushare") if arguments else []), *arguments)
    assert words in str(refused.value)


def test_a_second_scheduler_is_refused_where_its_configuration_has_another_form() -> None:
    with pytest.raises(HelmError, match=r"needs Kubernetes 1\.25 or newer here, this is v1\.24\.0"):
        objects(*preset("gpushare"), *setting(scheduler__mode="second"), version="1.24.0")


def test_all_wrong_values_are_told_at_once() -> None:
    with pytest.raises(HelmError) as refused:
        objects(*preset("gpushare"), *setting(foo=1, service__port=0, extender__policy="random"))
    assert all(words in str(refused.value) for words in ("'foo'", "/service/port", "/extender/policy"))
