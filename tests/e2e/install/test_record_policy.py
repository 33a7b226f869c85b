"""Only the extender, in a Binding, and the agent of the pod's node can write the records of a pod.

The chart's own policy on a real API server, with the rights that Kubernetes itself gives to users, kubelets and controllers.
"""

import itertools
import json
import string
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import yaml

from accelshare.kube import config
from accelshare.kube.binding import BindRefused, Bound, Unknown, bind
from accelshare.kube.client import Client
from accelshare.kube.errors import Conflict, Forbidden, KubeError
from accelshare.kube.patches import annotate_pod, grant_resize, touch_pod
from tests.contract.chart.rendered_objects import setting
from tests.e2e.install.accounts import AGENT, EXTENDER, RECORD, agent_of, in_force, refusal, rights, with_token
from tests.e2e.scheduling_cluster import Object, SchedulingCluster, annotations, container

pytestmark = pytest.mark.real
INDEX = "ALIYUN_COM_GPU_MEM_IDX"
PLUGINS = "required-plugins.noderesource.dev"
GPU_MEMORY = {"aliyun.com/gpu-mem": 3}
GIVEN = {RECORD: '{"nvidia":[{"index":0,"units":3}]}', INDEX: "0", PLUGINS: '["accelshare"]'}
WRITER = "system:serviceaccount:kube-system:another-extender"


@dataclass(frozen=True, slots=True)
class Callers:
    """Kubeconfigs of those who try."""

    user: Path  # may what the ClusterRole `edit` allows, in the namespace default
    extender: Path
    agent: Path  # of n1
    other_agent: Path  # of n2


@pytest.fixture
async def callers(scheduling_cluster: SchedulingCluster) -> AsyncIterator[Callers]:
    """Two nodes with their agents, and a pod `mine` that the extender has bound to n1."""
    async with in_force(
        scheduling_cluster, [*rights(*setting(admissionPolicy__recordWriters=[WRITER])), *user_rights("mallory")]
    ):
        for node in ("n1", "n2"):
            await scheduling_cluster.node(node, {})
        extender = with_token(scheduling_cluster, EXTENDER)
        agents = [await agent_of(scheduling_cluster, node) for node in ("n1", "n2")]
        pod = await scheduling_cluster.pod("mine", GPU_MEMORY)
        async with Client(config.load(extender), user_agent="test") as client:
            assert await bound(client, pod, GIVEN) == Bound()
        yield Callers(scheduling_cluster.plane.kubeconfig_for("mallory"), extender, agents[0], agents[1])


def user_rights(name: str) -> list[Object]:
    """The ClusterRole `edit` is the sum of these two; the controller that adds them up does not run here."""
    api = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding"}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}]
    return [
        {
            **api,
            "metadata": {"name": f"{name}-{role}", "namespace": "default"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"system:aggregate-to-{role}"},
            "subjects": subjects,
        }
        for role in ("edit", "view")
    ]


def pod_of(name: str, noted: dict[str, str], limits: dict[str, int] | None = None, **metadata: object) -> str:
    meta = {"name": name, "namespace": "default", "annotations": noted, **metadata}
    spec = {"containers": [container("main", limits or {})]}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})


REFUSED = {
    "change": (("annotate", "--overwrite", "pod", "mine", f"{RECORD}={{}}"), RECORD),
    "remove": (("annotate", "pod", "mine", f"{RECORD}-"), RECORD),
    "a vendor's key": (("annotate", "--overwrite", "pod", "mine", f"{INDEX}=1"), INDEX),
    "a vendor's key that is not there": (("annotate", "pod", "mine", "ALIYUN_COM_GPU_MEM_POD=1"), "ALIYUN_COM_GPU_MEM_POD"),
    "all at once": (("patch", "pod", "mine", "--type=merge", '--patch={"metadata":{"annotations":null}}'), RECORD),
    "the runtime's demand": (("annotate", "pod", "mine", f"{PLUGINS}-"), PLUGINS),
    "a shadow of the runtime's demand for the pod": (("annotate", "pod", "mine", f"{PLUGINS}/pod=[]"), f"{PLUGINS}/pod"),
    "a shadow for a container": (("annotate", "pod", "mine", f"{PLUGINS}/container.main=[]"), f"{PLUGINS}/container.main"),
    "a shadow for a container to come": (("annotate", "pod", "mine", f"{PLUGINS}/container.dbg=[]"), f"{PLUGINS}/container.dbg"),
}


async def test_a_user_cannot_change_or_remove_a_record(scheduling_cluster: SchedulingCluster, callers: Callers) -> None:
    for what, (arguments, key) in REFUSED.items():
        words = refusal(scheduling_cluster, callers.user, *arguments)
        expected = ("accelshare-records", f"annotation {key}", "admissionPolicy.recordWriters")
        assert [part for part in expected if part not in words] == [], f"{what}: {words}"
    assert annotations(await scheduling_cluster.one("mine")) == GIVEN


async def test_a_user_cannot_make_a_pod_that_has_a_record(scheduling_cluster: SchedulingCluster, callers: Callers) -> None:
    """The demand for NRI plugins is refused only where cards are asked for: other plugins have other pods."""
    create = ("create", "--filename=-")
    for key in (RECORD, INDEX):
        assert f"annotation {key} decides" in refusal(
            scheduling_cluster, callers.user, *create, stdin=pod_of("forged", {key: "0"})
        )
    for key in (PLUGINS, f"{PLUGINS}/pod", f"{PLUGINS}/container.main"):
        noted = {key: "[]"}
        assert f"annotation {key} decides" in refusal(
            scheduling_cluster, callers.user, *create, stdin=pod_of("forged", noted, GPU_MEMORY)
        )
        name = key.replace("/", "-").replace(".", "-")
        assert refusal(scheduling_cluster, callers.user, *create, stdin=pod_of(name, noted)) == ""


async def test_a_user_keeps_everything_else(scheduling_cluster: SchedulingCluster, callers: Callers) -> None:
    """Labels and other annotations, apply of a pod that was bound meanwhile, and its end."""
    file = pod_of("applied", {"mine": "1"}, GPU_MEMORY)
    assert refusal(scheduling_cluster, callers.user, "apply", "--filename=-", stdin=file) == ""
    async with Client(config.load(callers.extender), user_agent="test") as client:
        assert await bound(client, await scheduling_cluster.one("applied"), GIVEN) == Bound()
    assert refusal(scheduling_cluster, callers.user, "apply", "--filename=-", stdin=file.replace("mine: '1'", "mine: '2'")) == ""
    assert annotations(await scheduling_cluster.one("applied")).items() > {**GIVEN, "mine": "2"}.items()
    for arguments in (
        ("label", "pod", "mine", "x=y"),
        ("annotate", "pod", "mine", "x=y", "accelshare.io/card-count=1"),
        ("set", "image", "pod/mine", "main=example.com/other"),
        ("delete", "pod", "mine", "--wait=false"),
    ):
        assert refusal(scheduling_cluster, callers.user, *arguments) == "", arguments


async def test_subresources_cannot_change_a_record(scheduling_cluster: SchedulingCluster, callers: Callers) -> None:
    """`edit` may use some of them. The API server itself takes annotations by none of those that the policy leaves out."""
    forged = {"metadata": {"annotations": {RECORD: "{}", "by": "subresource"}}}
    debug = {"spec": {"ephemeralContainers": [{"name": "dbg", "image": "example.com/none"}]}}
    patch = ("patch", "pod", "mine", "--type=strategic")
    scheduling_cluster.plane.kubectl(*patch, "--subresource=ephemeralcontainers", f"--patch={json.dumps(forged | debug)}")
    scheduling_cluster.plane.kubectl(*patch, "--subresource=resize", f"--patch={json.dumps(forged)}")
    pod = await scheduling_cluster.one("mine")
    assert [each["name"] for each in pod["spec"]["ephemeralContainers"]] == ["dbg"]
    assert annotations(pod) == GIVEN
    words = refusal(
        scheduling_cluster, scheduling_cluster.plane.kubeconfig, *patch, "--subresource=status", f"--patch={json.dumps(forged)}"
    )
    assert f"annotation {RECORD}" in words


async def test_the_extender_writes_records_in_bindings_only(scheduling_cluster: SchedulingCluster, callers: Callers) -> None:
    """It may touch a pod to have it asked for again; kube-scheduler and others bind without records."""
    uid = (await scheduling_cluster.one("mine"))["metadata"]["uid"]
    async with Client(config.load(callers.extender), user_agent="test") as client:
        await touch_pod(client, namespace="default", name="mine", uid=uid, annotations={"accelshare.io/requeued": "now"})
        with pytest.raises(KubeError, match="accelshare-records"):
            await touch_pod(client, namespace="default", name="mine", uid=uid, annotations={RECORD: "{}"})
    assert await bound(scheduling_cluster.client, await scheduling_cluster.pod("plain", GPU_MEMORY), {"x": "y"}) == Bound()
    forged = await scheduling_cluster.pod("forged", GPU_MEMORY)
    for key in (RECORD, f"{PLUGINS}/pod"):
        answer = await bound(scheduling_cluster.client, forged, {key: "[]"})
        assert isinstance(answer, BindRefused)
        assert f"annotation {key}" in answer.message
    legacy = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "forged", "annotations": {RECORD: "{}"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }
    with pytest.raises(KubeError, match="accelshare-records"):
        await scheduling_cluster.create("/api/v1/namespaces/default/bindings", legacy)
    assert "nodeName" not in (await scheduling_cluster.one("forged"))["spec"]


async def bound(client: Client, pod: Object, noted: dict[str, str]) -> Bound | BindRefused | Unknown:
    """This pod, bound to n1 with these annotations."""
    meta = pod["metadata"]
    what = {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"], "version": meta["resourceVersion"]}
    return await bind(client, node="n1", annotations=noted, **what)


async def test_the_agent_of_the_pods_node_corrects_a_record_and_no_other_agent_does(
    scheduling_cluster: SchedulingCluster, callers: Callers
) -> None:
    uid = (await scheduling_cluster.one("mine"))["metadata"]["uid"]
    corrected = {RECORD: '{"nvidia":[{"index":1,"units":3}]}', INDEX: "1", "ALIYUN_COM_GPU_MEM_ASSIGNED": "true"}
    noted = {"namespace": "default", "name": "mine", "uid": uid}
    async with Client(config.load(callers.agent), user_agent="test") as client:
        await annotate_pod(client, annotations=corrected, **noted)
    for kubeconfig in (callers.other_agent, with_token(scheduling_cluster, AGENT)):
        async with Client(config.load(kubeconfig), user_agent="test") as client:
            with pytest.raises(KubeError, match="denied request"):
                await annotate_pod(client, annotations={INDEX: "2"}, **noted)
    assert annotations(await scheduling_cluster.one("mine")) == {**GIVEN, **corrected}


async def test_a_writer_that_the_chart_names_may_write(scheduling_cluster: SchedulingCluster, callers: Callers) -> None:
    """Another extender, while its users move to this one. It writes on pods that are not bound yet."""
    another = scheduling_cluster.plane.kubeconfig_for(WRITER, ["system:masters"])
    await scheduling_cluster.pod("theirs", GPU_MEMORY)
    assert refusal(scheduling_cluster, another, "annotate", "pod", "theirs", f"{INDEX}=0", f"{PLUGINS}/pod=[]") == ""


async def test_a_template_with_a_record_says_so_in_an_event(scheduling_cluster: SchedulingCluster, callers: Callers) -> None:
    template = {
        "metadata": {"labels": {"app": "forged"}, "annotations": {RECORD: "{}"}},
        "spec": {"containers": [container("main", GPU_MEMORY)]},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "forged"}}, "template": template}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "forged"}, "spec": spec}
    assert refusal(scheduling_cluster, callers.user, "create", "--filename=-", stdin=yaml.safe_dump(deployment)) == ""

    async def message() -> str:
        events = (await scheduling_cluster.read("/api/v1/namespaces/default/events"))["items"]
        return next((event["message"] for event in events if event["reason"] == "FailedCreate"), "")

    assert f"annotation {RECORD} decides which cards a pod gets" in await scheduling_cluster.until(
        message, "the ReplicaSet says why it has no pod"
    )


async def test_a_copy_for_debugging_has_no_record(scheduling_cluster: SchedulingCluster, callers: Callers) -> None:
    debug = ("debug", "mine", "--image=example.com/none", "--attach=false", "--profile=general")
    assert refusal(scheduling_cluster, callers.user, *debug, "--copy-to=copy") == ""
    assert not annotations(await scheduling_cluster.one("copy")).keys() & GIVEN.keys()
    words = refusal(scheduling_cluster, callers.user, *debug, "--copy-to=another", "--keep-annotations")
    assert f"annotation {RECORD}" in words


async def test_kubelets_and_controllers_go_on(scheduling_cluster: SchedulingCluster, callers: Callers) -> None:
    """A status that names no annotation, a finalizer that goes; a mirror pod is made if its file has no record."""
    kubelet = scheduling_cluster.plane.kubeconfig_for("system:node:n1", ["system:nodes"])
    async with Client(config.load(kubelet), user_agent="test") as client:
        await patched_status(client, {"status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}})
        with pytest.raises(KubeError, match=f"annotation {RECORD}"):
            await patched_status(client, {"metadata": {"annotations": {RECORD: "{}"}}})
    for finalizers in (["example.com/kept"], None):
        await scheduling_cluster.patch("/api/v1/namespaces/default/pods/mine", {"metadata": {"finalizers": finalizers}})
    mirror = {"kubernetes.io/config.mirror": "x", "kubernetes.io/config.source": "file"}
    node = await scheduling_cluster.read("/api/v1/nodes/n1")
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": node["metadata"]["uid"], "controller": True}

    def static(name: str, noted: dict[str, str]) -> str:
        pod = yaml.safe_load(pod_of(name, {**mirror, **noted}, GPU_MEMORY, ownerReferences=[owner]))
        pod["spec"] |= {"nodeName": "n1", "automountServiceAccountToken": False}
        return yaml.safe_dump(pod)

    assert refusal(scheduling_cluster, kubelet, "create", "--filename=-", stdin=static("static", {})) == ""
    words = refusal(scheduling_cluster, kubelet, "create", "--filename=-", stdin=static("forged", {RECORD: "{}"}))
    assert f"annotation {RECORD}" in words


async def patched_status(client: Client, content: Object) -> None:
    """As kubelet patches; kubectl would first read the status, which kubelets may not."""
    path = "/api/v1/namespaces/default/pods/mine/status"
    await client.request("PATCH", path, body=json.dumps(content).encode(), content_type="application/merge-patch+json")


async def test_a_pod_with_very_many_annotations_goes_around_nothing(
    scheduling_cluster: SchedulingCluster, callers: Callers
) -> None:
    """An expression that costs too much refuses, so what was let in must be let be changed. Far more the API server itself
    does not take: its own books of who manages 80,000 annotations take longer than a request may."""
    keys = ["".join(letters) for size in (1, 2, 3) for letters in itertools.product(string.ascii_letters, repeat=size)]
    many = dict.fromkeys(keys[:10_000], "")
    create = ("create", "--filename=-")
    words = refusal(
        scheduling_cluster, callers.user, *create, stdin=pod_of("forged", {**many, f"{PLUGINS}/pod": "[]"}, GPU_MEMORY)
    )
    assert f"annotation {PLUGINS}/pod" in words
    assert refusal(scheduling_cluster, callers.user, *create, stdin=pod_of("many", many, GPU_MEMORY)) == ""
    await scheduling_cluster.phase("many", "Running")
    assert refusal(scheduling_cluster, callers.user, "annotate", "pod", "many", "last=one") == ""
    assert f"annotation {INDEX}" in refusal(scheduling_cluster, callers.user, "annotate", "pod", "many", f"{INDEX}=0")


GRANTED = "accelshare.io/granted"
GRANT = '{"units":8,"n":1}'


async def test_only_the_extender_grants_a_resize(scheduling_cluster: SchedulingCluster, callers: Callers) -> None:
    """Not the pod's owner, not the agent that sets the limit, not another writer of records, and nobody for a pod to come."""
    for arguments in (
        ("annotate", "pod", "mine", f"{GRANTED}={GRANT}"),
        (
            "patch",
            "pod",
            "mine",
            "--subresource=status",
            "--type=merge",
            f'--patch={{"metadata":{{"annotations":{{"{GRANTED}":"x"}}}}}}',
        ),
    ):
        for caller in (callers.user, scheduling_cluster.plane.kubeconfig_for(WRITER, ["system:masters"])):
            words = refusal(scheduling_cluster, caller, *arguments)
            assert words, arguments
            assert GRANTED in words or "cannot patch" in words, words
    words = refusal(
        scheduling_cluster, callers.user, "create", "--filename=-", stdin=pod_of("forged", {GRANTED: GRANT}, GPU_MEMORY)
    )
    assert f"annotation {GRANTED}" in words
    assert "accelshare.io/resize" in words
    assert refusal(scheduling_cluster, callers.user, "annotate", "pod", "mine", "accelshare.io/resize=8") == ""
    pending = await scheduling_cluster.pod("pending", GPU_MEMORY)
    pod = (await scheduling_cluster.one("mine"))["metadata"]
    async with Client(config.load(callers.extender), user_agent="test") as client:
        answer = await bound(client, pending, {**GIVEN, GRANTED: GRANT})
        assert isinstance(answer, BindRefused)
        grant = partial(grant_resize, client, namespace="default", name="mine", uid=pod["uid"], annotations={GRANTED: GRANT})
        with pytest.raises(Conflict):
            await grant(version="1")
        await grant(version=pod["resourceVersion"])
    assert annotations(await scheduling_cluster.one("mine"))[GRANTED] == GRANT
    for edit in (("annotate", "pod", "mine", f"{GRANTED}-"), ("annotate", "--overwrite", "pod", "mine", f"{GRANTED}=x")):
        assert f"annotation {GRANTED}" in refusal(scheduling_cluster, callers.user, *edit)
    async with Client(config.load(callers.agent), user_agent="test") as agent:
        for value in (None, "x"):
            with pytest.raises(Forbidden, match=f"annotation {GRANTED}"):
                await annotate_pod(agent, namespace="default", name="mine", uid=pod["uid"], annotations={GRANTED: value})
    assert refusal(scheduling_cluster, callers.user, "annotate", "--overwrite", "pod", "mine", "accelshare.io/resize=9") == ""
