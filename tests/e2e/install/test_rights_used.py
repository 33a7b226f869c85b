"""Every permission of the chart is used and none is missing, by the API server's audit log.

Extender, agent, manager and the Jobs of helm do their work under the accounts of a release. There is no kubelet and no container
runtime: the processes have the tokens that kubelet would give them, and the runtime is the one in memory.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest
import yaml

from accelshare.agent.nri.protocol.nri_pb2 import Container, PodSandbox
from accelshare.install.certificates.secrets import Names
from accelshare.kube import config
from accelshare.kube.binding import Bound, bind
from accelshare.kube.client import Client
from accelshare.testing.fake_runtime import FakeRuntime, RuntimeFeatures
from accelshare.wire import assignment
from cluster.components import DEFAULT_CONTROLLERS
from cluster.control_plane import ControlPlane
from cluster.https import free_port
from cluster.process import Process
from tests.contract.agent.fake_node import PROFILE
from tests.contract.chart.rendered_objects import Object, objects, preset, setting
from tests.e2e.install.accounts import AGENT, EXTENDER, NAMESPACE, agent_of, with_token
from tests.e2e.install.cluster_admin import ClusterAdmin
from tests.e2e.install.hook_runner import run_hooks
from tests.e2e.node_reconcilers import Cluster
from tests.e2e.rights import STATE
from tests.e2e.scheduling_cluster import SchedulingCluster, annotations, open_scheduling_cluster

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
EVERYWHERE = {"nodes", "nodes/status", "pods", "pods/status", "pods/binding", "events"}
# Granted, and not used here: each with its reason.
UNUSED = {
    # Where no NODE_NAME can be given to its pod, an agent reads the pod to know its node. The chart gives one.
    f"{AGENT}: get pods",
}


@dataclass(frozen=True, slots=True, order=True)
class Use:
    """A right, as an account has or uses it."""

    account: str
    verb: str
    resource: str  # with its group and subresource
    namespace: str  # empty: in all of them

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.account}: {self.verb} {self.resource}{where}"


@dataclass(frozen=True, slots=True)
class Audit:
    """What the API server wrote down of our accounts."""

    uses: frozenset[Use]
    refused: tuple[str, ...]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of its own that writes down what ServiceAccounts do, and checks the types of admission policies."""
    if sys.platform != "linux":
        pytest.skip(f"the real control plane is built for Linux only, this is {sys.platform}")
    directory = tmp_path_factory.mktemp("audited")
    rules = [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}]
    policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": rules}
    (directory / "policy.yaml").write_text(yaml.safe_dump(policy))
    flags = [f"--audit-policy-file={directory / 'policy.yaml'}", f"--audit-log-path={directory / 'audit.log'}"]
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
    inventory = {"nvidia": {"unit": "GiB", "cards": [{"index": 0, "size": 8}]}}
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
    accounts = {thing["metadata"]["name"] for thing in made if thing["kind"] == "ServiceAccount"}
    audit = read_audit(scheduling_cluster.plane.directory.parent / "audit.log", accounts)
    assert audit.refused == ()
    assert {right.resource for right in granted(made) if not right.namespace} <= EVERYWHERE
    unused = {str(right) for right in granted(made) if not any(covers(right, use) for use in audit.uses)}
    assert unused == UNUSED


async def extender_works(scheduling_cluster: SchedulingCluster) -> None:
    """It binds, refuses, has a pod asked for again when there is room, reads a pod that it does not know, and says events."""
    flag = f"--kubeconfig={with_token(scheduling_cluster, EXTENDER)}"
    await scheduling_cluster.start_extender(flag)
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
        for pod in (full, plain):
            meta = pod["metadata"]
            bound = {"PodName": meta["name"], "PodNamespace": "default", "PodUID": meta["uid"], "Node": NODE}
            assert not (await call("bind", bound)).get("Error")
        assert not await fits(waits)
        await scheduling_cluster.delete("/api/v1/namespaces/default/pods/full")

        async def woken() -> bool:
            return "accelshare.io/woken" in annotations(await scheduling_cluster.one("waits"))

        await scheduling_cluster.until(woken, "the pod that waits is touched")
    await repeat_events(scheduling_cluster, "wrong")
    assert scheduling_cluster.extender is not None
    scheduling_cluster.extender.stop()
    await scheduling_cluster.start_extender(flag)
    await events_counted(scheduling_cluster, "wrong")
    scheduling_cluster.extender.stop()


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
        )
    assert answer == Bound()


async def made(scheduling_cluster: SchedulingCluster, runtime: FakeRuntime, name: str) -> None:
    """The runtime makes the pod's one container."""
    meta = (await scheduling_cluster.one(name))["metadata"]
    box = PodSandbox(id=f"box-{name}", name=name, uid=meta["uid"], namespace="default", annotations=meta.get("annotations") or {})
    runtime.run_pod(box)
    await runtime.create_container(box.id, Container(id=name, name="main"))


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


def granted(things: list[Object]) -> set[Use]:
    """What the chart's own roles give, verb by verb. Roles that Kubernetes brings are not ours to judge."""
    rules = {
        (role["kind"], role["metadata"]["name"], role["metadata"].get("namespace", "")): role["rules"]
        for role in things
        if role["kind"] in ("Role", "ClusterRole")
    }
    found: set[Use] = set()
    for binding in things:
        if binding["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        namespace = binding["metadata"].get("namespace", "")
        role = binding["roleRef"]
        for rule in rules[role["kind"], role["name"], namespace if role["kind"] == "Role" else ""]:
            for group in rule["apiGroups"]:
                found |= {
                    Use(subject["name"], verb, f"{resource}.{group}".rstrip("."), namespace)
                    for subject in binding["subjects"]
                    for resource in rule["resources"]
                    for verb in rule["verbs"]
                }
    return found


def covers(right: Use, use: Use) -> bool:
    same = (right.account, right.verb, right.resource) == (use.account, use.verb, use.resource)
    return same and right.namespace in ("", use.namespace)


def read_audit(log: Path, accounts: set[str]) -> Audit:
    prefix = f"system:serviceaccount:{NAMESPACE}:"
    uses: set[Use] = set()
    refused: list[str] = []
    for line in log.read_text().splitlines():
        event = json.loads(line)
        account = event["user"]["username"].removeprefix(prefix)
        what = event.get("objectRef")
        if account not in accounts or what is None:
            continue
        resource = "/".join(part for part in (what["resource"], what.get("subresource")) if part)
        use = Use(account, event["verb"], f"{resource}.{what.get('apiGroup', '')}".rstrip("."), what.get("namespace", ""))
        if event.get("responseStatus", {}).get("code") == 403:
            refused.append(f"{use} ({what.get('name', '')})")
        else:
            uses.add(use)
    return Audit(frozenset(uses), tuple(refused))
