"""A binary installation: a drop-in beside the unit, and the unit as it was."""

from typing import Any

import pytest
import yaml

from accelshare.install.errors import NotUnderstood
from accelshare.install.scheduler import systemd
from accelshare.install.scheduler.plan import Existing
from tests.unit.install.scheduler.builders import TLS, desired, intent

NAME = "/etc/systemd/system/kube-scheduler.service"
CONFIG = "/etc/kubernetes/accelshare/scheduler-config.yaml"
UNIT = b"""\
[Unit]
Description=Kubernetes Scheduler
ExecStart=not here

[Service]
ExecStart=/usr/local/bin/kube-scheduler \\
  --kubeconfig=/etc/kubernetes/kube-scheduler.kubeconfig \\
  # leader election is on by default
  --leader-elect=true \\
  --v=2
Restart=on-failure
"""
VARIABLES = b"""\
[Service]
Environment=A=1 "B=2 3"
EnvironmentFile=-/etc/kubernetes/config
EnvironmentFile=/etc/kubernetes/scheduler
ExecStart=/usr/bin/kube-scheduler $KUBE_LOG ${KUBE_SCHEDULER_ARGS}
"""
FILES = {
    "/etc/kubernetes/config": b'KUBE_LOG="--v=2"\n',
    "/etc/kubernetes/scheduler": b"# no = 1\nKUBE_SCHEDULER_ARGS='--kubeconfig=/etc/kubernetes/s.conf \\\n --kube-api-qps=80'\n",
}


def planned(unit: bytes = UNIT, **more: Any) -> tuple[str, dict[str, Any]]:
    variables = systemd.environment(unit, NAME, FILES)
    plan = systemd.plan(unit, NAME, variables, more.pop("existing", None), intent(**more))
    assert plan.trigger.path == f"{NAME}.d/50-accelshare.conf"
    content: dict[str, Any] = yaml.safe_load(plan.configuration.content)
    return plan.trigger.content.decode(), content


def test_the_drop_in_starts_the_same_command_with_our_file() -> None:
    text, content = planned()
    assert text.endswith(
        "[Service]\nExecStart=\nExecStart=/usr/local/bin/kube-scheduler \\\n"
        "  --kubeconfig=/etc/kubernetes/kube-scheduler.kubeconfig "
        f"\\\n  --leader-elect=true \\\n  --v=2 \\\n  --config={CONFIG}\n"
    )
    assert content["clientConnection"] == {"kubeconfig": "/etc/kubernetes/kube-scheduler.kubeconfig"}


def test_variables_stay_variables_and_what_they_hold_is_known() -> None:
    text, content = planned(VARIABLES)
    assert "ExecStart=/usr/bin/kube-scheduler \\\n  $KUBE_LOG \\\n  ${KUBE_SCHEDULER_ARGS} \\\n  --config=" in text
    assert content["clientConnection"] == {"kubeconfig": "/etc/kubernetes/s.conf", "qps": 80}


def test_a_quote_that_is_never_closed_is_a_sign_like_any_other() -> None:
    """In a variable that kube-scheduler may not even use."""
    files = {"/etc/kubernetes/config": b"NOTE=don't touch\nKUBE_LOG=--v=2\n"}
    assert systemd.environment(VARIABLES, NAME, files) == {"A": "1", "B": "2 3", "NOTE": "don't touch", "KUBE_LOG": "--v=2"}
    unit = b"[Service]\nEnvironment=NOTE=don't A=1\n"
    assert systemd.environment(unit, NAME, {}) == {"NOTE": "don't", "A": "1"}


def test_a_variable_in_a_file_counts_before_one_in_the_unit() -> None:
    """As systemd reads them, also if the unit sets the variable below the line with the file."""
    unit = b"[Service]\nEnvironmentFile=/etc/kubernetes/config\nEnvironment=KUBE_LOG=--v=9 A=1\n"
    assert systemd.environment(unit, NAME, FILES) == {"KUBE_LOG": "--v=2", "A": "1"}


def test_an_empty_line_clears_variables_and_files_before_it() -> None:
    drop_in = b"[Service]\nEnvironment=\nEnvironment=C=3\nEnvironmentFile=\nEnvironmentFile=/etc/own\n"
    unit = b"\n".join([VARIABLES, drop_in])
    assert systemd.environment_files(unit, NAME) == ("/etc/own",)
    assert systemd.environment(unit, NAME, {**FILES, "/etc/own": b"D=4\n"}) == {"C": "3", "D": "4"}


def test_environment_files_are_named() -> None:
    assert systemd.environment_files(VARIABLES, NAME) == ("/etc/kubernetes/config", "/etc/kubernetes/scheduler")
    assert systemd.environment(VARIABLES, NAME, {})["B"] == "2 3"


def test_a_policy_below_122() -> None:
    text, content = planned(version="v1.20.4", config=desired(qps=200))
    assert "--policy-config-file=/etc/kubernetes/accelshare/scheduler-policy.json" in text
    assert "--kube-api-qps=200" in text
    assert content["kind"] == "Policy"


def test_an_existing_file_is_kept() -> None:
    unit = UNIT.replace(b"--v=2", b"--config=/etc/own.yaml")
    own = b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nparallelism: 8\n"
    assert systemd.existing_path(unit, NAME, {}, intent()) == "/etc/own.yaml"
    text, content = planned(unit, existing=Existing("/etc/own.yaml", own))
    assert content["parallelism"] == 8
    assert "/etc/own.yaml" not in text


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        (b"[Service]\n", "0 ExecStart lines"),
        (b"[Service]\nExecStart=/bin/sh -c 'kube-scheduler'\n", "starts 'sh'"),
        (b"[Service]\nExecStart=/usr/bin/kube-scheduler $ARGS\n", "uses $ARGS"),
        (b'[Service]\nExecStart=/usr/bin/kube-scheduler "--v=2"\n', "quotes"),
        (b"[Service]\nExecStart=/a/kube-scheduler\nExecStart=/b/kube-scheduler\n", "2 ExecStart lines"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_what_is_not_understood_is_refused_with_a_message(unit: bytes, words: str) -> None:
    with pytest.raises(NotUnderstood) as refused:
        planned(unit)
    assert words in str(refused.value)


def test_the_same_plan_twice() -> None:
    assert planned() == planned()


OVER_TLS = desired("https://10.96.0.10/accelshare", tls=TLS)


def environment_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("Environment")]


def test_with_tls_the_drop_in_sets_the_variables_for_http2() -> None:
    text, _ = planned(config=OVER_TLS)
    assert environment_lines(text) == [
        "Environment=HTTP2_READ_IDLE_TIMEOUT_SECONDS=2",
        "Environment=HTTP2_PING_TIMEOUT_SECONDS=4",
    ]
    assert planned(config=OVER_TLS)[0] == text
    assert environment_lines(planned()[0]) == []
    assert environment_lines(planned(config=OVER_TLS, version="v1.19.16")[0]) == []


@pytest.mark.parametrize(
    ("setting", "files"),
    [
        (b"Environment=A=1 HTTP2_PING_TIMEOUT_SECONDS=15\n", {}),
        (b"EnvironmentFile=/etc/own\n", {"/etc/own": b"HTTP2_PING_TIMEOUT_SECONDS=15\n"}),
    ],
    ids=["unit", "file"],
)
def test_a_variable_that_the_unit_sets_stays_and_is_named(setting: bytes, files: dict[str, bytes]) -> None:
    unit = UNIT + setting
    plan = systemd.plan(unit, NAME, systemd.environment(unit, NAME, files), None, intent(OVER_TLS))
    assert environment_lines(plan.trigger.content.decode()) == ["Environment=HTTP2_READ_IDLE_TIMEOUT_SECONDS=2"]
    (notice,) = [notice for notice in plan.notices if "HTTP2_PING_TIMEOUT_SECONDS" in notice]
    assert "is 15 " in notice
    assert "4 is proposed" in notice


def test_an_empty_line_forgets_the_commands_before() -> None:
    text, _ = planned(b"[Service]\nExecStart=/a/other\nExecStart=\nExecStart=/b/kube-scheduler --v=1\n")
    assert "/b/kube-scheduler" in text
