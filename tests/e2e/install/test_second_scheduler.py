"""The second scheduler, for managed control planes, with the chart's configuration, permissions and certificates.

There is no kubelet: the real kube-scheduler is a process that reads what its pod would, with the token of its pod's account.
"""

import base64
from pathlib import Path

import pytest
import yaml

from cluster.build import binaries
from cluster.https import free_port
from cluster.kubeconfig import Token, write_kubeconfig
from cluster.process import Process
from tests.e2e.install.cluster_admin import ClusterAdmin
from tests.e2e.install.hook_runner import NAMESPACE
from tests.e2e.scheduling_cluster import cards

pytestmark = pytest.mark.real
NAME = "accelshare-scheduler"


async def test_a_pod_that_chooses_it_gets_its_card_and_another_pod_is_left_alone(admin: ClusterAdmin, tmp_path: Path) -> None:
    scheduling_cluster = admin.scheduling_cluster
    await scheduling_cluster.example_node("nvidia")
    # The test's extender runs under a user of its own, not under the chart's account.
    await admin.install("--set=scheduler.mode=second", "--set=admissionPolicy.recordWriters={accelshare-extender}")
    server = certificates(admin, "accelshare-extender-tls", tmp_path)
    scheduling_cluster.plane.kubectl("apply", "-f", "deploy/extender-rbac.yaml")
    scheduling_cluster.begin_extender(
        f"--tls-cert={server / 'tls.crt'}", f"--tls-key={server / 'tls.key'}", f"--client-ca={server / 'ca.crt'}"
    )
    scheduler = second_scheduler(admin, certificates(admin, "accelshare-scheduler-tls", tmp_path), tmp_path)
    try:
        await scheduling_cluster.pod("chooses", {"aliyun.com/gpu-mem": 3}, schedulerName=NAME)
        await scheduling_cluster.pod("does-not", {"aliyun.com/gpu-mem": 3})
        bound = await scheduling_cluster.bound("chooses")
        assert cards(bound["chooses"], "nvidia") == [0]
        assert "nodeName" not in (await scheduling_cluster.one("does-not"))["spec"]
        assert admin.read("lease", NAME)["spec"]["holderIdentity"]
        assert "forbidden" not in scheduler.log.read_text()
        await admin.upgrade("--set=scheduler.mode=second", "--set=extender.policy=spread")
        assert admin.read("lease", NAME)["spec"]["holderIdentity"]
    finally:
        scheduler.stop()
    await admin.helm("uninstall")
    await scheduling_cluster.until(lambda: admin.ours() == [], "nothing of ours is left, its lease neither")


def certificates(admin: ClusterAdmin, secret: str, directory: Path) -> Path:
    """The Secret as a pod has it mounted."""
    place = directory / secret
    place.mkdir()
    for name, content in admin.read("secret", secret)["data"].items():
        (place / name).write_bytes(base64.b64decode(content))
    return place


def second_scheduler(admin: ClusterAdmin, tls: Path, directory: Path) -> Process:
    """As the chart's Deployment starts it, but for what only a pod has: the Service's name, mounts, and the account in place."""
    scheduling_cluster = admin.scheduling_cluster
    token = scheduling_cluster.plane.kubectl("create", "token", NAME, f"--namespace={NAMESPACE}").strip()
    account = directory / "account.kubeconfig"
    write_kubeconfig(account, url=scheduling_cluster.plane.url, ca_file=scheduling_cluster.plane.ca_file, user=Token(token))
    configuration = admin.read("configmap", NAME)["data"]["config.yaml"]
    service = f"gpushare-schd-extender.{NAMESPACE}.svc:12345"
    assert service in configuration
    content = yaml.safe_load(
        configuration.replace(service, f"127.0.0.1:{scheduling_cluster.port}").replace("/etc/accelshare/tls", str(tls))
    )
    file = directory / "config.yaml"
    file.write_text(yaml.safe_dump(content | {"clientConnection": {"kubeconfig": str(account)}}))
    asked = [f"--{what}-kubeconfig={account}" for what in ("authentication", "authorization")]
    program = binaries(["kube-scheduler"], lambda _words: None)["kube-scheduler"]
    command: list[str | Path] = [program, f"--config={file}", "--bind-address=127.0.0.1", f"--secure-port={free_port()}", *asked]
    return Process("second scheduler", command, directory / "second-scheduler.log")
