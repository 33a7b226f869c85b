"""The dashboard lets the real API server decide who reads it: it has tokens checked by TokenReview and SubjectAccessReview."""

import contextlib
import sys
from collections.abc import Iterator

import aiohttp
import pytest
import yaml

from cluster.https import free_port
from cluster.process import Process
from tests.e2e.scheduling_cluster import Object, SchedulingCluster

pytestmark = pytest.mark.real
USER = "dashboard-of-the-test"
READS = ["get", "list", "watch"]


def allowed(name: str, subject: Object, *rules: Object, role: str = "") -> list[Object]:
    """A ClusterRole with these rules, or an existing one, and its binding."""
    api: Object = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
    made = [{**api, "kind": "ClusterRole", "rules": list(rules)}] if rules else []
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role or name}
    return [*made, {**api, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]}]


def account(name: str) -> Object:
    return {"kind": "ServiceAccount", "name": name, "namespace": "default"}


@contextlib.contextmanager
def rights(scheduling_cluster: SchedulingCluster) -> Iterator[None]:
    """Those of the dashboard, as its page names them, and those of one reader; another one may read only nodes."""
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}
    of_core = {"apiGroups": [""], "verbs": READS}
    objects = [
        *({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}} for name in ("reader", "only-nodes")),
        *allowed(USER, user, {**of_core, "resources": ["nodes", "pods", "resourcequotas"]}),
        *allowed(f"{USER}-reviews", user, role="system:auth-delegator"),
        *allowed("reader", account("reader"), {**of_core, "resources": ["nodes", "pods"]}),
        *allowed("only-nodes", account("only-nodes"), {**of_core, "resources": ["nodes"]}),
    ]
    text = yaml.safe_dump_all(objects)
    scheduling_cluster.plane.kubectl("apply", "--namespace=default", "--filename=-", stdin=text)
    try:
        yield
    finally:
        scheduling_cluster.plane.kubectl("delete", "--namespace=default", "--ignore-not-found", "--filename=-", stdin=text)


async def test_who_may_list_nodes_and_pods_reads_the_dashboard(scheduling_cluster: SchedulingCluster) -> None:
    """A user without these rights, a made-up token and no token are refused; the page itself holds nothing of the cluster."""
    await scheduling_cluster.example_node("nvidia")
    with rights(scheduling_cluster):
        kubeconfig = scheduling_cluster.plane.kubeconfig_for(USER)
        tokens = {
            name: scheduling_cluster.plane.kubectl("create", "token", name, "--namespace=default").strip()
            for name in ("reader", "only-nodes")
        }
        port = free_port()
        words = [sys.executable, "-m", "accelshare", "dashboard", f"--kubeconfig={kubeconfig}", f"--listen=0.0.0.0:{port}"]
        process = Process("dashboard", [*words, "--api-server-users"], scheduling_cluster.directory / "dashboard.log")
        try:
            async with aiohttp.ClientSession() as session:

                async def status(path: str, token: str = "") -> int:
                    headers = {"Authorization": f"Bearer {token}"} if token else {}
                    try:
                        async with session.get(f"http://127.0.0.1:{port}{path}", headers=headers) as answer:
                            return answer.status
                    except aiohttp.ClientError:
                        return 0

                async def reads() -> bool:
                    assert process.running, process.last_lines()
                    return await status("/api/snapshot", tokens["reader"]) == 200

                await scheduling_cluster.until(reads, "the reader gets the snapshot")
                assert await status("/") == 200
                assert await status("/api/snapshot", tokens["only-nodes"]) == 401
                assert await status("/api/snapshot", tokens["reader"][:-6] + "aaaaaa") == 401
                assert await status("/api/snapshot") == 401
        finally:
            process.kill()
