"""Which Lease kube-scheduler uses for leader election, and reading it."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from accelshare.install.errors import NoLease, NotUnderstood
from accelshare.install.scheduler import leadership, static_pod
from accelshare.install.scheduler.leadership import LeasePlace
from accelshare.install.scheduler.plan import Existing
from accelshare.install.scheduler.release import Kind, parse
from tests.unit.install.scheduler.builders import intent, mounting, with_words

CONF = "/etc/kubernetes/scheduler.conf"
OWN = "/etc/kubernetes/own.yaml"
DEFAULT = LeasePlace(CONF, "kube-system", "kube-scheduler")


def place(*words: str, version: str = "v1.36.4", kind: Kind | None = None, own: Mapping[str, object] | None = None) -> LeasePlace:
    existing = None
    manifest = with_words(*words, version=version)
    if own is not None:
        head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
        existing = Existing(OWN, yaml.safe_dump(head | dict(own)).encode())
        manifest = mounting(with_words(f"--config={OWN}", *words, version=version), OWN)
    plan = static_pod.plan(manifest, "manifest", existing, intent(version=version, kind=kind))
    return leadership.place(plan, parse(version))


@pytest.mark.parametrize("version", ["v1.18.19", "v1.20.15", "v1.22.17", "v1.36.4"])
def test_by_default_it_is_kubernetes_own(version: str) -> None:
    assert place(version=version) == DEFAULT


@pytest.mark.parametrize(("version", "kind"), [("v1.20.15", "policy"), ("v1.20.15", "configuration"), ("v1.24.17", None)])
def test_old_names_are_followed(version: str, kind: Kind | None) -> None:
    assert place("--lock-object-name=mine", "--lock-object-namespace=there", version=version, kind=kind) == LeasePlace(
        CONF, "there", "mine"
    )


def test_flags_count_beside_a_file_from_122_on() -> None:
    assert place("--leader-elect-resource-name=mine").name == "mine"
    own = {"clientConnection": {"kubeconfig": CONF}, "leaderElection": {"resourceName": "file"}}
    assert place("--leader-elect-resource-name=flag", own=own).name == "flag"
    assert place(own=own).name == "file"


@pytest.mark.parametrize("nothing", [None, ""])
def test_a_key_without_a_value_has_its_default(nothing: str | None) -> None:
    """As kube-scheduler reads it: a Lease of the name "None" would never be renewed, and a good change be rolled back."""
    election = {"resourceName": nothing, "resourceNamespace": nothing, "resourceLock": nothing, "leaderElect": None}
    assert place(own={"clientConnection": {"kubeconfig": CONF}, "leaderElection": election}) == DEFAULT


@pytest.mark.parametrize(
    ("election", "words"),
    [
        ({"leaderElect": False}, "leader election is disabled"),
        ({"resourceLock": "configmaps"}, "configmaps"),
    ],
)
def test_where_there_is_no_lease_that_is_said(election: dict[str, object], words: str) -> None:
    # kubeadm's --leader-elect=true counts beside a file, so that the file's own word is looked at without it.
    own = {"clientConnection": {"kubeconfig": CONF}, "leaderElection": election}
    with pytest.raises(NoLease, match=words):
        place(*(["--leader-elect=false"] if "leaderElect" in election else []), own=own)


@pytest.mark.parametrize("delayed", [True, False, None])
def test_one_that_fills_its_caches_only_as_leader_is_known_by_its_file(delayed: bool | None) -> None:
    own = {"clientConnection": {"kubeconfig": CONF}, "delayCacheUntilActive": delayed}
    assert place(own=own).ready_only_as_leader is (delayed is True)


@pytest.mark.parametrize("key", ["leaderElection", "clientConnection"])
def test_a_section_that_is_not_a_mapping_is_refused(key: str) -> None:
    with pytest.raises(NotUnderstood, match=rf"{key} is 'x'; it must be a mapping"):
        place(own={"clientConnection": {"kubeconfig": CONF}, key: "x"})


def test_a_file_without_a_kubeconfig_has_no_lease_to_read() -> None:
    with pytest.raises(NoLease, match="no kubeconfig"):
        place(own={})


def test_a_kubeconfig_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(NoLease, match=r"scheduler\.conf"):
        leadership.read(LeasePlace(str(tmp_path / "scheduler.conf"), "kube-system", "kube-scheduler"))


def test_a_kubeconfig_that_is_none_is_said(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.conf"
    file.write_text("apiVersion: v1\nkind: Config\n")
    with pytest.raises(NoLease, match="Lease kube-system/kube-scheduler cannot be read"):
        leadership.read(LeasePlace(str(file), "kube-system", "kube-scheduler"))
