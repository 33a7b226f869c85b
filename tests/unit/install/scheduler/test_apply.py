"""`scheduler-config apply` and `restore`: what is on the disk after each outcome."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from accelshare.install.errors import ChangedByOthers, InstallError, NoLease, NotUnderstood, Rejected, RolledBack
from accelshare.install.host_files.disk import Disk
from accelshare.install.scheduler import apply as applying
from accelshare.install.scheduler.desired_config import TlsFiles
from accelshare.install.scheduler.host import HostState
from accelshare.install.scheduler.leadership import LeasePlace, ReadLease
from accelshare.install.scheduler.plan import CHECKSUM, SchedulerPlan
from accelshare.kube.leases import LeaseSpec
from cluster.certificates import Authority
from tests.unit.install.scheduler.builders import KUBEADM, Host, desired, mounting, with_words


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def is_new(content: bytes) -> bool:
    return CHECKSUM.encode() in content


def test_applied_and_restored_to_the_byte(host: Host) -> None:
    before = host.places()
    assert host.apply() == "applied"
    assert host.state() is HostState.INSTALLED
    assert yaml.safe_load(host.config.read_bytes())["extenders"]
    assert host.restore() == "restored"
    assert host.manifest.read_bytes() == KUBEADM
    assert host.manifest.stat().st_mode & 0o777 == 0o600
    assert host.places() == before


def test_applying_twice_changes_nothing(host: Host) -> None:
    host.apply()
    files = host.files()
    inode = host.manifest.stat().st_ino
    assert host.plan() == ""
    assert host.apply() == "unchanged"
    assert host.files() == files
    assert host.manifest.stat().st_ino == inode


def test_planning_writes_nothing(host: Host) -> None:
    places = host.places()
    assert "+    - --config=" in host.plan()
    assert host.places() == places


def test_another_wish_replaces_the_first_and_restores_to_the_original(host: Host) -> None:
    host.apply()
    assert host.plan(desired("http://127.0.0.1:1/other")) != ""
    assert host.apply(desired("http://127.0.0.1:1/other")) == "applied"
    entries = yaml.safe_load(host.config.read_bytes())["extenders"]
    assert [entry["urlPrefix"] for entry in entries] == ["http://127.0.0.1:1/other"]
    host.restore()
    assert host.files() == {"manifests/kube-scheduler.yaml": KUBEADM}


def test_only_what_is_needed_for_the_way_back_is_kept(host: Host) -> None:
    host.apply()
    host.apply(desired(weight=2))
    host.apply(desired(weight=3))
    assert len(list(host.archive.glob("*.backup"))) == 1
    assert host.archive.stat().st_mode & 0o777 == 0o700
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in host.archive.iterdir())


def test_the_record_has_the_hashes_of_what_was_and_of_what_we_wrote(host: Host) -> None:
    host.apply()
    record = json.loads((host.archive / "record.json").read_bytes())
    scheduler_host = host.scheduler_host()
    trigger = next(file for file in record["files"] if file["path"] == str(host.manifest))
    assert trigger["written"] == scheduler_host.sha256(str(host.manifest))
    assert (host.archive / f"{trigger['original']['sha256']}.backup").read_bytes() == KUBEADM


def test_the_configuration_is_there_before_the_manifest_names_it(host: Host) -> None:
    steps: list[str] = []
    host.apply(disk=Disk(steps.append))
    renamed = [step.removeprefix("renamed to ") for step in steps if step.startswith("renamed")]
    assert renamed.index(str(host.config)) < renamed.index(str(host.manifest))


def test_the_manifest_comes_back_before_the_configuration_goes(host: Host) -> None:
    host.apply()
    steps: list[str] = []
    host.restore(disk=Disk(steps.append))
    assert steps.index(f"renamed to {host.manifest}") < steps.index(f"removed {host.config}")


def test_kubelet_never_sees_a_second_manifest(host: Host) -> None:
    """It reads every entry that does not begin with a dot, at any moment."""

    def look(_step: str) -> None:
        visible = [entry.name for entry in host.manifest.parent.iterdir() if not entry.name.startswith(".")]
        assert visible == ["kube-scheduler.yaml"]
        yaml.safe_load(host.manifest.read_bytes())

    host.apply(disk=Disk(look))
    host.restore(disk=Disk(look))


def test_a_directory_that_was_there_stays(host: Host) -> None:
    host.directory.mkdir()
    (host.directory / "ca.crt").write_text("CA")
    host.apply()
    host.restore()
    assert (host.directory / "ca.crt").read_text() == "CA"


def test_certificates_put_into_our_directory_later_stay(host: Host) -> None:
    host.apply()
    (host.directory / "ca.crt").write_text("CA")
    host.restore()
    assert [file.name for file in host.directory.iterdir()] == ["ca.crt"]


def test_a_configuration_made_from_another_is_guarded_as_that_one(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
    own.chmod(0o640)
    host = Host(tmp_path, mounting(with_words(f"--config={own}"), str(own)))
    host.apply()
    assert host.config.stat().st_mode & 0o777 == 0o640
    before = own.read_bytes()
    host.restore()
    assert own.read_bytes() == before


# When the new scheduler does not come up.


def test_an_unhealthy_scheduler_is_rolled_back_with_the_reason(host: Host) -> None:
    before = host.places()
    host.kubelet.breaks = is_new
    host.kubelet.words = "the end of kube-scheduler/0.log:\nunknown field"
    with pytest.raises(RolledBack) as rolled:
        host.apply()
    assert "was not healthy within 30 s: connection refused" in str(rolled.value)
    assert "unknown field" in str(rolled.value)
    assert "the former files are restored, and kube-scheduler is healthy" in str(rolled.value)
    assert host.manifest.read_bytes() == KUBEADM
    assert host.places() == before


def test_a_failed_second_apply_goes_back_to_the_first(host: Host) -> None:
    host.apply()
    files = host.files()
    host.kubelet.breaks = lambda content: content != files["manifests/kube-scheduler.yaml"] and is_new(content)
    with pytest.raises(RolledBack):
        host.apply(desired(weight=9))
    assert {name: content for name, content in host.files().items() if "archive" not in name} == {
        name: content for name, content in files.items() if "archive" not in name
    }
    assert host.state() is HostState.INSTALLED
    host.restore()
    assert host.files() == {"manifests/kube-scheduler.yaml": KUBEADM}


def test_a_manifest_that_kubeadm_wrote_in_the_meantime_is_not_rolled_back(host: Host) -> None:
    """The backup is of another version of kube-scheduler; what is there now has nothing of ours in it."""
    upgraded = KUBEADM.replace(b"v1.36.4", b"v1.36.5")

    def breaks(content: bytes) -> bool:
        if is_new(content):
            host.manifest.write_bytes(upgraded)
        return True

    host.kubelet.breaks = breaks
    with pytest.raises(RolledBack, match=f"{host.manifest} was replaced in the meantime"):
        host.apply()
    assert host.files() == {"manifests/kube-scheduler.yaml": upgraded}


def test_the_same_after_an_apply_that_went_well(host: Host) -> None:
    """Then it is what `status` calls overwritten, and the next apply puts us in again."""
    host.apply()
    first, upgraded = host.manifest.read_bytes(), KUBEADM.replace(b"v1.36.4", b"v1.36.5")

    def breaks(content: bytes) -> bool:
        if content != first:
            host.manifest.write_bytes(upgraded)
        return content != first

    host.kubelet.breaks = breaks
    with pytest.raises(RolledBack, match="it stays unchanged"):
        host.apply(desired(weight=2))
    assert (host.manifest.read_bytes(), host.state()) == (upgraded, HostState.OVERWRITTEN)
    host.kubelet.breaks = lambda _content: False
    host.apply(version="v1.36.5")
    host.restore()
    assert host.files() == {"manifests/kube-scheduler.yaml": upgraded}


def test_a_kubelet_that_does_not_react_is_noticed(host: Host) -> None:
    """The old scheduler goes on answering; that is no success."""
    host.kubelet.check_health()
    host.kubelet.asleep = True
    with pytest.raises(RolledBack, match="has not replaced the former one"):
        host.apply()
    assert host.manifest.read_bytes() == KUBEADM


def test_a_scheduler_that_was_down_before_may_be_configured(host: Host) -> None:
    host.kubelet.breaks = lambda content: not is_new(content)
    assert host.apply() == "applied"


def test_a_disk_that_refuses_is_rolled_back(host: Host) -> None:
    def refuse(step: str) -> None:
        if step.startswith("rename to") and step.endswith("kube-scheduler.yaml") and not refused:
            refused.append(step)
            raise PermissionError(13, "Permission denied", step)

    refused: list[str] = []
    with pytest.raises(RolledBack, match="Permission denied"):
        host.apply(disk=Disk(refuse))
    assert host.files() == {"manifests/kube-scheduler.yaml": KUBEADM}


def test_a_full_disk_before_anything_was_changed_leaves_nothing(host: Host) -> None:
    def refuse(step: str) -> None:
        if step.startswith("write the rest of") and "record" in step:
            raise OSError(28, "No space left on device", step)

    with pytest.raises(InstallError, match="No space left"):
        host.apply(disk=Disk(refuse))
    assert host.files() == {"manifests/kube-scheduler.yaml": KUBEADM}


def test_the_real_scheduler_has_its_word_before_anything_is_written(host: Host) -> None:
    from accelshare.install.scheduler import apply as applying

    def check(plan: SchedulerPlan) -> None:
        raise Rejected(f"no: {plan.words[-1]}")

    places = host.places()
    with pytest.raises(Rejected, match="no: --config="):
        applying.apply(host.scheduler_host(), host.intent(), host.kubelet, patience=host.kubelet.patience, check=check)
    assert host.places() == places


def test_two_at_once_are_refused(host: Host) -> None:
    host.apply()
    scheduler_host = host.scheduler_host()
    with (
        scheduler_host.disk.locked(host.archive),
        pytest.raises(InstallError, match="another accelshare process"),
    ):
        host.apply(desired(weight=2))


# When others change the files too.


def test_kubeadm_upgrade_is_noticed_and_healed(host: Host) -> None:
    host.apply()
    upgraded = KUBEADM.replace(b"v1.36.4", b"v1.36.9")
    host.manifest.write_bytes(upgraded)
    assert host.state() is HostState.OVERWRITTEN
    assert host.plan() != ""
    assert host.apply() == "applied"
    assert host.state() is HostState.INSTALLED
    assert b"v1.36.9" in host.manifest.read_bytes()
    host.restore()
    assert host.files() == {"manifests/kube-scheduler.yaml": upgraded}


def test_an_upgrade_across_the_end_of_policies_changes_the_kind(tmp_path: Path) -> None:
    host = Host(tmp_path, with_words(version="v1.21.4"))
    host.apply(version="v1.21.4")
    assert (host.directory / "scheduler-policy.json").exists()
    host.manifest.write_bytes(with_words(version="v1.23.1"))
    host.apply(version="v1.23.1")
    assert [file.name for file in host.directory.iterdir()] == ["scheduler-config.yaml"]
    assert host.state() is HostState.INSTALLED
    host.restore()
    assert host.files() == {"manifests/kube-scheduler.yaml": with_words(version="v1.23.1")}


def test_an_upgrade_that_kubeadm_takes_back_is_noticed_and_taken_over(host: Host) -> None:
    """kubeadm puts back the manifest it found, which is an earlier one of ours; the way back is that manifest's again."""
    host.apply()
    ours = host.manifest.read_bytes()
    for _ in range(2):  # an upgrade that fails is tried again
        host.manifest.write_bytes(KUBEADM.replace(b"v1.36.4", b"v1.36.9"))
        assert host.apply() == "applied"
        host.manifest.write_bytes(ours)
        assert host.state() is HostState.DRIFTED
        assert "as kubeadm leaves it if its upgrade fails" in " ".join(host.scheduler_host().status().remarks)
        assert host.apply() == "unchanged"
        assert host.state() is HostState.INSTALLED
    assert host.manifest.read_bytes() == ours
    host.restore()
    assert host.files() == {"manifests/kube-scheduler.yaml": KUBEADM}


def test_an_upgrade_that_kubeadm_takes_back_can_be_restored_at_once(host: Host) -> None:
    host.apply()
    ours = host.manifest.read_bytes()
    host.manifest.write_bytes(KUBEADM.replace(b"v1.36.4", b"v1.36.9"))
    host.apply()
    host.manifest.write_bytes(ours)
    host.restore()
    assert host.files() == {"manifests/kube-scheduler.yaml": KUBEADM}


def test_an_upgrade_taken_back_after_its_scheduler_did_not_come_up(host: Host) -> None:
    """Our roll-back leaves kubeadm's new manifest, and kubeadm's leaves our old one."""
    host.apply()
    ours = host.manifest.read_bytes()
    host.manifest.write_bytes(KUBEADM.replace(b"v1.36.4", b"v1.36.9"))
    host.kubelet.breaks = lambda content: is_new(content) and content != ours
    with pytest.raises(RolledBack):
        host.apply()
    host.manifest.write_bytes(ours)
    assert host.apply() == "unchanged"
    assert host.state() is HostState.INSTALLED
    host.restore()
    assert host.files() == {"manifests/kube-scheduler.yaml": KUBEADM}


def test_an_upgrade_across_the_end_of_policies_that_is_taken_back(tmp_path: Path) -> None:
    """The manifest of before names a file that is gone: it is written again, and the newer one goes."""
    host = Host(tmp_path, with_words(version="v1.21.4"))
    host.apply(version="v1.21.4")
    ours = host.manifest.read_bytes()
    host.manifest.write_bytes(with_words(version="v1.23.1"))
    host.apply(version="v1.23.1")
    host.manifest.write_bytes(ours)
    assert host.apply(version="v1.21.4") == "applied"
    assert [file.name for file in host.directory.iterdir()] == ["scheduler-policy.json"]
    assert host.manifest.read_bytes() == ours
    host.restore()
    assert host.files() == {"manifests/kube-scheduler.yaml": with_words(version="v1.21.4")}


def test_restoring_after_an_upgrade_does_not_bring_the_old_version_back(host: Host) -> None:
    host.apply()
    upgraded = KUBEADM.replace(b"v1.36.4", b"v1.36.9")
    host.manifest.write_bytes(upgraded)
    host.restore()
    assert host.files() == {"manifests/kube-scheduler.yaml": upgraded}
    assert any("it stays unchanged" in line for line in host.kubelet.messages)


def test_a_changed_manifest_is_neither_overwritten_nor_restored_over(host: Host) -> None:
    host.apply()
    edited = host.manifest.read_bytes().replace(b"--leader-elect=true", b"--leader-elect=true\n    - --v=4")
    host.manifest.write_bytes(edited)
    assert host.state() is HostState.DRIFTED
    files = host.files()
    for change in (host.apply, host.restore):
        with pytest.raises(ChangedByOthers, match=r"changed by somebody else(?s:.*)-    - --v=4"):
            change()
        assert host.files() == files


def test_force_overrules_and_says_what_is_lost(host: Host) -> None:
    host.apply()
    host.manifest.write_bytes(host.manifest.read_bytes().replace(b"--leader-elect=true", b"--leader-elect=false"))
    assert host.restore(force=True) == "restored"
    assert host.files() == {"manifests/kube-scheduler.yaml": KUBEADM}
    assert any("-    - --leader-elect=false" in line for line in host.kubelet.messages)


def test_a_changed_configuration_is_not_overwritten(host: Host) -> None:
    host.apply()
    host.config.write_bytes(host.config.read_bytes() + b"parallelism: 4\n")
    assert host.state() is HostState.DRIFTED
    with pytest.raises(ChangedByOthers):
        host.apply()
    assert host.apply(force=True) == "applied"
    assert host.state() is HostState.INSTALLED


def test_a_missing_configuration_is_written_again(host: Host) -> None:
    host.apply()
    host.config.unlink()
    assert host.state() is HostState.DRIFTED
    host.kubelet.breaks = lambda _content: False
    assert host.apply(desired(weight=2)) == "applied"
    assert host.state() is HostState.INSTALLED


def test_a_file_that_was_not_ours_is_not_overwritten(host: Host) -> None:
    host.directory.mkdir()
    host.config.write_text("somebody else's")
    with pytest.raises(ChangedByOthers):
        host.apply()
    assert host.apply(force=True) == "applied"
    host.restore()
    assert host.config.read_text() == "somebody else's"


def test_a_change_of_the_operators_own_file_is_taken_over(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nparallelism: 8\n")
    host = Host(tmp_path, mounting(with_words(f"--config={own}"), str(own)))
    host.apply()
    own.write_text(own.read_text().replace("parallelism: 8", "parallelism: 12"))
    standing = host.scheduler_host().status()
    assert standing.state is HostState.DRIFTED
    assert "has changed" in standing.remarks[0]
    assert host.apply() == "applied"
    assert yaml.safe_load(host.config.read_bytes())["parallelism"] == 12
    assert host.state() is HostState.INSTALLED


def test_a_comment_in_the_operators_own_file_is_taken_over_too(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
    host = Host(tmp_path, mounting(with_words(f"--config={own}"), str(own)))
    host.apply()
    own.write_text("# new\n" + own.read_text())
    host.apply()
    assert host.state() is HostState.INSTALLED
    assert host.config.read_text().startswith("# new\n")


def test_a_manifest_that_is_gone_stays_gone(host: Host) -> None:
    host.apply()
    host.manifest.unlink()
    assert host.state() is HostState.OVERWRITTEN
    with pytest.raises(NotUnderstood, match="does not exist"):
        host.apply()
    host.restore()
    assert host.files() == {}


def test_without_a_record_nothing_is_guessed(host: Host) -> None:
    host.apply()
    for file in host.archive.iterdir():
        file.unlink()
    host.archive.rmdir()
    assert host.state() is HostState.DRIFTED
    assert host.apply() == "unchanged"
    with pytest.raises(NotUnderstood, match="by hand"):
        host.restore()


def test_restoring_nothing_is_fine(host: Host) -> None:
    assert host.restore() == "nothing to restore"
    assert host.state() is HostState.NOT_INSTALLED


def test_a_record_of_another_manifest_is_not_used(host: Host, tmp_path: Path) -> None:
    host.apply()
    other = tmp_path / "manifests" / "other.yaml"
    other.write_bytes(KUBEADM)
    host.manifest = other
    with pytest.raises(NotUnderstood, match=r"is about .*kube-scheduler.yaml, not about .*other.yaml"):
        host.apply()


def test_a_damaged_backup_is_noticed_before_it_is_put_back(host: Host) -> None:
    host.apply()
    (backup,) = host.archive.glob("*.backup")
    backup.write_bytes(b"x")
    with pytest.raises(NotUnderstood, match="missing or damaged"):
        host.restore()
    assert CHECKSUM.encode() in host.manifest.read_bytes()


def test_a_damaged_record_is_refused_with_a_message(host: Host) -> None:
    host.apply()
    (host.archive / "record.json").write_text("{}")
    with pytest.raises(NotUnderstood, match="cannot be read"):
        host.restore()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_the_owner_is_kept(host: Host) -> None:
    os.chown(host.manifest, 1234, 4321)
    host.apply()
    assert (host.manifest.stat().st_uid, host.manifest.stat().st_gid) == (1234, 4321)
    host.restore()
    assert (host.manifest.stat().st_uid, host.manifest.stat().st_gid) == (1234, 4321)


def test_restore_says_when_the_old_scheduler_does_not_come_back(host: Host) -> None:
    host.apply()
    host.kubelet.breaks = lambda content: not is_new(content)
    with pytest.raises(InstallError, match=re.escape("the original files are restored, but kube-scheduler was not healthy")):
        host.restore()
    assert host.files() == {"manifests/kube-scheduler.yaml": KUBEADM}


# What would not start is found before anything is written, and what starts must schedule.


def tls_files(directory: Path) -> TlsFiles:
    authority = Authority(directory)
    certificate, key = authority.client_certificate("kube-scheduler")
    return TlsFiles(str(authority.file), str(certificate), str(key))


def refused_for(host: Host, tls: TlsFiles) -> str:
    before = host.files()
    with pytest.raises(Rejected) as why:
        host.apply(desired("https://10.96.0.10:1/accelshare", tls=tls))
    assert host.files() == before
    return str(why.value)


def test_certificates_that_are_there_are_taken(host: Host, tmp_path: Path) -> None:
    assert host.apply(desired("https://10.96.0.10:1/accelshare", tls=tls_files(tmp_path / "pki"))) == "applied"


def test_variables_for_http2_are_set_once_and_restored_to_the_byte(host: Host, tmp_path: Path) -> None:
    config = desired("https://10.96.0.10:1/accelshare", tls=tls_files(tmp_path / "pki"))
    host.apply(config)
    assert host.manifest.read_bytes().count(b"HTTP2_PING_TIMEOUT_SECONDS") == 1
    assert (host.plan(config), host.apply(config)) == ("", "unchanged")
    host.restore()
    assert host.manifest.read_bytes() == KUBEADM


def test_certificates_that_would_end_kube_scheduler_are_refused(host: Host, tmp_path: Path) -> None:
    good, other = tls_files(tmp_path / "pki"), tls_files(tmp_path / "other")
    assert "/nowhere.crt does not exist" in refused_for(host, replace(good, ca_file="/nowhere.crt"))
    assert "is not the key of the certificate" in refused_for(host, replace(good, key_file=other.key_file))
    Path(good.ca_file).write_text("no certificate")
    assert f"{good.ca_file} is not a PEM certificate" in refused_for(host, good)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([{"urlPrefix": "http://a", "prioritizeVerb": "p", "weight": 0}], "http://a has weight 0"),
        ([{"urlPrefix": "http://a", "prioritizeVerb": "p"}], "http://a has weight 0"),
        ([{"filterVerb": "f"}], "extenders[0] has no urlPrefix"),
        (
            [{"urlPrefix": f"http://{name}", "managedResources": [{"name": "other.example/fpga"}]} for name in "ab"],
            "other.example/fpga is managed by http://a and http://b",
        ),
    ],
)
def test_extenders_that_old_kube_schedulers_do_not_check_are_refused(
    tmp_path: Path, entries: list[dict[str, object]], words: str
) -> None:
    """1.18 says yes to all of them with --write-config-to, and ends at its start."""
    own = tmp_path / "own.json"
    own.write_text(json.dumps({"kind": "Policy", "apiVersion": "v1", "extenders": entries}))
    host = Host(tmp_path, mounting(with_words(f"--policy-config-file={own}", version="v1.18.19"), str(own)))
    before = host.files()
    with pytest.raises(Rejected) as why:
        host.apply(version="v1.18.19")
    assert words in str(why.value)
    assert host.files() == before


@pytest.mark.parametrize("text", ['{"kind": "Policy", "apiVersion": "v1",}', '{"kind": "Policy", "apiVersion": "v1"'])
def test_broken_json_is_refused_although_118_would_say_yes_to_it(tmp_path: Path, text: str) -> None:
    """With the comma it is good YAML, but kube-scheduler takes for JSON what begins with a brace."""
    own = tmp_path / "own.json"
    own.write_text(text)
    host = Host(tmp_path, mounting(with_words(f"--policy-config-file={own}", version="v1.18.19"), str(own)))
    before = host.files()
    with pytest.raises((Rejected, NotUnderstood), match=r"not JSON|cannot be read"):
        host.apply(version="v1.18.19")
    assert host.files() == before


def applied_with(host: Host, read: ReadLease) -> str:
    return applying.apply(
        host.scheduler_host(),
        host.intent(),
        host.kubelet,
        patience=host.kubelet.patience,
        read_lease=read,
        host_name="cp-1",
        say=host.kubelet.messages.append,
    )


def test_applied_means_that_somebody_schedules(host: Host) -> None:
    places: list[LeasePlace] = []

    def read(place: LeasePlace) -> LeaseSpec:
        places.append(place)
        return LeaseSpec("cp-1_5d3a", str(host.kubelet.now))  # renewed as time goes by

    assert applied_with(host, read) == "applied"
    assert set(places) == {LeasePlace("/etc/kubernetes/scheduler.conf", "kube-system", "kube-scheduler")}


def test_beside_a_leader_on_another_host_the_outcome_is_standby(host: Host) -> None:
    """It is not claimed that this host's kube-scheduler schedules pods."""
    assert applied_with(host, lambda _place: LeaseSpec("cp-2_77aa", str(host.kubelet.now))) == "applied as standby"
    assert any("standby" in line and "cp-2" in line for line in host.kubelet.messages)
    assert applied_with(host, lambda _place: LeaseSpec("cp-2_77aa", str(host.kubelet.now))) == "unchanged"


def test_a_standby_that_does_not_become_ready_is_rolled_back(host: Host) -> None:
    before = host.files()
    host.kubelet.unready = "503 handlers are not fully synchronized"
    with pytest.raises(RolledBack, match="is not ready"):
        applied_with(host, lambda _place: LeaseSpec("cp-2_77aa", str(host.kubelet.now)))
    assert host.files() == before


def test_a_healthy_scheduler_that_schedules_nothing_is_rolled_back(host: Host) -> None:
    before = host.files()
    with pytest.raises(RolledBack, match="does not schedule"):
        applied_with(host, lambda _place: LeaseSpec("the former one", "10:00"))
    assert host.files() == before


def test_a_lease_that_lasts_longer_than_the_patience_is_waited_for(host: Host) -> None:
    """A leader that was killed still holds it: the new one leads when it has run out (137 s is OpenShift's)."""
    start, lasts_s = host.kubelet.now, int(host.kubelet.patience.limit_s) + 17

    def read(_place: LeasePlace) -> LeaseSpec:
        waited_s = host.kubelet.now - start
        return LeaseSpec("cp-1_5d3a", str(waited_s) if waited_s > lasts_s else "10:00", lasts_s)

    assert applied_with(host, read) == "applied"


def test_an_api_server_that_is_away_afterwards_is_waited_for(host: Host) -> None:
    asked = iter(range(100))

    def read(_place: LeasePlace) -> LeaseSpec:
        number = next(asked)
        if 0 < number < 5:
            raise NoLease("connection refused")
        return LeaseSpec("cp-1_5d3a", str(number))

    assert applied_with(host, read) == "applied"


def test_a_lease_that_cannot_be_read_is_said_and_health_alone_counts(host: Host) -> None:
    def read(_place: LeasePlace) -> LeaseSpec:
        raise NoLease("scheduler.conf is not there")

    assert applied_with(host, read) == "applied"
    assert any("scheduler.conf is not there" in line for line in host.kubelet.messages)
