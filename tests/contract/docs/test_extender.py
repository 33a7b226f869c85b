"""The pages 'Run the extender' and 'TLS': all their commands, from nothing to an extender that answers."""

import os

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from cluster.https import free_port
from tests.contract.docs.machine import Machine
from tests.contract.docs.page_runner import PageRunner
from tests.contract.docs.pages import sections
from tests.e2e.scheduling_cluster import SchedulingCluster

pytestmark = pytest.mark.real


async def test_extender(scheduling_cluster: SchedulingCluster, throwaway_machine: Machine) -> None:
    page = "docs/how-to/extender.md"
    machine = throwaway_machine
    # Where kubeadm keeps the cluster's CA.
    key = scheduling_cluster.plane._authority._key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    machine.write("/etc/kubernetes/pki/ca.crt", scheduling_cluster.plane.ca_file.read_bytes())
    machine.write("/etc/kubernetes/pki/ca.key", key)
    # How pip reaches its index is the machine's business.
    for name in os.environ:
        if name.startswith("PIP_"):
            machine.must(f"export {name}='{os.environ[name]}'")
    machine.must("export PIP_NO_COMPILE=1")  # it is run once
    page_runner = PageRunner(machine, ports())
    by_section = sections(page)
    await page_runner.run(by_section.pop("Before you start"))
    assert page_runner.out("/opt/accelshare/bin/accelshare --version").startswith("accelshare ")
    await page_runner.run(by_section.pop("Rights"))
    # kubeadm believes that the API server is on port 6443 of this machine.
    machine.must(
        f"sed -i 's#server: .*#server: {scheduling_cluster.plane.url}#' /etc/kubernetes/accelshare.conf && unset KUBECONFIG"
    )
    await page_runner.run(by_section.pop("Start it"))
    assert page_runner.out("curl") == "ok"
    machine.must("export KUBECONFIG=/etc/kubernetes/accelshare.conf")
    for part in by_section.values():
        await page_runner.run(part)
    assert page_runner.out("curl -s --cacert") == "ok"
    await page_runner.end()
    scheduling_cluster.plane.kubectl("delete", "serviceaccount", "accelshare-extender", "--namespace=kube-system")


async def test_tls(scheduling_cluster: SchedulingCluster, throwaway_machine: Machine) -> None:
    page = "docs/how-to/tls.md"
    machine = throwaway_machine
    page_runner = PageRunner(machine, ports())
    by_section = sections(page)
    end = by_section.pop("At the end")
    await page_runner.run(by_section.pop("What there is"))
    assert "accelshare-scheduler-tls" in page_runner.out("accelshare certificates status")
    await page_runner.run(by_section.pop("When a key is stolen"))
    machine.must("accelshare certificates ensure --namespace kube-system")
    # What kubelet mounts for the extender's pod.
    machine.must("mkdir /tls")
    for key in ("tls.crt", "tls.key", "ca.crt"):
        value = f"go-template='{{{{index .data \"{key}\" | base64decode}}}}'"
        machine.must(f"kubectl get secret accelshare-extender-tls --namespace kube-system --output {value} > /tls/{key}")
    for part in by_section.values():
        await page_runner.run(part)
    assert page_runner.out("curl") == "ok"
    await page_runner.run(end)
    assert scheduling_cluster.plane.kubectl("get", "secrets", "--namespace=kube-system", "--output=name") == ""
    await page_runner.end()


def ports() -> dict[str, str]:
    """The pages' ports may be taken on this machine."""
    own, probes = free_port(), free_port()
    return {
        r"127\.0\.0\.1:12345": f"127.0.0.1:{own}",
        r"127\.0\.0\.1:12346": f"127.0.0.1:{probes}",
        r"--probe-port 12346": f"--probe-port {probes}",
        r"accelshare extender --tls": f"accelshare extender --listen 127.0.0.1:{own} --tls",
    }
