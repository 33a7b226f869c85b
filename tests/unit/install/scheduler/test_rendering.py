"""What is printed for each version, to the byte, and for clusters whose scheduler cannot be edited.

`python -m tests.unit.install.scheduler.test_rendering` writes the golden files anew; look at the difference before it is kept.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from accelshare.install.errors import Clash, NotUnderstood
from accelshare.install.scheduler import rendering
from accelshare.install.scheduler.desired_config import HTTP2_VARIABLES, DesiredConfig
from accelshare.install.scheduler.plan import Existing, checksum
from accelshare.install.scheduler.release import Kind, parse
from tests.unit.install.scheduler.builders import HERE, TLS, URL, desired

GOLDEN = HERE / "golden"
CASES: dict[str, tuple[str, Kind | None]] = {
    "1.18-policy.json": ("1.18", None),
    "1.18-configuration.yaml": ("1.18", "configuration"),
    "1.20-policy.json": ("1.20", None),
    "1.20-configuration.yaml": ("1.20", "configuration"),
    "1.22.yaml": ("1.22", None),
    "1.23.yaml": ("1.23", None),
    "1.25.yaml": ("1.25", None),
    "1.28.yaml": ("1.28", None),
    "1.36.yaml": ("1.36", None),
}


def full_wish(policy: bool) -> DesiredConfig:
    """With all that an entry can have, and every proposal that the file can say."""
    settings = {} if policy else {"percentage": 100, "qps": 200, "burst": 400}
    return desired("https://10.96.0.10:12345/accelshare", tls=TLS, **settings)


def rendered(version: str, kind: Kind | None) -> bytes:
    release = parse(version)
    policy = kind is None and release.minor < 22
    return rendering.configuration(full_wish(policy), release, kind=kind, kubeconfig="/etc/kubernetes/scheduler.conf")


@pytest.mark.parametrize("name", CASES)
def test_golden_files(name: str) -> None:
    assert rendered(*CASES[name]).decode() == (GOLDEN / name).read_text()


def test_every_golden_file_is_compared() -> None:
    assert {file.name for file in GOLDEN.iterdir()} == set(CASES)


def entry_of(text: bytes) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(text)["extenders"][0]
    return found


def test_the_traps_of_each_dialect() -> None:
    policy, alpha = entry_of(rendered("1.21", None)), entry_of(rendered("1.18", "configuration"))
    for old in (policy, alpha):
        assert (old["enableHttps"], old["httpTimeout"]) == (True, 5_000_000_000)
        assert "enableHTTPS" not in old
    new = entry_of(rendered("1.36", None))
    assert (new["enableHTTPS"], new["httpTimeout"]) == (True, "5s")
    assert "enableHttps" not in new


def test_the_client_is_told_in_the_file_because_the_flag_will_be_ignored() -> None:
    assert yaml.safe_load(rendered("1.36", None))["clientConnection"]["kubeconfig"] == "/etc/kubernetes/scheduler.conf"


def test_leader_election_is_in_the_file_where_flags_do_not_count_beside_it() -> None:
    assert yaml.safe_load(rendered("1.20", "configuration"))["leaderElection"] == {"leaderElect": True}
    assert "leaderElection" not in yaml.safe_load(rendered("1.22", "configuration"))


def test_half_seconds_are_written_as_go_reads_them() -> None:
    text = rendering.configuration(desired(timeout_ms=2500), parse("1.36"))
    assert entry_of(text)["httpTimeout"] == "2500ms"


def test_nothing_is_forced() -> None:
    content = yaml.safe_load(rendering.configuration(desired(), parse("1.36")))
    assert set(content) == {"apiVersion", "kind", "extenders"}


def test_a_policy_has_no_percentage() -> None:
    with pytest.raises(Clash, match="--kind configuration"):
        rendering.configuration(desired(percentage=100), parse("1.20"))


@pytest.mark.parametrize("settings", [{"qps": 200}, {"burst": 400}])
def test_a_policy_file_cannot_say_client_limits(settings: dict[str, Any]) -> None:
    """They would be dropped without a word: they are flags of kube-scheduler, which whoever renders a file sets by hand."""
    with pytest.raises(Clash, match="--kube-api-qps and --kube-api-burst"):
        rendering.configuration(desired(**settings), parse("1.20"))
    with pytest.raises(Clash, match="--kube-api-qps and --kube-api-burst"):
        rendering.openshift(desired(**settings), parse("1.20"))


@pytest.mark.parametrize("version", ["1.18", "1.20", "1.22"])
def test_a_rendered_configuration_keeps_the_plain_port_from_everybody(version: str) -> None:
    content = yaml.safe_load(rendering.configuration(desired(), parse(version), kind="configuration"))
    assert (content["healthzBindAddress"], content["metricsBindAddress"]) == ("127.0.0.1:10251", "127.0.0.1:10251")
    ours = yaml.safe_load(one(second(f"v{version}.9"), "ConfigMap")["data"]["config.yaml"])
    assert (ours["healthzBindAddress"], ours["metricsBindAddress"]) == ("127.0.0.1:10251", "127.0.0.1:10251")


def test_an_existing_file_is_kept() -> None:
    own = Existing("own.json", b'{"kind": "Policy", "apiVersion": "v1", "predicates": [{"name": "GeneralPredicates"}]}')
    content = json.loads(rendering.configuration(desired(), parse("1.20"), existing=own))
    assert content["predicates"] == [{"name": "GeneralPredicates"}]
    assert content["extenders"][0]["urlPrefix"] == URL
    with pytest.raises(NotUnderstood, match="has no Policy"):
        rendering.configuration(desired(), parse("1.25"), existing=own)


# OpenShift.


def test_an_old_openshift_gets_a_config_map_and_the_object_that_names_it() -> None:
    text = rendering.openshift(desired(), parse("1.19"))
    config_map, scheduler = yaml.safe_load_all(text)
    assert (config_map["metadata"]["namespace"], config_map["metadata"]["name"]) == ("openshift-config", "scheduler-policy")
    assert json.loads(config_map["data"]["policy.cfg"])["extenders"][0]["urlPrefix"] == URL
    assert scheduler["spec"] == {"policy": {"name": "scheduler-policy"}}
    assert "oc patch scheduler cluster" in text


def test_openshift_49_is_told_which_configuration_makes_its_policy_work() -> None:
    """Its operator starts kube-scheduler 1.22 at --v=2 with --config; with v1beta2 there any Policy ends it."""
    assert "v1beta1" in rendering.openshift(desired(), parse("1.22"))
    assert "v1beta1" not in rendering.openshift(desired(), parse("1.21"))


def test_a_new_openshift_is_told_to_use_a_second_scheduler() -> None:
    with pytest.raises(NotUnderstood, match="--form second-scheduler"):
        rendering.openshift(desired(), parse("1.23"))


# A scheduler of our own.


def second(version: str = "v1.36.4", **more: Any) -> list[dict[str, Any]]:
    release = parse(version)
    made = rendering.SecondScheduler("cards", "shared", rendering.image_of(release), **more)
    config = desired("https://accelshare.shared.svc:12345/accelshare", tls=rendering.SECRET_TLS) if more else desired()
    return list(yaml.safe_load_all(rendering.second_scheduler(config, release, made)))


def one(manifests: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    return next(manifest for manifest in manifests if manifest["kind"] == kind)


def test_the_second_scheduler_answers_to_its_own_name() -> None:
    manifests = second()
    content = yaml.safe_load(one(manifests, "ConfigMap")["data"]["config.yaml"])
    assert content["profiles"] == [{"schedulerName": "cards"}]
    assert content["leaderElection"]["resourceName"] == "cards"
    assert "clientConnection" not in content
    assert one(manifests, "Deployment")["spec"]["template"]["spec"]["containers"][0]["image"] == (
        "registry.k8s.io/kube-scheduler:v1.36.4"
    )


def test_a_changed_configuration_restarts_the_second_scheduler() -> None:
    manifests = second()
    content = one(manifests, "ConfigMap")["data"]["config.yaml"]
    annotations = one(manifests, "Deployment")["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {"checksum/accelshare-scheduler-config": checksum(content.encode())}


def test_certificates_come_from_a_secret() -> None:
    manifests = second(tls_secret="accelshare-client")
    pod = one(manifests, "Deployment")["spec"]["template"]["spec"]
    assert {"name": "tls", "secret": {"secretName": "accelshare-client"}} in pod["volumes"]
    entry = entry_of(one(manifests, "ConfigMap")["data"]["config.yaml"].encode())
    assert entry["tlsConfig"]["certFile"] == "/etc/accelshare/tls/tls.crt"


def test_the_second_scheduler_soon_gives_up_a_dead_http2_connection() -> None:
    def variables(**more: Any) -> dict[str, str]:
        (container,) = one(second(**more), "Deployment")["spec"]["template"]["spec"]["containers"]
        return {variable["name"]: variable["value"] for variable in container.get("env", [])}

    assert variables(tls_secret="accelshare-client") == HTTP2_VARIABLES
    assert variables(tls_secret="accelshare-client", version="v1.19.16") == {}
    assert variables() == {}


def test_the_second_scheduler_may_use_its_own_lease_only() -> None:
    rules = one(second(), "Role")["rules"]
    assert [(rule["verbs"], rule.get("resourceNames")) for rule in rules] == [(["create"], None), (["get", "update"], ["cards"])]


def test_an_image_needs_the_whole_version() -> None:
    with pytest.raises(NotUnderstood, match="--image"):
        rendering.image_of(parse("1.36"))


if __name__ == "__main__":
    for file, case in CASES.items():
        Path(GOLDEN / file).write_bytes(rendered(*case))
