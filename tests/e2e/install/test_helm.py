"""helm install, upgrade and uninstall with the real helm on a real API server: created, kept and removed objects.

There is no kubelet: the hook runner runs hook Jobs with their own ServiceAccounts; other pods stay pending. test_on_cluster.py
does it with containers.
"""

import asyncio
import json
import re

import pytest

from deploy.render import CHART, HelmError, helm
from tests.e2e.install.cluster_admin import ClusterAdmin
from tests.e2e.install.hook_runner import NAMESPACE

pytestmark = pytest.mark.real


async def test_install_upgrade_uninstall(admin: ClusterAdmin) -> None:
    """From nothing to everything, changed, and back to nothing; nodes that were labelled before stay so."""
    assert admin.ours() == []
    await admin.scheduling_cluster.pod("running", {}, nodeName="n1")
    running = await admin.scheduling_cluster.one("running")

    output = await admin.install("--set=nodes.names={n1,n2}")
    assert "accelshare 0" in output
    assert admin.hook_runner.output("certificates").startswith("0 ")
    assert await admin.labelled() == ["n1", "n2"]
    made = admin.certificates()
    assert set(admin.read("secret", "accelshare-extender-tls")["data"]) == {"tls.crt", "tls.key", "ca.crt"}
    assert not [name for name in admin.ours() if name.startswith(("job", "serviceaccount/accelshare-certificates"))]

    await admin.upgrade("--set=nodes.names={n2,n3}", "--set=image.tag=next")
    assert await admin.labelled() == ["n1", "n2", "n3"]
    # Before the install there was no Service whose address the extender's certificate could have; now there is.
    assert {name for name, version in admin.certificates().items() if version != made[name]} == {"accelshare-extender-tls"}
    made = admin.certificates()
    (container,) = admin.read("deployment", "gpushare-schd-extender")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "accelshare:next"

    await admin.upgrade("--set=nodes.names={n3}")
    assert await admin.labelled() == ["n1", "n3"]
    assert admin.certificates() == made

    await admin.helm("uninstall")
    assert [run.container for run in admin.hook_runner.runs if run.code != 0] == []
    assert await admin.labelled() == ["n1"]
    await admin.scheduling_cluster.until(lambda: admin.ours() == [], "nothing of ours is left")
    assert (await admin.scheduling_cluster.one("running"))["metadata"] == running["metadata"]


async def test_the_uninstall_takes_what_agents_wrote_on_their_nodes(admin: ClusterAdmin) -> None:
    """Inventory and amounts; what is somebody else's stays, also under the same name on a node that had no agent."""
    scheduling_cluster = admin.scheduling_cluster
    amounts = {"aliyun.com/gpu-count": 2, "aliyun.com/gpu-mem": 30, "nvidia.com/gpu": 2, "example.com/other": 1}
    await scheduling_cluster.node("n4", amounts, inventory={"nvidia": {"cards": [{"index": 0, "size": 15}]}})
    await scheduling_cluster.node("n5", {"nvidia.com/gpu": 8})
    await admin.install()
    await admin.helm("uninstall")
    assert [run for run in admin.hook_runner.runs if run.code != 0] == []
    found = {name: await scheduling_cluster.read(f"/api/v1/nodes/{name}") for name in ("n4", "n5")}
    assert "accelshare.io/inventory" not in found["n4"]["metadata"].get("annotations", {})
    for part in ("capacity", "allocatable"):
        shown = {name: {key for key in node["status"][part] if "/" in key} for name, node in found.items()}
        assert shown == {"n4": {"example.com/other"}, "n5": {"nvidia.com/gpu"}}


async def test_an_uninstall_that_cannot_put_schedulers_back_deletes_nothing(admin: ClusterAdmin) -> None:
    """As long as a kube-scheduler asks the extender, the extender stays; when the cause is gone, the same command goes on."""
    await admin.install()
    there = await admin.settled()
    admin.hook_runner.refuses = ("restore-schedulers",)
    with pytest.raises(HelmError, match="accelshare-uninstall"):
        await admin.helm("uninstall")
    assert set(there) <= set(admin.ours())
    admin.hook_runner.refuses = ()
    await admin.helm("uninstall")
    await admin.scheduling_cluster.until(lambda: admin.ours() == [], "nothing of ours is left")


async def test_a_new_memory_unit_is_refused_by_helm_while_pods_of_the_old_one_live(admin: ClusterAdmin) -> None:
    """helm ends with an error before it changes anything, and the Job's words name the pods; a rollback is looked at too."""
    scheduling_cluster = admin.scheduling_cluster
    await admin.install()
    await scheduling_cluster.node("n4", {}, inventory={"nvidia": {"unit": "GiB", "cards": [{"index": 0, "size": 15}]}})
    await scheduling_cluster.pod("old", {"aliyun.com/gpu-mem": 3}, nodeName="n4")
    made = admin.certificates()
    agents = admin.read("daemonset", "gpushare-device-plugin-ds")

    with pytest.raises(HelmError, match=r"(?s)UPGRADE FAILED: pre-upgrade hooks failed.*accelshare-memory-units"):
        await admin.upgrade("--set=vendors.nvidia.memoryUnit=MiB", "--set=nodes.names={n2}")
    refusal = r"nvidia: the memory unit of n4 is 'GiB' and cannot become 'MiB' .*: default/old"
    assert re.search(refusal, admin.hook_runner.output("memory-units"))
    # The Job stays for an hour with its words; its rights are gone already.
    left = [name.partition("/")[0] for name in admin.ours() if "memory-units" in name]
    assert left == ["job.batch", "pod"]
    assert admin.read("daemonset", "gpushare-device-plugin-ds") == agents
    assert admin.certificates() == made
    assert await admin.labelled() == ["n1"]

    await scheduling_cluster.delete("/api/v1/namespaces/default/pods/old")
    await admin.upgrade("--set=vendors.nvidia.memoryUnit=MiB")
    assert "memory unit of n4 is 'GiB' and may become 'MiB'" in admin.hook_runner.output("memory-units")
    args = admin.read("daemonset", "gpushare-device-plugin-ds")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--memory-unit=nvidia=MiB" in args

    await scheduling_cluster.patch("/api/v1/nodes/n4", {"metadata": {"annotations": {"accelshare.io/inventory": cards("MiB")}}})
    await scheduling_cluster.pod("new", {"aliyun.com/gpu-mem": 3072}, nodeName="n4")
    with pytest.raises(HelmError, match=r"accelshare-memory-units failed"):
        await admin.helm("rollback", "1")
    assert "is 'MiB' and cannot become 'GiB'" in admin.hook_runner.output("memory-units")


def cards(unit: str) -> str:
    return json.dumps({"nvidia": {"unit": unit, "cards": [{"index": 0, "size": 15}]}})


async def test_an_install_stops_when_the_certificates_cannot_be_made(admin: ClusterAdmin) -> None:
    admin.hook_runner.refuses = ("certificates",)
    with pytest.raises(HelmError, match="accelshare-certificates"):
        await admin.install()
    assert [name for name in admin.ours() if name.startswith(("deployment", "daemonset"))] == []


async def test_a_node_that_does_not_exist_stops_the_install_and_is_named(admin: ClusterAdmin) -> None:
    with pytest.raises(HelmError):
        await admin.install("--set=nodes.names={n2,n9}")
    assert re.search(r"has no node n9; .* n1, n2, n3", admin.hook_runner.output("node-labels"))
    assert await admin.labelled() == ["n1"]


@pytest.mark.parametrize(("namespace", "preset"), [(NAMESPACE, "gpushare"), ("default", "xpushare")])
async def test_a_second_release_is_refused(admin: ClusterAdmin, namespace: str, preset: str) -> None:
    """Two extenders would sell the same card twice. Elsewhere and with another preset no name is taken, and it is refused too."""
    await admin.install()
    there = await admin.settled()
    with pytest.raises(HelmError, match="accelshare is release accelshare in namespace kube-system already"):
        await asyncio.to_thread(
            helm,
            "install",
            "another",
            str(CHART),
            f"--namespace={namespace}",
            "--timeout=60s",
            f"--values={CHART}/presets/{preset}.yaml",
            kubeconfig=admin.scheduling_cluster.plane.kubeconfig,
        )
    await admin.until_there_is(there)
    await admin.upgrade("--set=extender.policy=spread")


async def test_a_manager_that_is_to_go_puts_kube_schedulers_back_first(admin: ClusterAdmin) -> None:
    """Else they would ask the extender with certificates that nobody renews, and no uninstall would know of them."""
    await admin.install()
    applied = {"data": {"node.cp.1": "applied", "node.cp-2": "restored"}}
    kubectl = admin.scheduling_cluster.plane.kubectl
    at = ("patch", "configmap", "accelshare-scheduler-config", f"--namespace={NAMESPACE}", "--type=merge", "--patch")
    kubectl(*at, json.dumps(applied))
    with pytest.raises(HelmError, match=r"the manager of cp\.1 has not put kube-scheduler back"):
        await admin.upgrade("--set=scheduler.mode=none")
    kubectl(*at, json.dumps({"data": {"wanted": "restored", "node.cp.1": "restored"}}))
    await admin.upgrade("--set=scheduler.mode=none")


async def test_certificates_of_an_earlier_choice_go_too(admin: ClusterAdmin) -> None:
    """With TLS switched off by an upgrade nobody uses them any more; a CA's key is nothing to leave behind."""
    await admin.install()
    await admin.upgrade("--set=tls.enabled=false")
    await admin.helm("uninstall")
    await admin.scheduling_cluster.until(lambda: admin.ours() == [], "nothing of ours is left")
