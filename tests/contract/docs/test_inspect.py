"""The pages 'Inspect', 'Before you install' and 'Find out what is wrong': all their commands on a real API server."""

import json
from typing import Any

import pytest

from tests.contract.docs.machine import Machine
from tests.contract.docs.page_runner import PageRunner
from tests.contract.docs.pages import commands, sections
from tests.e2e.scheduling_cluster import SchedulingCluster

pytestmark = pytest.mark.real
XPU = "baidu.com/xpu-mem"


async def pod(scheduling_cluster: SchedulingCluster, name: str, amount: int, *, card: int | None = None, **spec: Any) -> None:
    """A pod that waits, or one with its record on a card of the guide's node."""
    record = {} if card is None else {"accelshare.io/assignment": json.dumps({"kunlun": [{"index": card}]})}
    where = {} if card is None else {"nodeName": "minikube"}
    await scheduling_cluster.pod(name, {XPU: amount}, annotations=record, **where, **spec)


async def the_scene(scheduling_cluster: SchedulingCluster) -> None:
    """The xpushare guide's Deployment, two pods that fill the other cards, and pods that wait."""
    await scheduling_cluster.example_node("kunlun")
    await pod(scheduling_cluster, "xpu-pod-6bf885cf6d-2vzgz", 4500, card=0)
    await pod(scheduling_cluster, "xpu-pod-6bf885cf6d-m6vf6", 4500, card=1)
    await pod(scheduling_cluster, "train-0", 8064, card=2)
    await pod(scheduling_cluster, "train-1", 2000, card=3)
    await pod(scheduling_cluster, "waits", 7000)
    await pod(scheduling_cluster, "odd", 4000, labels={"baidu.com/xpu-count": "3"})


async def test_inspect(scheduling_cluster: SchedulingCluster, throwaway_machine: Machine) -> None:
    await the_scene(scheduling_cluster)
    by_section = sections("docs/how-to/inspect.md")
    script = by_section.pop("inspect.sh")
    # What the shells' own packages make; zsh counts the entries of an array from 1.
    throwaway_machine.must("mkdir -p /etc/bash_completion.d ~/.config/fish/completions /zsh; fpath=('' /zsh)")
    page_runner = PageRunner(throwaway_machine, {"127.0.0.1:32766": f"127.0.0.1:{scheduling_cluster.port}"})
    for part in by_section.values():
        await page_runner.run(part)
    for place in ("/etc/bash_completion.d/accelshare", "/zsh/_accelshare", "~/.config/fish/completions/accelshare.fish"):
        throwaway_machine.must(f"grep -q accelshare {place}")
    for form in ("-o json", "--vendor kunlun -o yaml"):
        assert "minikube" in page_runner.out(f"accelshare inspect {form}")

    await scheduling_cluster.example_node("enflame")
    await scheduling_cluster.start_extender()
    throwaway_machine.must(f"export ACCELSHARE_INSPECT_URL={scheduling_cluster.extender_url}/gcushare-scheduler/inspect")
    await page_runner.run(script)
    assert "totalGCU" in page_runner.out("deploy/inspect.sh")
    scheduling_cluster.plane.kubectl("delete", "clusterrole,clusterrolebinding", "accelshare-inspect")


async def test_usage(scheduling_cluster: SchedulingCluster, throwaway_machine: Machine) -> None:
    """No agent runs here, so that nothing is known of the use; the commands work all the same."""
    await the_scene(scheduling_cluster)
    page_runner = PageRunner(throwaway_machine)
    await page_runner.run(commands("docs/how-to/usage.md"))
    assert json.loads(page_runner.out("accelshare inspect --idle=8 -o json")) == {"idle": []}


async def test_preflight(scheduling_cluster: SchedulingCluster, throwaway_machine: Machine) -> None:
    await the_scene(scheduling_cluster)
    page_runner = PageRunner(throwaway_machine)
    await page_runner.run(commands("docs/how-to/preflight.md"))
    assert "permissions" in page_runner.out("accelshare preflight")
    assert json.loads(page_runner.out("accelshare preflight --namespace accelshare -o json"))


async def test_doctor(scheduling_cluster: SchedulingCluster, throwaway_machine: Machine) -> None:
    """Pods request cards here, and no extender runs."""
    await the_scene(scheduling_cluster)
    page_runner = PageRunner(throwaway_machine)
    await page_runner.run(commands("docs/how-to/doctor.md"))
    assert "no extender is installed" in page_runner.out("accelshare doctor")
    assert json.loads(page_runner.out("accelshare doctor -o json"))["findings"]
