"""kubeadm's manifest with our file in it: what changes, what stays, what is refused."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from accelshare.install.errors import Clash, NotUnderstood
from accelshare.install.host_files.changes import unified_diff
from accelshare.install.scheduler import leadership, static_pod
from accelshare.install.scheduler.desired_config import HTTP2_VARIABLES, TlsFiles
from accelshare.install.scheduler.plan import CHECKSUM, Existing, Intent, SchedulerPlan, checksum
from tests.unit.install.scheduler.builders import KUBEADM, TLS, URL, desired, intent, mounting, with_words, words_of

NAME = "/etc/kubernetes/manifests/kube-scheduler.yaml"
CONFIG = "/etc/kubernetes/accelshare/scheduler-config.yaml"
OWN = "/etc/kubernetes/own.yaml"
OWN_CONTENT = b"""\
# Ours since 2021, ask Zheng before you change it.
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  kubeconfig: "/etc/kubernetes/scheduler.conf"   # the one of kubeadm
profiles:
  - schedulerName: default-scheduler
    plugins:
      score:
        disabled:
          - name: ImageLocality   # pulls are cheap here
  - schedulerName: packed
extenders:
  - urlPrefix: http://10.0.0.9:8888/other
    filterVerb: filter
    nodeCacheCapable: false
    managedResources:
      - name: other.example/fpga
        ignoredByScheduler: true
"""


def made(manifest: bytes = KUBEADM, own: bytes | None = None, asked: Intent | None = None, path: str = OWN) -> SchedulerPlan:
    existing = Existing(path, own) if own is not None else None
    return static_pod.plan(manifest, NAME, existing, asked or intent())


def pod(plan: SchedulerPlan) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(plan.trigger.content)
    return content


def added_and_removed(before: bytes, after: bytes) -> tuple[list[str], list[str]]:
    old, new = before.decode().splitlines(), after.decode().splitlines()
    return [line for line in new if line not in old], [line for line in old if line not in new]


def test_only_lines_are_added() -> None:
    """Argument, mount, volume and checksum; no line of kubeadm's moves or changes."""
    plan = made()
    added, removed = added_and_removed(KUBEADM, plan.trigger.content)
    assert removed == []
    assert added == [
        "  annotations:",
        f"    {CHECKSUM}: {checksum(plan.configuration.content)}",
        f"    - --config={CONFIG}",
        "    - mountPath: /etc/kubernetes/accelshare",
        "      name: accelshare-scheduler-config",
        "      path: /etc/kubernetes/accelshare",
        "      type: Directory",
        "    name: accelshare-scheduler-config",
    ]


def test_a_plan_of_what_was_planned_is_empty() -> None:
    first = made()
    again = made(first.trigger.content, first.configuration.content, path=CONFIG)
    assert (again.trigger.content, again.configuration.content) == (first.trigger.content, first.configuration.content)
    there = {first.trigger.path: first.trigger.content, first.configuration.path: first.configuration.content}
    assert diff(again, there) == ""


def diff(plan: SchedulerPlan, present: Mapping[str, bytes]) -> str:
    return "".join(unified_diff(file.path, present.get(file.path), file.content) for file in plan.files)


def test_the_difference_is_a_unified_diff() -> None:
    text = diff(made(), {NAME: KUBEADM})
    assert text.startswith(f"--- /dev/null\n+++ {CONFIG}\n@@ ")
    assert f"--- {NAME}\n+++ {NAME}\n@@ " in text
    assert "+    - --config=/etc/kubernetes/accelshare/scheduler-config.yaml\n" in text


def test_another_content_is_another_pod() -> None:
    """kubelet restarts a static pod only when its manifest changes."""
    one, other = made(), made(asked=intent(desired(weight=2)))
    assert one.trigger.content != other.trigger.content


def test_flags_that_the_file_makes_void_are_said_in_the_file() -> None:
    manifest = with_words("--kube-api-qps=75.5", "--kube-api-burst=90", "--profiling=false", "--contention-profiling=false")
    content = yaml.safe_load(made(manifest).configuration.content)
    assert content["clientConnection"] == {"kubeconfig": "/etc/kubernetes/scheduler.conf", "qps": 75.5, "burst": 90}
    assert (content["enableProfiling"], content["enableContentionProfiling"]) == (False, False)
    assert "leaderElection" not in content  # these flags still count


def test_leader_election_moves_into_the_file_before_122() -> None:
    manifest = with_words("--leader-elect-lease-duration=30s", "--lock-object-name=mine", version="v1.20.4")
    plan = made(manifest, asked=intent(version="v1.20.4", kind="configuration"))
    assert yaml.safe_load(plan.configuration.content)["leaderElection"] == {
        "resourceName": "mine",
        "leaderElect": True,
        "leaseDuration": "30s",
    }


def test_a_scheduler_name_moves_into_the_file() -> None:
    manifest = with_words("--scheduler-name=mine", version="v1.20.4")
    content = yaml.safe_load(made(manifest, asked=intent(version="v1.20.4", kind="configuration")).configuration.content)
    assert content["profiles"] == [{"schedulerName": "mine"}]


@pytest.mark.parametrize("word", ["--algorithm-provider=ClusterAutoscalerProvider", "--hard-pod-affinity-symmetric-weight=50"])
@pytest.mark.parametrize("kind", ["policy", "configuration"])
def test_flags_that_would_lose_their_effect_are_refused(word: str, kind: Any) -> None:
    with pytest.raises(NotUnderstood, match=word):
        made(with_words(word, version="v1.20.4"), asked=intent(version="v1.20.4", kind=kind))


# What the operator configured stays.


def own_manifest(*words: str) -> bytes:
    return mounting(with_words(f"--config={OWN}", *words), OWN)


def test_the_operators_file_is_kept_with_comments_and_formatting() -> None:
    plan = made(own_manifest(), OWN_CONTENT)
    added, removed = added_and_removed(OWN_CONTENT, plan.configuration.content)
    assert removed == []
    assert added[0] == f"  - urlPrefix: {URL}"
    assert len(yaml.safe_load(plan.configuration.content)["extenders"]) == 2
    assert plan.configuration.path == CONFIG  # a copy: the operator's own file is not written
    assert plan.configuration.like == OWN


def test_the_argument_then_names_ours_in_its_place() -> None:
    words = words_of(made(own_manifest("--v=2"), OWN_CONTENT).trigger.content)
    assert words[-2:] == [f"--config={CONFIG}", "--v=2"]


def test_an_argument_in_two_words_stays_in_two_words() -> None:
    manifest = mounting(with_words("--config", OWN), OWN)
    assert words_of(made(manifest, OWN_CONTENT).trigger.content)[-2:] == ["--config", CONFIG]


def test_the_host_may_keep_the_operators_file_elsewhere() -> None:
    manifest = mounting(with_words(f"--config={OWN}"), OWN).replace(f"      path: {OWN}".encode(), b"      path: /srv/sched.yaml")
    assert static_pod.existing_path(manifest, NAME, intent()) == "/srv/sched.yaml"


def test_a_file_that_is_in_no_volume_cannot_be_kept() -> None:
    with pytest.raises(NotUnderstood, match="in no hostPath volume"):
        static_pod.existing_path(with_words(f"--config={OWN}"), NAME, intent())


def test_percentage_and_limits_of_the_operator_stay_and_ours_are_proposed() -> None:
    own = OWN_CONTENT + b"percentageOfNodesToScore: 40\n"
    plan = made(own_manifest(), own)
    assert yaml.safe_load(plan.configuration.content)["percentageOfNodesToScore"] == 40
    assert any("percentageOfNodesToScore 100 (now 40)" in notice for notice in plan.notices)
    asked = made(own_manifest(), own, intent(desired(percentage=100, qps=200, burst=400)))
    content = yaml.safe_load(asked.configuration.content)
    assert (content["percentageOfNodesToScore"], content["clientConnection"]["qps"]) == (100, 200)
    assert asked.notices == ()


def test_a_second_apply_with_another_weight_changes_our_entry_only() -> None:
    first = made(own_manifest(), OWN_CONTENT)
    again = made(own_manifest(), first.configuration.content, intent(desired(weight=7)))
    added, removed = added_and_removed(first.configuration.content, again.configuration.content)
    assert (added, removed) == (["    weight: 7"], ["    weight: 1"])


def test_an_extender_of_the_same_resources_must_be_replaced_by_name() -> None:
    own = OWN_CONTENT.replace(b"other.example/fpga", b"acme.example/zpu")
    with pytest.raises(Clash, match=r"manages acme.example/zpu.*--replace http://10.0.0.9:8888/other"):
        made(own_manifest(), own)
    plan = made(own_manifest(), own, intent(replace=("http://10.0.0.9:8888/other/",)))
    assert [entry["urlPrefix"] for entry in yaml.safe_load(plan.configuration.content)["extenders"]] == [URL]


def test_two_extenders_that_bind_are_a_clash() -> None:
    own = OWN_CONTENT.replace(b"    filterVerb: filter\n", b"    filterVerb: filter\n    bindVerb: bind\n")
    with pytest.raises(Clash, match="binds pods"):
        made(own_manifest(), own)


def test_replacing_what_is_not_there_is_a_mistake() -> None:
    with pytest.raises(Clash, match=r"http://x/y.*http://10.0.0.9:8888/other"):
        made(own_manifest(), OWN_CONTENT, intent(replace=("http://x/y",)))
    with pytest.raises(Clash, match="http://x/y"):
        made(asked=intent(replace=("http://x/y",)))


def test_a_configuration_of_another_version_is_refused() -> None:
    own = OWN_CONTENT.replace(b"k8s.io/v1\n", b"k8s.io/v1beta2\n")
    with pytest.raises(NotUnderstood, match=r"KubeSchedulerConfiguration kubescheduler.config.k8s.io/v1beta2; this kube-sch"):
        made(own_manifest(), own)
    kept = made(own_manifest(), own, intent(version="v1.26.1"))
    assert b"k8s.io/v1beta2\n" in kept.configuration.content


# Policies.


def policy_manifest(*words: str, version: str = "v1.20.4") -> bytes:
    return mounting(
        with_words("--policy-config-file=/etc/kubernetes/policy.json", *words, version=version), "/etc/kubernetes/policy.json"
    )


POLICY_CONTENT = b"""\
{
    "kind": "Policy",
    "apiVersion": "v1",
    "predicates": [
        {"name": "GeneralPredicates"}
    ]
}
"""


def test_on_122_a_configuration_is_made_and_the_operators_policy_is_kept_with_a_word() -> None:
    plan = made(with_words("--v=2", version="v1.22.17"), asked=intent(version="v1.22.17"))
    assert words_of(plan.trigger.content)[-1] == f"--config={CONFIG}"
    kept = made(policy_manifest(version="v1.22.17"), POLICY_CONTENT, intent(version="v1.22.17"), "/etc/kubernetes/policy.json")
    assert yaml.safe_load(kept.configuration.content)["kind"] == "Policy"
    assert any("--v=2" in notice for notice in kept.notices)


@pytest.mark.parametrize("word", ["--v=2", "-v=4"])
def test_a_policy_on_122_that_would_crash_is_refused(word: str) -> None:
    with pytest.raises(NotUnderstood, match=r"v1\.22.*Policy.*--v=2"):
        made(policy_manifest(word, version="v1.22.17"), POLICY_CONTENT, intent(version="v1.22.17"), "/etc/kubernetes/policy.json")


def test_client_limits_of_a_policy_beside_a_configuration_are_refused() -> None:
    """Beside --config kube-scheduler ignores --kube-api-qps and --kube-api-burst, and a Policy has no place for them."""
    manifest = policy_manifest("--config=/etc/own.yaml")
    with pytest.raises(Clash, match="--kube-api-qps and --kube-api-burst"):
        made(manifest, POLICY_CONTENT, intent(desired(qps=200), "v1.20.4"), "/etc/kubernetes/policy.json")


def test_a_plain_port_that_stays_open_is_said_aloud() -> None:
    def notices(*words: str) -> str:
        asked = intent(version="v1.20.4", kind="configuration")
        return "\n".join(made(with_words(*words, version="v1.20.4"), asked=asked).notices)

    assert "127.0.0.1:10251" in notices("--port=0")
    assert "without authentication" not in notices("--port=0")
    assert "without authentication" in notices("--port=10251", "--address=0.0.0.0")


def test_an_operators_file_that_leaves_the_plain_port_open_is_said_aloud() -> None:
    own = OWN_CONTENT.replace(b"k8s.io/v1\n", b"k8s.io/v1beta1\n")
    manifest = mounting(with_words(f"--config={OWN}", "--port=0", version="v1.20.4"), OWN)
    plan = made(manifest, own, intent(version="v1.20.4"))
    assert "BindAddress" not in plan.configuration.content.decode()
    assert any("healthzBindAddress" in notice and "without authentication" in notice for notice in plan.notices)
    closed = own + b"healthzBindAddress: 127.0.0.1:10251\nmetricsBindAddress: 127.0.0.1:10251\n"
    assert not any("without authentication" in notice for notice in made(manifest, closed, intent(version="v1.20.4")).notices)


def test_below_122_a_policy_is_made() -> None:
    plan = made(with_words(version="v1.20.4"), asked=intent(version="v1.20.4"))
    assert words_of(plan.trigger.content)[-1] == "--policy-config-file=/etc/kubernetes/accelshare/scheduler-policy.json"


def test_the_operators_policy_is_kept() -> None:
    plan = made(policy_manifest(), POLICY_CONTENT, intent(version="v1.20.4"), "/etc/kubernetes/policy.json")
    content = yaml.safe_load(plan.configuration.content)
    assert content["predicates"] == [{"name": "GeneralPredicates"}]
    assert content["extenders"][0]["httpTimeout"] == 5_000_000_000
    assert plan.configuration.content.startswith(b'{\n    "kind": "Policy",\n')


def test_client_limits_of_a_policy_are_flags() -> None:
    plan = made(with_words(version="v1.20.4"), asked=intent(desired(qps=200, burst=400), "v1.20.4"))
    assert words_of(plan.trigger.content)[-2:] == ["--kube-api-qps=200", "--kube-api-burst=400"]


def test_a_policy_beside_a_configuration_counts_except_in_118() -> None:
    words = (f"--config={OWN}",)
    for version, expected in (("v1.18.3", OWN), ("v1.20.4", "/etc/kubernetes/policy.json")):
        manifest = mounting(policy_manifest(*words, version=version), OWN).replace(b"name: own\n", b"name: own2\n", 1)
        manifest = re.sub(rb"(path: /etc/kubernetes/own.yaml\n\s+type: File\n\s+name: )own\n", rb"\1own2\n", manifest)
        manifest = manifest.replace(
            b"- mountPath: /etc/kubernetes/own.yaml\n      name: own\n",
            b"- mountPath: /etc/kubernetes/own.yaml\n      name: own2\n",
        )
        manifest = manifest.replace(
            b"- mountPath: /etc/kubernetes/policy.json\n      name: own2\n",
            b"- mountPath: /etc/kubernetes/policy.json\n      name: own\n",
        )
        assert static_pod.existing_path(manifest, NAME, intent(version=version)) == expected


def test_a_policy_in_a_config_map_is_not_ours_to_edit() -> None:
    manifest = with_words("--policy-configmap=scheduler-policy", version="v1.20.4")
    with pytest.raises(NotUnderstood, match="ConfigMap kube-system/scheduler-policy"):
        made(manifest, asked=intent(version="v1.20.4"))


def test_policy_flags_on_a_new_version_are_a_mistake() -> None:
    with pytest.raises(NotUnderstood, match="has no flag --policy-config-file"):
        made(policy_manifest(version="v1.23.1"), asked=intent(version="v1.23.1"))


def test_the_other_kind_beside_what_is_there_would_not_count() -> None:
    with pytest.raises(Clash, match="already reads its extenders from a policy"):
        made(policy_manifest(), POLICY_CONTENT, intent(version="v1.20.4", kind="configuration"))


# Certificates and addresses.


def test_certificates_beside_our_file_need_no_volume_of_their_own() -> None:
    plan = made(asked=intent(desired("https://10.96.0.10/accelshare", tls=TLS)))
    assert len(pod(plan)["spec"]["volumes"]) == 2


def test_certificates_elsewhere_are_mounted_as_directories() -> None:
    """A renewed file is a new file under the old name: a mount of the file itself would show the old one for ever."""
    tls = TlsFiles("/etc/pki/ca/ca.crt", "/etc/pki/client/tls.crt", "/etc/pki/client/tls.key")
    plan = made(asked=intent(desired("https://10.96.0.10/accelshare", tls=tls)))
    mounts = pod(plan)["spec"]["containers"][0]["volumeMounts"]
    assert [mount["mountPath"] for mount in mounts[1:]] == ["/etc/kubernetes/accelshare", "/etc/pki/ca", "/etc/pki/client"]
    assert all(mount["readOnly"] for mount in mounts)


# Variables for HTTP/2.

OVER_TLS = desired("https://10.96.0.10/accelshare", tls=TLS)
IDLE, PING = HTTP2_VARIABLES


def with_variables(*lines: str, manifest: bytes = KUBEADM) -> bytes:
    """The manifest of an operator who has set variables."""
    text = "".join(f"    {line}\n" for line in ("env:", *lines))
    return manifest.replace(b"    image: ", text.encode() + b"    image: ", 1)


def variables(plan: SchedulerPlan) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pod(plan)["spec"]["containers"][0].get("env", [])
    return found


def test_with_tls_kube_scheduler_soon_gives_up_a_dead_http2_connection() -> None:
    plan = made(asked=intent(OVER_TLS))
    assert variables(plan) == [{"name": IDLE, "value": "2"}, {"name": PING, "value": "4"}]
    assert added_and_removed(KUBEADM, plan.trigger.content)[1] == []
    assert not any(name in notice for notice in plan.notices for name in HTTP2_VARIABLES)


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        (intent(), []),
        (intent(OVER_TLS, "v1.19.16"), []),
        (intent(OVER_TLS, "v1.20.15"), [IDLE, PING]),
    ],
    ids=["no TLS", "1.19", "1.20"],
)
def test_variables_are_set_where_they_are_read(asked: Intent, names: list[str]) -> None:
    plan = made(with_words(version=asked.release.text), asked=asked)
    assert [variable["name"] for variable in variables(plan)] == names


def test_a_plan_of_what_was_planned_with_tls_is_empty() -> None:
    first = made(with_variables("- name: GOGC", '  value: "50"'), asked=intent(OVER_TLS))
    again = made(first.trigger.content, first.configuration.content, intent(OVER_TLS), path=CONFIG)
    assert diff(again, {file.path: file.content for file in first.files}) == ""
    assert again.notices == first.notices


def test_the_operators_variables_stay_and_other_values_are_named() -> None:
    manifest = with_variables("- name: GOGC", '  value: "50" # less memory', f"- name: {IDLE}", '  value: "30"')
    plan = made(manifest, asked=intent(OVER_TLS))
    assert variables(plan) == [
        {"name": "GOGC", "value": "50"},
        {"name": IDLE, "value": "30"},
        {"name": PING, "value": "4"},
    ]
    assert added_and_removed(manifest, plan.trigger.content)[1] == []
    (notice,) = [notice for notice in plan.notices if IDLE in notice]
    assert "is 30 " in notice
    assert "2 is proposed" in notice
    assert not any(PING in notice for notice in plan.notices)


def test_a_variable_whose_value_comes_from_elsewhere_stays() -> None:
    manifest = with_variables(f"- name: {PING}", "  valueFrom:", "    fieldRef: {fieldPath: metadata.name}")
    plan = made(manifest, asked=intent(OVER_TLS))
    assert [variable["name"] for variable in variables(plan)] == [PING, IDLE]
    assert any(f"{PING} is from valueFrom" in notice for notice in plan.notices)


def test_variables_that_the_operator_set_alike_are_no_news() -> None:
    manifest = with_variables(f"- name: {PING}", '  value: "4"', f"- name: {IDLE}", '  value: "2"')
    plan = made(manifest, asked=intent(OVER_TLS))
    assert len(variables(plan)) == 2
    assert not any(name in notice for notice in plan.notices for name in HTTP2_VARIABLES)


def test_a_directory_that_is_seen_already_is_not_mounted_twice() -> None:
    manifest = KUBEADM.replace(b"- mountPath: /etc/kubernetes/scheduler.conf", b"- mountPath: /etc/kubernetes")
    manifest = manifest.replace(b"path: /etc/kubernetes/scheduler.conf\n      type: FileOrCreate", b"path: /etc/kubernetes")
    assert len(pod(made(manifest))["spec"]["volumes"]) == 1


def test_a_directory_that_is_another_in_the_container_is_refused() -> None:
    manifest = KUBEADM.replace(b"- mountPath: /etc/kubernetes/scheduler.conf", b"- mountPath: /etc/kubernetes")
    manifest = manifest.replace(b"path: /etc/kubernetes/scheduler.conf\n      type: FileOrCreate", b"path: /srv/kubernetes")
    with pytest.raises(NotUnderstood, match="in the container is the host's /srv/kubernetes/accelshare"):
        made(manifest)


@pytest.mark.parametrize("host", ["accelshare", "accelshare.kube-system.svc", "accelshare.kube-system.svc.cluster.local"])
def test_names_of_services_are_not_resolved_in_the_hosts_network(host: str) -> None:
    with pytest.raises(NotUnderstood, match="accelshare"):
        made(asked=intent(desired(f"http://{host}:12345/accelshare")))


def test_plain_http_across_the_network_is_said_aloud() -> None:
    assert any("plain HTTP" in notice for notice in made(asked=intent(desired("http://10.96.0.10:1/accelshare"))).notices)
    assert not any("plain HTTP" in notice for notice in made().notices)


def test_a_proxy_in_between_is_said_aloud() -> None:
    env = b"    env:\n    - name: HTTP_PROXY\n      value: http://proxy:3128\n    - name: NO_PROXY\n      value: 10.0.0.1\n"
    manifest = KUBEADM.replace(b"    imagePullPolicy", env + b"    imagePullPolicy")
    assert any(
        "NO_PROXY covers 10.96.0.10" in notice
        for notice in made(manifest, asked=intent(desired("http://10.96.0.10:1/a"))).notices
    )
    assert not any("NO_PROXY" in notice for notice in made(manifest).notices)


# What is not understood is refused.


@pytest.mark.parametrize(
    ("more", "fact"),
    [
        (b"leaderElection: x\n", "leaderElection is 'x'; it must be a mapping"),
        (b"clientConnection: [1]\n", "clientConnection is [1]; it must be a mapping"),
        (b"extenders: x\n", "extenders is 'x'; it must be a list of mappings"),
        (b"extenders: [1]\n", "extenders is [1]; it must be a list of mappings"),
        (b"extenders: [{urlPrefix: u, managedResources: x}]\n", "managedResources is 'x'; it must be a list of mappings"),
        (b"extenders: [{urlPrefix: u, managedResources: [x]}]\n", "managedResources is ['x']; it must be a list of mappings"),
    ],
)
def test_a_broken_configuration_of_the_operators_is_refused(more: bytes, fact: str) -> None:
    own = b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n" + more
    with pytest.raises(NotUnderstood, match=re.escape(fact)):
        leadership.place(made(mounting(with_words(f"--config={OWN}"), OWN), own), intent().release)


@pytest.mark.parametrize(
    ("old", "new", "fact"),
    [
        (b"metadata:\n", b"metadata: x\nother:\n", "metadata is 'x'"),
        (b"    volumeMounts:\n", b"    volumeMounts: x\n    other:\n", "volumeMounts is 'x'"),
        (b"  volumes:\n", b"  volumes: [x]\n  other:\n", "volumes is ['x']"),
        (b"    imagePullPolicy", b"    env: x\n    imagePullPolicy", "env is 'x'"),
        (b"    imagePullPolicy", b"    args: 5\n    imagePullPolicy", "args is 5"),
    ],
)
def test_a_broken_manifest_is_refused(old: bytes, new: bytes, fact: str) -> None:
    assert old in KUBEADM
    with pytest.raises(NotUnderstood, match=re.escape(fact)):
        made(KUBEADM.replace(old, new, 1))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a: [", "cannot be read"),
        (b"\xff\xfe", "not UTF-8"),
        (b"- a\n", "is not a mapping"),
        (b"kind: Pod\nkind: Pod\n", "cannot be read"),
        (KUBEADM + b"---\n" + KUBEADM, "2 documents"),
        (KUBEADM.replace(b"kind: Pod", b"kind: Deployment"), "is not a Pod"),
        (
            KUBEADM.replace(b"    - kube-scheduler\n", b"    - /bin/sh\n    - -c\n    - exec kube-scheduler\n"),
            "'kube-scheduler' by 'sh'",
        ),
        (KUBEADM.replace(b"    - kube-scheduler\n", b"    - kube-controller-manager\n"), "kube-controller-manager"),
        (with_words("--config=$(CONFIG)"), "depends on the environment"),
        (with_words("--bind-address=::"), "is not a string"),
        (with_words("--config=/a", "--config=/b"), "is set 2 times"),
    ],
)
def test_what_is_not_understood_is_refused_with_a_message(content: bytes, words: str) -> None:
    with pytest.raises(NotUnderstood, match=re.escape(words)):
        made(content, OWN_CONTENT if b"/b" in content else None)


def test_our_own_file_named_by_somebody_else_is_refused() -> None:
    manifest = mounting(with_words(f"--config={CONFIG}"), "/etc/kubernetes/accelshare")
    with pytest.raises(NotUnderstood, match="accelshare did not write it"):
        made(manifest, OWN_CONTENT, path=CONFIG)


def test_a_volume_of_our_name_is_refused() -> None:
    manifest = mounting(KUBEADM, "/other").replace(b"name: own", b"name: accelshare-scheduler-config")
    with pytest.raises(NotUnderstood, match="for something else"):
        made(manifest)


# Other people's formatting.


def test_arguments_may_stand_under_args() -> None:
    manifest = KUBEADM.replace(b"  - command:\n    - kube-scheduler\n", b"  - args:\n")
    args = pod(made(manifest))["spec"]["containers"][0]["args"]
    assert args[-1] == f"--config={CONFIG}"


def test_flags_in_two_lists_are_refused() -> None:
    """kube-scheduler reads command and args one after the other: a --config of the operator's in the first would be overruled."""
    manifest = own_manifest().replace(b"    image: ", b"    args:\n    - --v=2\n    image: ", 1)
    with pytest.raises(NotUnderstood, match="flags are in command and in args"):
        made(manifest, OWN_CONTENT)


def test_an_empty_argument_names_no_file() -> None:
    plan = made(with_words("--config="))
    assert words_of(plan.trigger.content)[-1] == f"--config={CONFIG}"
    assert plan.configuration.content == made().configuration.content


def test_existing_annotations_stay() -> None:
    manifest = KUBEADM.replace(b"metadata:\n", b"metadata:\n  annotations:\n    a: b # why\n  creationTimestamp: null\n")
    text = made(manifest).trigger.content
    assert added_and_removed(manifest, text)[1] == []
    assert yaml.safe_load(text)["metadata"]["annotations"]["a"] == "b"


@pytest.mark.parametrize(
    "manner",
    [
        lambda text: text.replace(b"\n", b"\r\n"),
        lambda text: text.rstrip(b"\n"),
        lambda text: b"---\n" + text,
        lambda text: b"# a comment\n\n" + text,
        lambda text: re.sub(rb"(?m)^( +)(- .*|name: probe-port|protocol: TCP)$", rb"\1\2", text),
    ],
)
def test_manners_are_kept(manner: Any) -> None:
    manifest = manner(KUBEADM)
    text = made(manifest).trigger.content
    assert added_and_removed(manifest, text)[1] == []
    assert text.endswith(b"\n") == manifest.endswith(b"\n")
    assert text.count(b"\r") in (0, text.count(b"\n"))


def test_health_is_asked_where_the_manifest_says() -> None:
    assert static_pod.health_url(KUBEADM, NAME) == "https://127.0.0.1:10259/readyz"
    moved = with_words("--secure-port=10999").replace(b"--bind-address=127.0.0.1", b"'--bind-address=::'")
    assert static_pod.health_url(moved, NAME) == "https://[::1]:10999/readyz"


def test_the_version_is_the_images() -> None:
    found = static_pod.release_of(KUBEADM, NAME)
    assert found is not None
    assert (found.minor, found.text) == (36, "v1.36.4")
    assert static_pod.release_of(KUBEADM.replace(b":v1.36.4", b"@sha256:abc"), NAME) is None


def test_the_sample_is_what_kubeadm_writes() -> None:
    assert Path(__file__).with_name("kubeadm-1.36.yaml").read_bytes() == KUBEADM
