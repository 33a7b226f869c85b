"""The chart's ServiceAccounts, permissions and admission policies on a real API server, and clients that use them.

Belongs here: applying them, making tokens as kubelet would, and the words of a refusal. Never: expectations.
"""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import yaml

from accelshare.kube.errors import ApiError
from cluster.errors import KubectlError
from cluster.kubeconfig import Token, write_kubeconfig
from deploy.render import documents, template
from tests.contract.chart.rendered_objects import preset
from tests.e2e.scheduling_cluster import Object, SchedulingCluster, container

AGENT = "gpushare-device-plugin-ds"
EXTENDER = "gpushare-schd-extender"
NAMESPACE = "kube-system"
RECORD = "accelshare.io/assignment"
_KINDS = (
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)


def rights(*arguments: str) -> list[Object]:
    """All that the chart grants to and demands of its parts while they run; the rights of hook Jobs come and go with them."""
    made = (document for document in documents(template(*preset("gpushare"), *arguments)) if not document.hook)
    return [content for content in (yaml.safe_load(document.text) for document in made) if content["kind"] in _KINDS]


@contextlib.asynccontextmanager
async def in_force(scheduling_cluster: SchedulingCluster, objects: list[Object]) -> AsyncIterator[None]:
    """These objects, from when the API server obeys the policies among them until it obeys them no more."""

    async def record_allowed() -> bool:
        return not await record_refused(scheduling_cluster)

    text = yaml.safe_dump_all(objects)
    scheduling_cluster.plane.kubectl("apply", "--filename=-", stdin=text)
    try:
        await scheduling_cluster.until(lambda: record_refused(scheduling_cluster), "the policy is in force")
        yield
    finally:
        scheduling_cluster.plane.kubectl("delete", "--ignore-not-found", "--filename=-", stdin=text)
        await scheduling_cluster.until(record_allowed, "the policy is not in force any more")


async def record_refused(scheduling_cluster: SchedulingCluster) -> bool:
    """Whether even an administrator may not make a pod that has a record."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe", "annotations": {RECORD: "{}"}},
        "spec": {"containers": [container("main", {})]},
    }
    path, dry_run = "/api/v1/namespaces/default/pods", {"dryRun": "All"}
    try:
        await scheduling_cluster.client.request("POST", path, body=json.dumps(pod).encode(), params=dry_run)
    except ApiError as error:
        return "accelshare-records" in str(error)
    return False


def with_token(scheduling_cluster: SchedulingCluster, account: str, *bound: str) -> Path:
    """A kubeconfig with a token of this account."""
    token = scheduling_cluster.plane.kubectl("create", "token", account, f"--namespace={NAMESPACE}", *bound).strip()
    path = scheduling_cluster.directory / f"{account}-{'-'.join(bound).replace('=', '')}.kubeconfig"
    return write_kubeconfig(path, url=scheduling_cluster.plane.url, ca_file=scheduling_cluster.plane.ca_file, user=Token(token))


async def agent_of(scheduling_cluster: SchedulingCluster, node: str) -> Path:
    """A kubeconfig with the token of the agent's pod on this node."""
    name = f"agent-{node}"
    spec = {"nodeName": node, "serviceAccountName": AGENT, "containers": [container("agent", {})]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    await scheduling_cluster.create(f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
    return with_token(scheduling_cluster, AGENT, "--bound-object-kind=Pod", f"--bound-object-name={name}")


def refusal(scheduling_cluster: SchedulingCluster, kubeconfig: Path, *arguments: str, stdin: str | None = None) -> str:
    """The words of the refusal, or none."""
    try:
        scheduling_cluster.plane.kubectl(*arguments, kubeconfig=kubeconfig, stdin=stdin)
    except KubectlError as error:
        return str(error)
    return ""
