"""`accelshare scheduler-config`, through the whole command line."""

import json
import os
import stat
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from accelshare.cli import accelshare
from accelshare.install.errors import InstallError
from accelshare.install.scheduler.options import release_from
from tests.unit.install.scheduler.builders import KUBEADM, URL, with_words


class Shell:
    """A host to run commands on."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.manifest = root / "manifests" / "kube-scheduler.yaml"
        self.manifest.parent.mkdir()
        self.manifest.write_bytes(KUBEADM)
        self.places = [
            f"--manifest={self.manifest}",
            f"--directory={root / 'accelshare'}",
            f"--backup-directory={root / 'backup'}",
        ]

    def run(self, command: str, *words: str) -> Result:
        places = self.places if command != "render" else []
        url = ["--url", URL] if command in ("render", "plan", "apply") and "--url" not in words else []
        wait = ["--wait-s=0"] if command in ("apply", "restore") and not any("--wait-s" in word for word in words) else []
        return CliRunner().invoke(accelshare, ["scheduler-config", command, *url, *places, *wait, *words])


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_the_whole_way(shell: Shell) -> None:
    assert shell.run("status").exit_code == 3
    planned = shell.run("plan")
    assert (planned.exit_code, shell.manifest.read_bytes()) == (0, KUBEADM)
    assert "+    - --config=" in planned.stdout
    assert "note: proposed: percentageOfNodesToScore 100" in planned.stderr
    applied = shell.run("apply")
    assert applied.exit_code == 0, applied.output
    assert applied.stdout == planned.stdout
    assert applied.stderr.endswith("applied\n")
    assert shell.run("status").exit_code == 0
    again = shell.run("apply")
    assert (again.exit_code, again.stdout) == (0, "")
    assert again.stderr.endswith("unchanged\n")
    restored = shell.run("restore")
    assert (restored.exit_code, shell.manifest.read_bytes()) == (0, KUBEADM)
    assert sorted(path.name for path in shell.root.rglob("*")) == ["kube-scheduler.yaml", "manifests"]
    assert shell.run("restore").stderr == "nothing to restore\n"


def test_status_for_scripts(shell: Shell) -> None:
    assert json.loads(shell.run("status", "-o", "json").stdout)["state"] == "not installed"
    shell.run("apply")
    status = json.loads(shell.run("status", "--output", "json").stdout)
    assert (status["state"], len(status["files"])) == ("installed", 2)
    shell.manifest.write_bytes(KUBEADM)
    overwritten = shell.run("status", "-o", "json")
    assert (overwritten.exit_code, json.loads(overwritten.stdout)["state"]) == (5, "overwritten")
    shell.run("apply")
    shell.manifest.write_bytes(shell.manifest.read_bytes() + b"# mine\n")
    drifted = shell.run("status")
    assert drifted.exit_code == 4
    assert drifted.stdout == f"drifted\n  {shell.manifest} was changed by somebody else\n"
    refused = shell.run("restore")
    assert refused.exit_code == 1
    assert "-# mine" in refused.stderr
    assert shell.run("restore", "--force").exit_code == 0


def test_an_unfinished_apply_has_an_exit_code_of_its_own(shell: Shell) -> None:
    shell.run("apply")
    record = shell.root / "backup" / "record.json"
    record.write_text(record.read_text().replace('"applied"', '"applying"'))
    assert shell.run("status").exit_code == 6


def test_render_by_version_and_vendor() -> None:
    for version, kind in (("1.20", "Policy"), ("1.36", "KubeSchedulerConfiguration")):
        result = CliRunner().invoke(
            accelshare,
            [
                "scheduler-config",
                "render",
                "--url",
                URL,
                "--kubernetes-version",
                version,
                "--vendor",
                "stream",
                "--vendor",
                "nvidia",
            ],
        )
        content = yaml.safe_load(result.stdout)
        assert (result.exit_code, content["kind"]) == (0, kind)
        assert [resource["name"] for resource in content["extenders"][0]["managedResources"]] == [
            "streamcomputing.com/npu",
            "aliyun.com/gpu-mem",
            "nvidia.com/gpu",
        ]


@pytest.mark.parametrize(
    ("words", "exit_code", "message"),
    [
        (["--kubernetes-version", "soon"], 1, "is not a version of Kubernetes"),
        (["--kubernetes-version", "1.36", "--vendor", "nvidai"], 2, "did you mean nvidia?"),
        (["--kubernetes-version", "1.36", "--kind", "policy"], 1, "has no Policy"),
        (["--kubernetes-version", "1.36", "--url", "https://10.0.0.1/accelshare"], 1, "no CA file"),
        (["--kubernetes-version", "1.36", "--cert-file", "/x"], 1, "need --ca-file"),
        (["--kubernetes-version", "1.36", "--form", "openshift"], 1, "second-scheduler"),
        (["--kubernetes-version", "1.36", "--form", "second-scheduler"], 1, "--image"),
        (["--kubernetes-version", "1.20", "--client-qps", "200"], 1, "--kube-api-qps and --kube-api-burst"),
        (["--kubernetes-version", "1.22", "--kind", "policy"], 1, "--v=2"),
        (["--weight", "0"], 2, "--weight"),
    ],
)
def test_mistakes_are_reported_without_a_traceback(shell: Shell, words: list[str], exit_code: int, message: str) -> None:
    result = shell.run("render", *words)
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert message in result.stderr


@pytest.mark.parametrize(
    "url", ["https://127.0.0.1:abc/healthz", "https://[::1", "127.0.0.1:10259/healthz", "http://127.0.0.1:10251/healthz"]
)
def test_a_health_url_that_nothing_could_answer_is_refused_before_anything_is_written(shell: Shell, url: str) -> None:
    result = shell.run("apply", "--health-url", url)
    assert result.exit_code == 2, result.output
    assert repr(url) in result.stderr
    assert shell.run("status").exit_code == 3


def test_an_unknown_version_is_asked_from_the_api_server(shell: Shell, tmp_path: Path) -> None:
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text("apiVersion: v1\nkind: Config\n")
    result = shell.run("render", "--kubeconfig", str(nowhere))
    assert result.exit_code == 1
    assert "give --kubernetes-version" in result.stderr


def test_a_version_that_nobody_tells_is_an_error_of_this_room(tmp_path: Path) -> None:
    """So that a manager, whose API server is away just now, says so and looks again; with a digest the image tells none."""
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text("apiVersion: v1\nkind: Config\n")
    with pytest.raises(InstallError, match="the version of Kubernetes is not known"):
        release_from({"version": None, "kubeconfig": nowhere, "context": None}, None)


def test_a_manifest_that_is_gone_from_a_linked_directory_is_still_the_same(shell: Shell, tmp_path: Path) -> None:
    """kubelet's directory may be a link, and kubeadm moves manifests away while it upgrades."""
    (tmp_path / "link").symlink_to(shell.manifest.parent)
    shell.places[0] = f"--manifest={tmp_path / 'link' / shell.manifest.name}"
    assert shell.run("apply").exit_code == 0
    shell.manifest.rename(tmp_path / "aside.yaml")
    status = shell.run("status")
    assert (status.exit_code, status.stdout.splitlines()[0]) == (5, "overwritten"), status.output


def test_render_names_the_variables_that_a_file_cannot_set(shell: Shell) -> None:
    secure = ["--url", "https://10.96.0.10:12345/accelshare", "--ca-file", "/ca.crt"]
    made = shell.run("render", "--kubernetes-version", "1.36", *secure)
    assert "HTTP2_READ_IDLE_TIMEOUT_SECONDS=2 and HTTP2_PING_TIMEOUT_SECONDS=4" in made.stderr
    assert "HTTP2" not in made.stdout
    for words in (["--kubernetes-version", "1.19", *secure], ["--kubernetes-version", "1.36"]):
        assert "HTTP2" not in shell.run("render", *words).output


def test_second_scheduler_and_openshift(shell: Shell) -> None:
    words = ["--kubernetes-version", "v1.36.4", "--form", "second-scheduler", "--tls-secret", "s"]
    made = shell.run("render", *words, "--url", "https://accelshare.kube-system.svc/accelshare")
    assert made.exit_code == 0, made.output
    assert {manifest["kind"] for manifest in yaml.safe_load_all(made.stdout)} >= {"Deployment", "ConfigMap", "ClusterRoleBinding"}
    assert shell.run("render", "--kubernetes-version", "1.19", "--form", "openshift").exit_code == 0


def test_proposals_are_taken_if_asked_and_possible(shell: Shell) -> None:
    taken = shell.run("plan", "--accept-proposals")
    assert "+percentageOfNodesToScore: 100\n" in taken.stdout
    assert taken.stderr == ""
    shell.manifest.write_bytes(with_words(version="v1.20.4"))
    old = shell.run("plan", "--accept-proposals")
    assert old.exit_code == 0, old.output
    assert "+    - --kube-api-qps=200\n" in old.stdout


def test_proposals_that_a_rendered_policy_cannot_say_are_not_taken(shell: Shell) -> None:
    for form in ("file", "openshift"):
        made = shell.run("render", "--kubernetes-version", "1.20", "--accept-proposals", "--form", form)
        assert made.exit_code == 0, made.output


def test_directories_that_kubelet_reads_are_refused(shell: Shell) -> None:
    result = shell.run("plan", f"--directory={shell.manifest.parent}")
    assert result.exit_code == 1
    assert "kubelet's manifests directory" in result.stderr


def test_a_manifest_that_is_not_understood_is_left_alone(shell: Shell) -> None:
    content = KUBEADM.replace(b"    - kube-scheduler\n", b"    - /bin/sh\n    - -c\n")
    shell.manifest.write_bytes(content)
    result = shell.run("apply")
    assert (result.exit_code, shell.manifest.read_bytes()) == (1, content)
    assert "no container runs kube-scheduler itself" in result.stderr
    assert sorted(path.name for path in shell.root.iterdir()) == ["manifests"]


# systemd.


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    file = tmp_path / "kube-scheduler.service"
    file.write_text("[Service]\nExecStart=/usr/bin/kube-scheduler --kubeconfig=/etc/kubernetes/scheduler.conf\n")
    return file


def systemctl(tmp_path: Path, script: str) -> Path:
    program = tmp_path / "systemctl"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n{script}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def test_a_unit_gets_a_drop_in_and_loses_it_again(shell: Shell, unit: Path, tmp_path: Path) -> None:
    words = ["--target=systemd", f"--unit={unit}", f"--systemctl={systemctl(tmp_path, 'exit 0')}"]
    text, places = unit.read_bytes(), {str(path) for path in tmp_path.rglob("*")}
    applied = shell.run("apply", *words, "--kubernetes-version=1.36")
    assert applied.exit_code == 0, applied.output
    drop_in = tmp_path / "kube-scheduler.service.d" / "50-accelshare.conf"
    assert f"--config={tmp_path}/accelshare/scheduler-config.yaml" in drop_in.read_text()
    assert unit.read_bytes() == text
    assert shell.run("apply", *words, "--kubernetes-version=1.36").stderr.endswith("unchanged\n")
    unit.write_text(unit.read_text().replace("ExecStart=/usr", "ExecStart=/opt"))
    assert shell.run("status", *words).exit_code == 4
    shell.run("apply", *words, "--kubernetes-version=1.36")
    assert "/opt/bin/kube-scheduler" in drop_in.read_text()
    assert shell.run("restore", *words).exit_code == 0
    assert {str(path) for path in tmp_path.rglob("*")} - places == {f"{tmp_path}/calls"}
    assert (tmp_path / "calls").read_text() == "daemon-reload\nrestart kube-scheduler.service\n" * 3


def test_a_unit_that_does_not_restart_is_rolled_back(shell: Shell, unit: Path, tmp_path: Path) -> None:
    script = f'grep -rq config= {tmp_path}/kube-scheduler.service.d 2>/dev/null && {{ echo "unit failed" >&2; exit 1; }}; exit 0'
    words = ["--target=systemd", f"--unit={unit}", f"--systemctl={systemctl(tmp_path, script)}", "--kubernetes-version=1.36"]
    result = shell.run("apply", *words)
    assert result.exit_code == 1
    assert "unit failed" in result.stderr
    assert not (tmp_path / "kube-scheduler.service.d").exists()
    assert not (tmp_path / "backup").exists()


def test_drop_ins_of_the_operator_are_part_of_the_unit(shell: Shell, unit: Path, tmp_path: Path) -> None:
    """What systemd would start without us is what it starts with us; their change is noticed."""
    words = ["--target=systemd", f"--unit={unit}", f"--systemctl={systemctl(tmp_path, 'exit 0')}"]
    theirs = tmp_path / "kube-scheduler.service.d" / "10-own.conf"
    theirs.parent.mkdir()
    theirs.write_text("[Service]\nEnvironment=MORE=--v=4\nExecStart=\nExecStart=/opt/kube-scheduler --profiling=false $MORE\n")
    applied = shell.run("apply", *words, "--kubernetes-version=1.36")
    assert applied.exit_code == 0, applied.output
    text = theirs.with_name("50-accelshare.conf").read_text()
    assert [word for word in ("/opt/kube-scheduler", "--profiling=false", "$MORE") if word not in text] == []
    assert yaml.safe_load((tmp_path / "accelshare" / "scheduler-config.yaml").read_text())["enableProfiling"] is False
    theirs.write_text(theirs.read_text().replace("/opt", "/srv"))
    assert shell.run("status", *words).exit_code == 4
    assert shell.run("restore", *words).exit_code == 0
    assert [path.name for path in theirs.parent.iterdir()] == ["10-own.conf"]


def test_a_drop_in_that_has_the_last_word_is_refused(shell: Shell, unit: Path, tmp_path: Path) -> None:
    """`systemctl edit` writes override.conf, which is read after ours."""
    words = ["--target=systemd", f"--unit={unit}", "--kubernetes-version=1.36"]
    theirs = tmp_path / "kube-scheduler.service.d" / "override.conf"
    theirs.parent.mkdir()
    theirs.write_text("[Service]\nRestart=always\n")
    assert shell.run("plan", *words).exit_code == 0
    theirs.write_text("[Service]\nExecStart=\nExecStart=/opt/kube-scheduler\n")
    refused = shell.run("apply", *words)
    assert refused.exit_code == 1
    assert f"{theirs} is read after 50-accelshare.conf" in refused.stderr


@pytest.mark.parametrize("command", ["plan", "apply", "restore", "status"])
def test_a_file_that_cannot_be_read_is_told_without_a_traceback(shell: Shell, command: str) -> None:
    """As an ordinary user meets it, whom kubeadm's files and our record are closed to."""
    shell.manifest.unlink()
    shell.manifest.mkdir()
    result = shell.run(command)
    assert isinstance(result.exception, SystemExit), result.exception
    assert (result.exit_code, result.stderr) == (1, f"Error: {shell.manifest}: Is a directory\n")


def test_help_names_every_command() -> None:
    result = CliRunner().invoke(accelshare, ["scheduler-config", "--help"])
    assert all(f"  {name} " in result.stdout for name in ("apply", "plan", "render", "restore", "status"))


def test_no_root_is_needed(shell: Shell) -> None:
    """Every path is an argument; nothing outside them is touched."""
    assert os.access(shell.root, os.W_OK)
    assert shell.run("apply").exit_code == 0
