"""inspect and explain on the real control plane, with the original systems' workloads."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.scheduling_cluster import SchedulingCluster

pytestmark = pytest.mark.real


def on_the_path(directory: Path, word: str) -> Path:
    """The plugin as pip would install it, in a directory that is on kubectl's PATH."""
    program = directory / f"kubectl-inspect-{word}"
    program.write_text(f"#!{sys.executable}\nfrom accelshare.inspect_cli.plugin import main\nmain()\n")
    program.chmod(0o755)
    return program


def typed(scheduling_cluster: SchedulingCluster, *words: str, user: str = "") -> Callable[[], tuple[int, str, str]]:
    """What a user types, as the administrator or as a user without permissions."""
    kubeconfig = scheduling_cluster.plane.kubeconfig_for(user) if user else scheduling_cluster.plane.kubeconfig
    environ = {
        **{name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ},
        "PATH": f"{scheduling_cluster.directory}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(scheduling_cluster.directory),
        "KUBECONFIG": str(kubeconfig),
    }

    def run() -> tuple[int, str, str]:
        done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=300, check=False)
        return done.returncode, done.stdout, done.stderr

    return run


async def accelshare(scheduling_cluster: SchedulingCluster, *words: str, user: str = "") -> tuple[int, str, str]:
    return await asyncio.to_thread(typed(scheduling_cluster, sys.executable, "-m", "accelshare", *words, user=user))


async def test_kubectl_inspect_xpushare_prints_the_guides_table(served: SchedulingCluster) -> None:
    """The guide's Deployment, the guide's command, the guide's table, byte for byte."""
    on_the_path(served.directory, "xpushare")
    await served.example_node("kunlun")
    await served.example_node("nvidia")
    served.apply("examples/kunlun/xpu_pod.yaml")

    async def both() -> bool:
        pods = await served.pods()
        return len(pods) == 2 and all(pod["spec"].get("nodeName") for pod in pods.values())

    await served.until(both, "both replicas bound")
    assert served.extender is not None
    served.extender.stop()  # it needs no extender
    kubectl = str(served.plane._programs["kubectl"])
    assert await asyncio.to_thread(typed(served, kubectl, "inspect", "xpushare")) == (
        0,
        "NAME      IPADDRESS     XPU0(Allocated/Total)  XPU1(Allocated/Total)  XPU2(Allocated/Total)  XPU3(Allocated/Total)  "
        "XPU Memory(MiB)\n"
        "minikube  192.168.49.2  4500/8064              4500/8064              0/8064                 0/8064                 "
        "9000/32256\n"
        "---------------------------------------------------------------------------------------\n"
        "Allocated/Total XPU Memory In Cluster:\n"
        "9000/32256 (27%)  \n",
        "",
    )
    code, out, err = await asyncio.to_thread(typed(served, kubectl, "inspect", "xpushare", "-d", "minikube"))
    assert (code, err) == (0, "")
    assert out.startswith("\nNAME:       minikube\nIPADDRESS:  192.168.49.2\n\nNAME")
    assert out.endswith("\n\n\nAllocated/Total XPU Memory In Cluster:  9000/32256 (27%)  \n")


async def test_kubectl_itself_completes_the_plugin(scheduling_cluster: SchedulingCluster) -> None:
    """The real kubectl finds the program beside the plugin and shows what it proposes."""
    on_the_path(scheduling_cluster.directory, "xpushare")
    program = scheduling_cluster.directory / "kubectl_complete-inspect-xpushare"
    program.write_text(f"#!{sys.executable}\nfrom accelshare.inspect_cli.kubectl_completion import main\nmain()\n")
    program.chmod(0o755)
    await scheduling_cluster.example_node("kunlun")
    kubectl = str(scheduling_cluster.plane._programs["kubectl"])
    code, out, _ = await asyncio.to_thread(typed(scheduling_cluster, kubectl, "__complete", "inspect", "xpushare", "-d", "mini"))
    assert (code, out.splitlines()) == (0, ["minikube", ":4"])


async def test_explain_shows_the_schedulers_message_and_remedies(served: SchedulingCluster) -> None:
    """The fourth pod of the gcushare guide stays pending, and the reason is explained."""
    await served.example_node("enflame")
    served.apply("examples/enflame/gcushare-pod-4.json", namespace="kube-system")

    async def pending_with_reason() -> bool:
        """kube-scheduler writes the condition, which explain shows, beside the event."""
        status = (await served.one("gcushare-pod-4", "kube-system"))["status"]
        return any("insufficient GCU" in condition.get("message", "") for condition in status.get("conditions", []))

    await served.until(pending_with_reason, "kube-scheduler's reason is on the pod")
    code, out, err = await accelshare(served, "explain", "gcushare-pod-4", "-n", "kube-system")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "kube-system/gcushare-pod-4 is pending. It requests 20 GB of one GCU (enflame.com/gcu-memory: 20)."
    assert lines[1].startswith("kube-scheduler: 0/1 nodes are available: 1 insufficient GCU Memory in one gcu device.")
    assert lines[2] == "Wrong: no GCU in this cluster has 20 GB; the largest has 16 GB (GCU0 of sse-lab-inspur-048)"
    assert "  would help: request at most 16 GB" in lines


async def test_a_missing_permission_is_reported_with_verb_and_resource(scheduling_cluster: SchedulingCluster) -> None:
    code, out, err = await accelshare(scheduling_cluster, "inspect", user="somebody")
    assert (code, out) == (1, "")
    assert err.startswith("Error: no permission: user somebody may not list nodes in the whole cluster.\n")
