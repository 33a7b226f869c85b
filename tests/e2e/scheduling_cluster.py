"""A cluster for tests: the real control plane, a real kube-scheduler, our extender as its own process, and fake Node objects.

Belongs here: creating objects, starting the processes, and waiting. Never: assertions about the product.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import yaml

from accelshare.install.scheduler.desired_config import HTTP2_VARIABLES
from accelshare.kube import config
from accelshare.kube.client import Client
from accelshare.kube.errors import Conflict, Forbidden, KubeError, NotFound, TooManyRequests, Unreachable
from cluster.components import extender_entry
from cluster.control_plane import ControlPlane
from cluster.https import free_port
from cluster.process import Process, last_lines
from cluster.waiting import wait_until_async

ROOT = Path(__file__).parents[2]
LIMIT_S = 240.0
REQUEST_LIMIT_S = 120.0  # of one request to an API server on a busy machine; the client's own default is 15 s
RETRY_ON = (Unreachable, TooManyRequests)
MANAGED = (
    "aliyun.com/gpu-mem",
    "nvidia.com/gpu",
    "baidu.com/xpu-mem",
    "baidu.com/xpu",
    "enflame.com/gcu-memory",
    "enflame.com/gcu",
    "streamcomputing.com/npu",
)
Object = dict[str, Any]
TEST_LABEL = "accelshare-test=true"  # on the priority classes that tests create


class SchedulingCluster:
    """One test's cluster."""

    def __init__(self, plane: ControlPlane, client: Client, directory: Path, extender_flags: Sequence[str] = ()) -> None:
        self.plane = plane
        self.client = client
        self.directory = directory
        self.extender_flags = extender_flags  # of every extender in it
        self.port = free_port()
        self.extender: Process | None = None
        self.scheduler: Process | None = None
        self._starts = 0

    # The extender and the scheduler.

    @property
    def extender_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start_extender(self, *flags: str) -> None:
        """Start our extender on the cluster's port and wait until it is ready."""
        self.begin_extender(*flags)
        await self.until(self.extender_is_ready, "the extender is ready")

    def begin_extender(self, *flags: str) -> None:
        self._starts += 1
        command = [sys.executable, "-m", "accelshare", "extender", f"--listen=127.0.0.1:{self.port}"]
        command += [f"--kubeconfig={self.plane.kubeconfig_for('accelshare-extender')}", *self.extender_flags, *flags]
        self.extender = Process("extender", command, self.directory / f"extender-{self._starts}.log")

    async def extender_is_ready(self) -> bool:
        assert self.extender is not None
        assert self.extender.running, self.extender.last_lines()
        try:
            return (await self.get("/readyz"))[0] == 200
        except aiohttp.ClientError:
            return False

    def start_scheduler(self, *, url: str = "", **extender: object) -> None:
        """A kube-scheduler that calls our extender; keyword arguments change the extender's entry in its configuration."""
        entry = extender_entry(url or f"{self.extender_url}/accelshare", MANAGED, **extender)
        config = {"percentageOfNodesToScore": 100, "extenders": [entry]}
        self.scheduler = self.plane.start_scheduler(config, variables=HTTP2_VARIABLES)

    async def get(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(self.extender_url + path) as answer:
            return answer.status, await answer.text()

    async def inspect(self, path: str) -> Object:
        status, text = await self.get(path)
        assert status == 200, text
        return json.loads(text)  # type: ignore[no-any-return]

    # Objects.

    async def create(self, path: str, content: Mapping[str, object]) -> Object:
        return msgspec.json.decode(
            await self.client.request("POST", path, body=msgspec.json.encode(content)), type=dict[str, Any]
        )

    async def patch(self, path: str, content: Mapping[str, object]) -> Object:
        body = msgspec.json.encode(content)
        answer = await self.client.request("PATCH", path, body=body, content_type="application/merge-patch+json")
        return msgspec.json.decode(answer, type=dict[str, Any])

    async def read(self, path: str) -> Object:
        return msgspec.json.decode(await self.client.request("GET", path), type=dict[str, Any])

    async def delete(self, path: str, *, grace_s: int = 0) -> None:
        with contextlib.suppress(NotFound, Conflict):
            await self.client.request("DELETE", path, params={"gracePeriodSeconds": str(grace_s)})

    def apply(self, file: str, *, namespace: str = "default") -> str:
        """kubectl apply of a file of the repository, unchanged."""
        return self.plane.kubectl("apply", "-n", namespace, "-f", str(ROOT / file))

    async def node(self, name: str, amounts: Mapping[str, int], *, inventory: object = None, cpu: str = "1000") -> None:
        resources = {"cpu": cpu, "memory": "4096Gi", "pods": "2000", **{key: str(value) for key, value in amounts.items()}}
        annotations = {"accelshare.io/inventory": json.dumps(inventory)} if inventory is not None else {}
        await self.create(
            "/api/v1/nodes",
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "annotations": annotations, "labels": {"kubernetes.io/hostname": name}},
                "status": {"capacity": resources, "allocatable": resources},
            },
        )

    async def example_node(self, vendor: str) -> None:
        await self.create("/api/v1/nodes", yaml.safe_load((ROOT / f"examples/nodes/{vendor}.yaml").read_text()))

    async def pod(self, name: str, limits: Mapping[str, object] | None = None, **spec: object) -> Object:
        """A pod of one container with these limits, or of these `containers`."""
        metadata = {"name": name, "labels": spec.pop("labels", {}), "annotations": spec.pop("annotations", {})}
        containers = spec.pop("containers", None) or [container("main", limits or {})]
        content = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **spec}}
        if "priorityClassName" not in spec:
            return await self.create("/api/v1/namespaces/default/pods", content)

        async def created() -> Object | None:
            try:
                return await self.create("/api/v1/namespaces/default/pods", content)
            except Forbidden as error:
                if "no PriorityClass" not in str(error):
                    raise
                return None  # the API server's admission learns of a new one a moment after it was created

        pod: Object = await self.until(created, f"the API server knows the priority of {name}")
        return pod

    async def pods(self, namespace: str = "default") -> dict[str, Object]:
        listed = await self.read(f"/api/v1/namespaces/{namespace}/pods")
        return {pod["metadata"]["name"]: pod for pod in listed["items"]}

    async def one(self, name: str, namespace: str = "default") -> Object:
        return await self.read(f"/api/v1/namespaces/{namespace}/pods/{name}")

    async def phase(self, name: str, phase: str) -> None:
        await self.patch(f"/api/v1/namespaces/default/pods/{name}/status", {"status": {"phase": phase}})

    async def events(self, pod: str, reason: str, namespace: str = "default") -> list[str]:
        params = {"fieldSelector": f"involvedObject.name={pod},reason={reason}"}
        answer = await self.client.request("GET", f"/api/v1/namespaces/{namespace}/events", params=params)
        return [event["message"] for event in json.loads(answer)["items"]]

    # Waiting.

    async def until(self, condition: Callable[[], Any], what: str, limit_s: float = LIMIT_S) -> Any:
        """The condition's first true value; a request that the API server did not answer is repeated."""
        return await wait_until_async(condition, what, limit_s, evidence=self._evidence, retry_on=RETRY_ON)

    async def bound(self, *names: str, namespace: str = "default") -> dict[str, Object]:
        """These pods, once each has a node."""

        async def all_bound() -> dict[str, Object] | None:
            pods = await self.pods(namespace)
            found = {name: pods[name] for name in names if name in pods and pods[name]["spec"].get("nodeName")}
            return found if len(found) == len(names) else None

        found: dict[str, Object] = await self.until(all_bound, f"{', '.join(names)} bound")
        return found

    async def refused(self, name: str, words: str, namespace: str = "default") -> str:
        """The message of the scheduler's event on this pod that contains this text."""

        async def event() -> str:
            return next((text for text in await self.events(name, "FailedScheduling", namespace) if words in text), "")

        message: str = await self.until(event, f"an event on {name} with {words!r}")
        return message

    async def inspected(self, path: str, expected: Callable[[Object], bool], what: str) -> Object:
        """The first such answer of the extender. It hears of nodes and pods later than the API server does."""

        async def right() -> Object | None:
            status, text = await self.get(path)
            found: Object = json.loads(text) if status == 200 else {"nodes": []}
            return found if found["nodes"] and expected(found) else None

        found: Object = await self.until(right, what)
        return found

    def _evidence(self) -> str:
        return last_lines(self.extender, self.scheduler)

    async def has_extender_rights(self) -> bool:
        """Whether a test before has applied deploy/extender-rbac.yaml, and none has removed any of it."""
        with contextlib.suppress(NotFound):
            subjects: list[Object] = []
            for kind in ("clusterrole", "namespaces/kube-system/role"):
                place = f"/apis/rbac.authorization.k8s.io/v1/{kind}"
                await self.read(f"{place}s/accelshare-extender")
                subjects += (await self.read(f"{place}bindings/accelshare-extender"))["subjects"]
            return [subject["kind"] for subject in subjects].count("User") == 2  # an installed chart's have none
        return False

    # Cleaning up.

    async def clear_leftovers(self) -> None:
        """Before a test: remove what a test before left when its own clean-up failed."""
        if (await self.read("/api/v1/pods"))["items"] or (await self.read("/api/v1/nodes"))["items"]:
            await self.clear()

    async def clear(self) -> None:
        """Stop the processes and remove every workload, pod, node, event and priority class of the test."""
        processes = [process for process in (self.scheduler, self.extender) if process is not None]
        for process in processes:
            process.terminate()
        for process in processes:
            process.stop()
        # An API server that is busy with a thousand deletions may answer some with a timeout of its own.
        await wait_until_async(
            self._cleared, "no workload, pod, node or event is left", 2 * LIMIT_S, evidence=self._evidence, retry_on=(KubeError,)
        )

    async def _cleared(self) -> bool:
        """Delete what there is. True if all of it is gone; safe to repeat."""
        for kind in ("deployments", "statefulsets", "replicasets"):
            await self._delete_all(f"/apis/apps/v1/{kind}", kind)
        if await self._delete_all("/api/v1/pods", "pods"):
            return False
        await self._delete_all("/api/v1/nodes", "nodes")
        for namespace in ("default", "kube-system"):
            await self.client.request("DELETE", f"/api/v1/namespaces/{namespace}/events")
        await self.client.request("DELETE", "/apis/scheduling.k8s.io/v1/priorityclasses", params={"labelSelector": TEST_LABEL})
        return True

    async def _delete_all(self, path: str, kind: str) -> int:
        """Delete the objects of this list; returns how many there were."""
        group = path.removesuffix(f"/{kind}")
        items = [item["metadata"] for item in (await self.read(path))["items"]]
        paths = [
            f"{group}/namespaces/{meta['namespace']}/{kind}/{meta['name']}" if "namespace" in meta else f"{path}/{meta['name']}"
            for meta in items
        ]
        await asyncio.gather(*map(self.delete, paths))
        return len(items)


@contextlib.asynccontextmanager
async def open_scheduling_cluster(
    plane: ControlPlane, directory: Path, extender_flags: Sequence[str] = ()
) -> AsyncIterator[SchedulingCluster]:
    async with Client(config.load(plane.kubeconfig), user_agent="accelshare-tests", timeout_s=REQUEST_LIMIT_S) as client:
        scheduling_cluster = SchedulingCluster(plane, client, directory, extender_flags)
        if not await scheduling_cluster.has_extender_rights():
            scheduling_cluster.apply("deploy/extender-rbac.yaml", namespace="kube-system")
        await scheduling_cluster.clear_leftovers()
        try:
            yield scheduling_cluster
        finally:
            await scheduling_cluster.clear()


def container(name: str, limits: Mapping[str, object], **more: object) -> Object:
    return {"name": name, "image": "example.com/none", "resources": {"limits": dict(limits)}, **more}


def annotations(pod: Object) -> dict[str, str]:
    return pod["metadata"].get("annotations") or {}


def cards(pod: Object, kind: str) -> list[int]:
    """The cards that the pod's own record names."""
    record = json.loads(annotations(pod).get("accelshare.io/assignment", "{}"))
    return [entry["index"] for entry in record.get(kind, [])]


def held(inspected: Object, used: str, devices: str) -> dict[str, list[int]]:
    """What is held of each card, node by node, in an inspect answer."""
    return {node["name"]: [card[used] for card in node[devices]] for node in inspected["nodes"]}


def names(prefix: str, numbers: Iterable[int]) -> list[str]:
    return [f"{prefix}{number}" for number in numbers]
