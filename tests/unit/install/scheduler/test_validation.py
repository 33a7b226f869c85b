"""How a kube-scheduler program checks a configuration, for every version, beside a running one."""

import stat
from pathlib import Path

import pytest
import yaml

from accelshare.install.scheduler import static_pod
from accelshare.install.scheduler.plan import Existing
from accelshare.install.scheduler.release import Kind, parse
from accelshare.install.scheduler.validation import checker
from tests.unit.install.scheduler.builders import intent, with_words
from tests.unit.install.scheduler.test_static_pod import POLICY_CONTENT, policy_manifest


def asked(
    tmp_path: Path, version: str, kind: Kind | None = None, *, own_policy: bool = False
) -> tuple[list[str], dict[str, str]]:
    """The words that a kube-scheduler was asked with, and the files that it was shown."""
    program = tmp_path / "kube-scheduler"
    program.write_text(
        f"""#!/bin/sh
for word; do
  echo "$word" >> {tmp_path}/words
  case "$word" in
    --config=*) cat "${{word#*=}}" > {tmp_path}/config ;;
    --policy-config-file=*) cat "${{word#*=}}" > {tmp_path}/policy ;;
    --write-config-to=*) touch "${{word#*=}}" ;;
  esac
done
"""
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    manifest, existing = with_words("--port=0", version=version), None
    if own_policy:
        manifest, existing = policy_manifest("--port=0", version=version), Existing("/etc/kubernetes/policy.json", POLICY_CONTENT)
    plan = static_pod.plan(manifest, "manifest", existing, intent(version=version, kind=kind))
    checker(program, parse(version))(plan)
    shown = {name: (tmp_path / name).read_text() for name in ("config", "policy") if (tmp_path / name).exists()}
    return (tmp_path / "words").read_text().splitlines(), shown


@pytest.mark.parametrize("version", ["v1.18.19", "v1.21.14"])
def test_a_policy_is_checked_without_the_plain_port_of_the_running_one(tmp_path: Path, version: str) -> None:
    words, shown = asked(tmp_path, version)
    assert "--port=0" in words
    assert "--kubeconfig=/etc/kubernetes/scheduler.conf" in words
    assert set(shown) == {"policy"}


@pytest.mark.parametrize(("version", "kind"), [("v1.18.19", "configuration"), ("v1.20.15", "configuration"), ("v1.22.17", None)])
def test_a_configuration_is_checked_with_its_plain_port_elsewhere(tmp_path: Path, version: str, kind: Kind | None) -> None:
    """Beside --config the flag --port is ignored, and kube-scheduler listens before it writes its configuration."""
    words, shown = asked(tmp_path, version, kind)
    assert "--port=0" not in words
    content = yaml.safe_load(shown["config"])
    for key in ("healthzBindAddress", "metricsBindAddress"):
        host, _, port = content[key].rpartition(":")
        assert (host, port != "10251", int(port) > 0) == ("127.0.0.1", True, True)


def test_a_policy_on_122_is_checked_as_v1beta1_which_alone_it_can_write(tmp_path: Path) -> None:
    words, shown = asked(tmp_path, "v1.22.17", own_policy=True)
    content = yaml.safe_load(shown["config"])
    assert content["apiVersion"] == "kubescheduler.config.k8s.io/v1beta1"
    assert content["clientConnection"] == {"kubeconfig": "/etc/kubernetes/scheduler.conf"}
    assert "predicates" in shown["policy"]
    assert "--port=0" not in words


def test_a_new_one_is_shown_the_very_file(tmp_path: Path) -> None:
    words, shown = asked(tmp_path, "v1.36.4")
    assert "BindAddress" not in shown["config"]
    assert "--port=0" not in words
