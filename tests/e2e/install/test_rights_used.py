"""Every permission of the chart is used and none is missing, by the API server's audit log.

Extender, agent, manager and the Jobs of helm do their work under the accounts of a release. There is no kubelet and no container
runtime: the processes have the tokens that kubelet would give them, and the runtime is the one in memory.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest

from accelshare.agent.nri.protocol.nri_pb2 import Container, PodSandbox
from accelshare.install.certificates.secrets import Names
from accelshare.kube import config
from accelshare.kube.binding import Bound, bind
from accelshare.kube.client import Client
from accelshare.testing.fake_runtime import FakeRuntime, RuntimeFeatures, RuntimeRefusalError
from accelshare.wire import assignment
from cluster import audit
from cluster.components import DEFAULT_CONTROLLERS
from cluster.control_plane import ControlPlane
from cluster.https import free_port
from cluster.process import Process
from cluster.waiting import wait_until_async
from tests.contract.agent.fake_node import PROFILE
from tests.contract.chart.rendered_objects import Object, objects, preset, setting
from tests.e2e.install.accounts import AGENT, EXTENDER, NAMESPACE, agent_of, with_token
from tests.e2e.install.cluster_admin import ClusterAdmin
from tests.e2e.install.hook_runner import run_hooks
from tests.e2e.install.rights_audit import accounts, granted, read_audit, unused
from tests.e2e.node_reconcilers import Cluster
from tests.e2e.rights import STATE
from tests.e2e.scheduling_cluster import (
    REQUEST_LIMIT_S,
    SchedulingCluster,
    annotations,
    container,
    open_scheduling_cluster,
)

pytestmark = pytest.mark.real
MANAGER = "accelshare-scheduler-manager"
NODE = "n1"
UNHEALTHY = '\n[unhealthy]\nnamespace = "kube-system"\nname = "unhealthy-zpu-{node}"\nkey = "zpus"\n'
# Without its profile, which Jobs would look for in files of their pods; without memory, so that no Job asks for its unit.
ACME = {"enabled": True, "nodeLabel": "acme=true", "resources": {"whole": "acme.example/zpu"}}
KEYS = [f"acme.example/{name}" for name in ("index", "size", "units", "assigned", "time")]
VALUES = setting(
    vendors__acme={**ACME, "recordAnnotations": KEYS, "unhealthyNamespace": NAMESPACE},
    nodes__names=[NODE],
    admissionPolicy__recordWriters=["admin"],  # the test itself
)
# What may be granted in the whole cluster: nodes have no namespace, and users' pods are in any.
EVERYWHERE = {"nodes", "nodes/status", "pods", "pods/status", "pods/binding", "events", "resourcequotas"}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of its own that writes down what ServiceAccounts do, and checks the types of admission policies."""
    if sys.platform != "linux":
        pytest.skip(f"the real control plane is built for Linux only, this is {sys.platform}")
    directory = tmp_path_factory.mktemp("audited")
    audit.policy_file(directory).write_text(audit.policy())
    flags = [f"--{name}={value}" for name, value in audit.flags(directory).items()]
    controllers = (*DEFAULT_CONTROLLERS, "validatingadmissionpolicy-status-controller")
    with ControlPlane.start(directory / "plane", print, controllers, api_server_args=flags) as started:
        yield started


@pytest.fixture
async def admin(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[ClusterAdmin]:
    async with (
        open_scheduling_cluster(plane, tmp_path) as scheduling_cluster,
        run_hooks(scheduling_cluster, tmp_path) as hooks,
    ):
        yield ClusterAdmin(scheduling_cluster, hooks)


async def test_every_right_of_the_chart_is_used_and_no_other_is_wanted(admin: ClusterAdmin, tmp_path: Path) -> None:
    scheduling_cluster = admin.scheduling_cluster
    inventory = {"nvidia": {"unit": "GiB", "delivery": "nri", "cards": [{"index": 0, "size": 8, "enforced_by": "nvml"}]}}
    for node in (NODE, "n2"):  # n2 has no agent: what the uninstall takes away there, nobody else has
        await scheduling_cluster.node(node, {"aliyun.com/gpu-mem": 8, "aliyun.com/gpu-count": 1}, inventory=inventory)
    await admin.install(*VALUES)
    await extender_works(scheduling_cluster)
    await agent_works(scheduling_cluster, tmp_path)
    await manager_works(scheduling_cluster, tmp_path)
    await admin.upgrade(*VALUES)
    await policies_have_no_mistake(scheduling_cluster)
    await admin.helm("uninstall")
    assert [run for run in admin.hook_runner.runs if run.code != 0] == []

    made = objects(*preset("gpushare"), *VALUES)
    requests = read_audit(audit.log_file(scheduling_cluster.plane.directory.parent), accounts(made))
    assert requests.refused == ()
    assert {right.resource for right in granted(made) if not right.namespace} <= EVERYWHERE
    assert unused(made, requests) == set()


async def extender_works(scheduling_cluster: SchedulingCluster) -> None:
    """It binds, refuses, has a pod asked for again when there is room, reads a pod that it does not know, lets a slice grow, and
    says events."""
    kubeconfig = f"--kubeconfig={with_token(scheduling_cluster, EXTENDER)}"
    await scheduling_cluster.start_extender(kubeconfig, "--resize", *await replica(scheduling_cluster, "extender-1", "10.0.0.1"))
    await scheduling_cluster.pod("wrong", {"aliyun.com/gpu-mem": 2}, annotations={"accelshare.io/card-count": "none"})
    full, waits, plain = [await scheduling_cluster.pod(name, limits) for name, limits in EXTENDER_PODS.items()]
    async with aiohttp.ClientSession(scheduling_cluster.extender_url) as session:

        async def call(verb: str, content: Object) -> Object:
            async with session.post(f"/accelshare/{verb}", json=content) as answer:
                found: Object = await answer.json()
                return found

        async def fits(pod: Object) -> bool:
            return NODE in ((await call("filter", {"Pod": pod, "NodeNames": [NODE]}))["NodeNames"] or [])

        await scheduling_cluster.until(lambda: fits(full), "the extender knows the node")

        async def bind(pod: Object) -> None:
            meta = pod["metadata"]
            bound = {"PodName": meta["name"], "PodNamespace": "default", "PodUID": meta["uid"], "Node": NODE}
            assert not (await call("bind", bound)).get("Error")

        for pod in (full, plain):
            await bind(pod)
        assert not await fits(waits)
        await scheduling_cluster.delete("/api/v1/namespaces/default/pods/full")

        async def requeued() -> bool:
            return "accelshare.io/requeued" in annotations(await scheduling_cluster.one("waits"))

        await scheduling_cluster.until(requeued, "the pod that waits is touched")
        await bind(await scheduling_cluster.pod("grows", {"aliyun.com/gpu-mem": 1}))
    await slice_grows(scheduling_cluster, "grows")
    await repeat_events(scheduling_cluster, "wrong")
    assert scheduling_cluster.extender is not None
    scheduling_cluster.extender.stop()
    await scheduling_cluster.start_extender(kubeconfig, *await replica(scheduling_cluster, "extender-2", "10.0.0.2"))
    await events_counted(scheduling_cluster, "wrong")
    scheduling_cluster.extender.stop()


async def slice_grows(scheduling_cluster: SchedulingCluster, name: str) -> None:
    """Before that is granted, the quotas of the namespace are read."""
    pod, running = f"/api/v1/namespaces/default/pods/{name}", {"phase": "Running", "startTime": "2026-11-17T00:00:00Z"}
    await scheduling_cluster.patch(f"/api/v1/nodes/{NODE}", {"metadata": {"annotations": {"accelshare.io/applied": "{}"}}})
    await scheduling_cluster.patch(f"{pod}/status", {"status": running})
    await scheduling_cluster.patch(pod, {"metadata": {"annotations": {"accelshare.io/resize": "2"}}})

    async def granted_now() -> bool:
        return "accelshare.io/granted" in annotations(await scheduling_cluster.one(name))

    await scheduling_cluster.until(granted_now, "the extender grants the resize")
    await scheduling_cluster.delete(pod)


async def replica(scheduling_cluster: SchedulingCluster, name: str, address: str) -> list[str]:
    """The flags of one of several extenders, whose pod has this address."""
    spec = {"containers": [container("extender", {})], "schedulerName": "none"}
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    await scheduling_cluster.create(pods, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    await scheduling_cluster.patch(f"{pods}/{name}/status", {"status": {"podIP": address, "podIPs": [{"ip": address}]}})
    return [f"--lease={EXTENDER}", f"--service={EXTENDER}", f"--pod={NAMESPACE}/{name}"]


EXTENDER_PODS: Mapping[str, Mapping[str, int]] = {
    "full": {"aliyun.com/gpu-mem": 8},
    "waits": {"aliyun.com/gpu-mem": 8},
    "plain": {},
}


async def repeat_events(scheduling_cluster: SchedulingCluster, pod: str) -> None:
    """As if its events had been said an hour ago: who says them again reads them and counts them up."""
    listed = await scheduling_cluster.until(lambda: events_on(scheduling_cluster, pod), f"an event on {pod}")
    for event in listed:
        path = f"/api/v1/namespaces/{event['metadata']['namespace']}/events/{event['metadata']['name']}"
        await scheduling_cluster.patch(path, {"lastTimestamp": "2026-01-01T00:00:00Z"})


async def events_counted(scheduling_cluster: SchedulingCluster, pod: str) -> None:
    async def twice() -> bool:
        return any(event["count"] > 1 for event in await events_on(scheduling_cluster, pod))

    await scheduling_cluster.until(twice, f"an event on {pod} is counted up")


async def events_on(scheduling_cluster: SchedulingCluster, name: str) -> list[Object]:
    found = (await scheduling_cluster.read("/api/v1/events"))["items"]
    return [event for event in found if event["involvedObject"]["name"] == name and "accelshare" in event["source"]["component"]]


async def agent_works(scheduling_cluster: SchedulingCluster, directory: Path) -> None:
    """A runtime that does not insist has made a container without its card; another pod gets its own, and its
    record is restored each time that somebody writes another."""
    kubeconfig = await agent_of(scheduling_cluster, NODE)
    places = Path(tempfile.mkdtemp(prefix="n-"))  # a socket's path has at most 107 characters
    (directory / "dev").mkdir()
    (directory / "dev/zpu0").symlink_to("/dev/null")
    (directory / "profiles").mkdir()
    (directory / "profiles/acme.toml").write_text(PROFILE + UNHEALTHY)
    (places / "config.toml").write_text("")
    command = [
        sys.executable,
        "-m",
        "accelshare",
        "agent",
        f"--kubeconfig={kubeconfig}",
        "--vendor=acme",
        f"--port={free_port()}",
    ]
    command += [f"--profiles={directory / 'profiles'}", f"--kubelet-root={places}", f"--dev-root={directory / 'dev'}"]
    command += [f"--nri-socket={places / 'nri.sock'}", f"--containerd-config={places / 'config.toml'}", "--delivery=nri"]
    command += [f"--node-name={NODE}", f"--cdi-directory={directory / 'cdi'}"]
    agent: Process | None = None
    try:
        async with FakeRuntime(places / "nri.sock", RuntimeFeatures(name="containerd", version="v2.4.2")) as runtime:
            await bound_with_card(scheduling_cluster, "bare")
            await made(scheduling_cluster, runtime, "bare")
            await runtime.start_container("bare")
            agent = Process("agent", command, directory / "agent-1.log")

            async def leaving() -> bool:
                return "deletionTimestamp" in (await scheduling_cluster.one("bare"))["metadata"]

            await scheduling_cluster.until(leaving, "a pod without its card is replaced")
            await bound_with_card(scheduling_cluster, "served")

            async def assigned() -> bool:
                return annotations(await scheduling_cluster.one("served"))["acme.example/assigned"] == "true"

            await runtime.until_plugins()
            await made(scheduling_cluster, runtime, "served")
            await scheduling_cluster.until(assigned, "the pod is marked as served")
            await rewrite(scheduling_cluster, "served")
            await repeat_events(scheduling_cluster, "served")
            agent.stop()
            await runtime.until_plugins(0)
            agent = Process("agent", command, directory / "agent-2.log")
            await runtime.until_plugins()
            await rewrite(scheduling_cluster, "served")
            await events_counted(scheduling_cluster, "served")
    except BaseException:
        if agent is not None:
            print(agent.last_lines())
        raise
    finally:
        if agent is not None:
            agent.stop()
        shutil.rmtree(places)


async def rewrite(scheduling_cluster: SchedulingCluster, name: str) -> None:
    """Somebody who may names another card in the pod's record; its agent puts it back."""
    path = f"/api/v1/namespaces/default/pods/{name}"
    await scheduling_cluster.patch(path, {"metadata": {"annotations": {"acme.example/index": "7"}}})

    async def restored() -> bool:
        return annotations(await scheduling_cluster.one(name))["acme.example/index"] == "0"

    await scheduling_cluster.until(restored, f"the record of {name} is restored")


async def bound_with_card(scheduling_cluster: SchedulingCluster, name: str) -> None:
    """As the extender binds, under its account."""
    record = json.dumps({"acme": [{"index": 0, "id": "zpu0", "units": 4}]})
    vendors = {"acme.example/index": "0", "acme.example/assigned": "false"}
    noted = {assignment.OURS: record, **vendors, **assignment.require_plugin()}
    pod = await scheduling_cluster.pod(name, {"acme.example/zpu-mem": 4})
    async with Client(config.load(with_token(scheduling_cluster, EXTENDER)), user_agent="test") as client:
        meta = pod["metadata"]
        answer = await bind(
            client,
            namespace="default",
            name=name,
            uid=meta["uid"],
            version=meta["resourceVersion"],
            node=NODE,
            annotations=noted,
            deadline_s=REQUEST_LIMIT_S,
        )
    assert isinstance(answer, Bound), answer


async def made(scheduling_cluster: SchedulingCluster, runtime: FakeRuntime, name: str) -> None:
    """The runtime makes the pod's one container, again until it is not refused, as kubelet does: an agent refuses it until its
    watch has shown the pod."""
    meta = (await scheduling_cluster.one(name))["metadata"]
    box = PodSandbox(id=f"box-{name}", name=name, uid=meta["uid"], namespace="default", annotations=meta.get("annotations") or {})
    runtime.run_pod(box)

    async def tried() -> bool:
        await runtime.create_container(box.id, Container(id=name, name="main"))
        return True

    await wait_until_async(tried, f"the container of {name} is made", retry_on=(RuntimeRefusalError,))


async def manager_works(scheduling_cluster: SchedulingCluster, directory: Path) -> None:
    """It finds certificates, makes one that is gone, renews others, puts kube-scheduler's files in place and says so."""
    names = Names(NAMESPACE, service=EXTENDER)
    async with Client(config.load(with_token(scheduling_cluster, MANAGER)), user_agent="test") as client:
        cluster = Cluster(scheduling_cluster, client, NAMESPACE, directory)
        host = cluster.host("cp-1")
        await scheduling_cluster.delete(f"/api/v1/namespaces/{NAMESPACE}/secrets/accelshare-scheduler-tls")
        await cluster.reconciler("cp-1", host, names=names).reconcile()
        cluster.now += timedelta(days=80)
        await cluster.reconciler("cp-1", host, names=names).reconcile()
        await repeat_events(scheduling_cluster, STATE)
        await cluster.write(wanted="restored")
        await cluster.reconciler("cp-1", host, names=names).reconcile()
        await cluster.write(wanted="applied")
        await cluster.reconciler("cp-1", host, names=names).reconcile()
        await events_counted(scheduling_cluster, STATE)
        await cluster.write(wanted="restored")  # no manager is left that the uninstall could ask
        await cluster.reconciler("cp-1", host, names=names).reconcile()


async def policies_have_no_mistake(scheduling_cluster: SchedulingCluster) -> None:
    """The control plane checks the types of their expressions: what it doubts would fail, and a failure refuses."""

    async def checked() -> dict[str, Object]:
        found = (await scheduling_cluster.read("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"))["items"]
        status = {policy["metadata"]["name"]: policy.get("status", {}) for policy in found}
        return status if all("typeChecking" in each for each in status.values()) else {}

    status = await scheduling_cluster.until(checked, "the policies were checked")
    assert {name: each["typeChecking"] for name, each in status.items()} == {"accelshare-records": {}, AGENT: {}}
