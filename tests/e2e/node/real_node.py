"""A real node for tests: the local cluster's kubelet, containerd and kube-scheduler, our agent and our extender.

Only the hardware is not there: device nodes that behave like /dev/null, and the vendors' libraries and tools as small fakes. All
code that asks them is the product's.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import yaml
import yarl

from accelshare.agent.device_plugin import pod_resources
from accelshare.agent.device_plugin.device_ids import by_card
from accelshare.kube import config
from accelshare.kube.client import Client
from accelshare.kube.errors import Conflict, Forbidden, NotFound
from accelshare.vendors.catalog import load
from accelshare.wire import inventory
from cluster.https import free_port
from cluster.local import LocalCluster
from cluster.process import Process, last_lines
from cluster.waiting import wait_until_async
from tests.e2e.scheduling_cluster import REQUEST_LIMIT_S, RETRY_ON, Object
from tests.e2e.workloads import CONTAINER, workload
from tests.fakes.build import build
from tests.fakes.hardware import Hardware
from tests.proxy import Proxy

ROOT = Path(__file__).parents[3]
LIMIT_S = 480.0
GCU = "enflame.com/gcu-memory"
RESOURCES = (
    "aliyun.com/gpu-mem",
    "nvidia.com/gpu",
    "baidu.com/xpu-mem",
    "baidu.com/xpu",
    GCU,
    "enflame.com/gcu",
    "streamcomputing.com/npu",
    "acme.example/zpu-mem",
)
WORKLOAD = "/apis/apps/v1/namespaces/{namespace}/{kind}/{name}"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
AGENT = {"accelshare.io/agent": "true"}


class RealNode:
    def __init__(self, local: LocalCluster, client: Client, directory: Path, port: int, flags: tuple[str, ...] = ()) -> None:
        self.local = local
        self.client = client
        self.directory = directory
        self.port = port  # where kube-scheduler looks for the extender
        self.agent_port = free_port()
        self.flags = flags  # of every agent
        self.agent_kubeconfig = local.kubeconfig
        self.agent_variables: Mapping[str, str] = {}  # of every agent's environment, besides our own
        self.hardware: dict[str, Hardware] = {}
        self.agent: Process | None = None
        self.extender: Process | None = None
        self._starts = 0
        self._priorities: list[str] = []

    # Hardware.

    def install_fakes(self, *, cdi: bool = False) -> None:
        """Four vendors' libraries and tools; every driver asks its own way. `cdi`: NVIDIA's cards are delivered by CDI names."""
        profiles = self.directory / "profiles"
        profiles.mkdir()
        trees = self.directory / "trees"
        for vendor in ("nvidia", "kunlun", "enflame"):
            self.hardware[vendor] = Hardware(build(vendor, self.directory / vendor))
        self.hardware["nvidia"].has(
            *(
                {"index": i, "uuid": f"GPU-{i}", "memory_mib": 16127, "minor": i, "pci": f"0000:3{i}:00.0", "name": "Tesla T4"}
                for i in range(4)
            )
        )
        self.hardware["kunlun"].has(*({"index": i, "sn": f"7a13{i // 2}", "memory_mib": 8064} for i in range(4)))
        self.gcu()
        for index in range(8):
            node = trees / f"sys/bus/pci/devices/0000:2{index}:00.0/enflame/gcu{index}/dev"
            node.parent.mkdir(parents=True)
            node.write_text(f"240:{index}\n")
        (trees / "proc").mkdir()
        stream = self.directory / "stream"
        stream.mkdir()
        tool = stream / "stc-smi"
        tool.write_text((ROOT / "tests/fakes/stream/stc-smi").read_text())
        tool.chmod(0o755)
        board = {"index": 0, "name": "STCP920", "serial": "01PSF6", "bus": "0000:03:00.0", "status": "on", "memory_mib": 16384}
        (stream / "stc.json").write_text(json.dumps({"boards": [board | {"clusters": ["WORK"] * 4}]}))
        libraries = {"nvidia": "libnvidia-ml.so.1", "kunlun": "libxpuml.so", "enflame": "libefml.so"}
        for vendor, library in libraries.items():
            rules = f'libraries = ["{self.directory / vendor / library}"]\ntools = ["/nowhere/tool"]\nevery_s = 0.5\n'
            (profiles / f"{vendor}.toml").write_text(f'extends = "{vendor}"\n[driver]\n{rules}')
        if cdi:
            with (profiles / "nvidia.toml").open("a") as file:
                file.write('[container]\nstrategy = "cdi"\n[container.cdi]\nwrite_spec = true\n')
        (profiles / "stream.toml").write_text(f'extends = "stream"\n[driver]\ntools = ["{tool}"]\nevery_s = 0.5\n')
        self.profiles = profiles
        self.trees = trees

    def gcu(self, **sick: int) -> None:
        """Eight Enflame cards of 16 GB; `gcu3=0` makes the fourth unhealthy."""
        self.hardware["enflame"].has(
            *(
                {
                    "index": i,
                    "uuid": f"U5300009010{i}",
                    "sn": f"SN{i}",
                    "memory_mib": 16384,
                    "pci": f"0000:2{i}:00.0",
                    "name": "T20",
                    "health": sick.get(f"gcu{i}", 1),
                }
                for i in range(8)
            )
        )

    # Our processes.

    def begin_agent(self, *flags: str) -> Process:
        self._starts += 1
        command = [sys.executable, "-m", "accelshare", "agent", f"--kubeconfig={self.agent_kubeconfig}"]
        command += [f"--node-name={self.local.node_name}", f"--profiles={self.profiles}", f"--port={self.agent_port}"]
        command += [f"--sys-root={self.trees / 'sys'}", f"--proc-root={self.trees / 'proc'}", *self.flags, *flags]
        log = self.directory / f"agent-{self._starts}.log"
        self.agent = self.local.run_inside(
            "agent", command, log, variables={"PYTHONPATH": str(ROOT / "src"), **self.agent_variables}
        )
        return self.agent

    async def start_agent(self, *flags: str) -> None:
        self.begin_agent(*flags)
        await self.until(lambda: self.is_up(self.agent, self.agent_port), "the agent delivers")

    def begin_extender(self, *flags: str) -> Process:
        self._starts += 1
        command = [sys.executable, "-m", "accelshare", "extender", f"--kubeconfig={self.local.kubeconfig}"]
        command += [f"--listen=127.0.0.1:{self.port}", f"--profiles={self.profiles}"]
        command += ["--agent-namespace=default", "--agent-service-account=default"]  # of the pod that stands in for the agent
        command += flags
        self.extender = Process("extender", command, self.directory / f"extender-{self._starts}.log")
        return self.extender

    async def start_extender(self, *flags: str) -> None:
        self.begin_extender(*flags)
        await self.until(lambda: self.is_up(self.extender, self.port), "the extender is ready")

    async def both_are_up(self) -> bool:
        return await self.is_up(self.extender, self.port) and await self.is_up(self.agent, self.agent_port)

    async def show_agent(self) -> None:
        """A pod that stands for the agent, as the DaemonSet's would: kubelet asks the real agent whether it is ready, often."""
        asks = {"httpGet": {"path": "/readyz", "port": self.agent_port}, "periodSeconds": 1, "failureThreshold": 1}
        await self.pod("agent", containers=[self.container("c0", {}, readinessProbe=asks)], hostNetwork=True, labels=AGENT)
        await self.running("agent")

    async def is_up(self, process: Process | None, port: int) -> bool:
        assert process is not None
        assert process.running, process.last_lines()
        try:
            async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def drift(self) -> float:
        return await self.metric("accelshare_drift_total")

    async def metric(self, name: str) -> float:
        """A number of the agent's."""
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{self.agent_port}/metrics") as answer:
            lines = (await answer.text()).splitlines()
        return float(next(line.rpartition(" ")[2] for line in lines if line.startswith(name)))

    # Objects.

    async def node(self) -> Object:
        return await self.read(f"/api/v1/nodes/{self.local.node_name}")

    async def inventory_entry(self, kind: str) -> inventory.KindEntry:
        """What the node's inventory says of this kind; an agent that has just begun is waited for."""

        async def written() -> inventory.KindEntry | None:
            text = (await self.node())["metadata"].get("annotations", {}).get(inventory.KEY, "")
            return inventory.entries_of(text).get(kind) if text else None

        entry: inventory.KindEntry = await self.until(written, f"the node's inventory names {kind}")
        return entry

    async def read(self, path: str) -> Object:
        return msgspec.json.decode(await self.client.request("GET", path), type=Object)

    async def create(self, path: str, content: Object) -> Object:
        return msgspec.json.decode(await self.client.request("POST", path, body=msgspec.json.encode(content)), type=Object)

    async def pod(self, name: str, *limits: Mapping[str, int], **spec: Any) -> Object:
        """A pod whose containers c0, c1, … have these limits and print what they see."""
        meta = {"name": name, "labels": spec.pop("labels", {}), "annotations": spec.pop("annotations", {})}
        containers = [self.container(f"c{number}", asked) for number, asked in enumerate(limits)]
        content = {"metadata": meta, "spec": {"terminationGracePeriodSeconds": 1, "containers": containers, **spec}}

        async def created() -> Object | None:
            try:
                return await self.create("/api/v1/namespaces/default/pods", content)
            except Forbidden as error:
                if "no PriorityClass" not in str(error):
                    raise
                return None  # the API server's admission learns of a new one a moment after it was created

        pod: Object = (
            await self.until(created, f"the API server knows the priority of {name}")
            if "priorityClassName" in spec
            else await self.create("/api/v1/namespaces/default/pods", content)
        )
        return pod

    async def priority(self, name: str, value: int) -> str:
        """A PriorityClass of this name, whose pods end nobody."""
        content = {"metadata": {"name": name}, "value": value, "preemptionPolicy": "Never"}
        with contextlib.suppress(Conflict):
            await self.create(PRIORITIES, content)
        self._priorities.append(name)
        return name

    def container(self, name: str, limits: Mapping[str, int], **more: object) -> Object:
        return {"name": name, **CONTAINER, "resources": {"limits": {key: str(value) for key, value in limits.items()}}, **more}

    def apply(self, file: str, *, namespace: str = "default") -> None:
        """A workload of the repository, unchanged but for its image and what that image runs."""
        content = workload(ROOT / file, self.directory / "hpe")
        self.local.kubectl("apply", f"--namespace={namespace}", "-f", "-", stdin=json.dumps(content))

    async def annotate(self, name: str, **values: str) -> None:
        """Set annotations `accelshare.io/…` of a pod."""
        changes = {"metadata": {"annotations": {f"accelshare.io/{key}": value for key, value in values.items()}}}
        path, kind = f"/api/v1/namespaces/default/pods/{name}", "application/merge-patch+json"
        await self.client.request("PATCH", path, body=msgspec.json.encode(changes), content_type=kind)

    async def pods(self, namespace: str = "default") -> dict[str, Object]:
        listed = await self.read(f"/api/v1/namespaces/{namespace}/pods")
        return {pod["metadata"]["name"]: pod for pod in listed["items"]}

    async def events(self, reason: str) -> list[str]:
        """The names of pods with an event of this reason."""
        params = {"fieldSelector": f"reason={reason}"}
        listed = await self.client.request("GET", "/api/v1/namespaces/default/events", params=params)
        return [event["involvedObject"]["name"] for event in msgspec.json.decode(listed, type=Object)["items"]]

    async def moved(self) -> set[str]:
        """The pods with an event AcceleratorMoved: kubelet allocated other cards than their record names."""
        listed = await self.client.request("GET", "/api/v1/events", params={"fieldSelector": "reason=AcceleratorMoved"})
        events = msgspec.json.decode(listed, type=Object)["items"]
        return {f"{event['involvedObject']['name']}: {event['metadata']['name']}" for event in events}

    async def delete(self, name: str, namespace: str = "default") -> None:
        with contextlib.suppress(NotFound):
            await self.client.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}")

    async def sees(self, pod: str, container: str = "c0", namespace: str = "default") -> list[str]:
        """The accelerator nodes that the container itself listed when it started."""
        return (await self.printed(pod, container, namespace))[0].split()

    async def env(self, pod: str, container: str = "c0", namespace: str = "default") -> dict[str, str]:
        lines = (await self.printed(pod, container, namespace))[1:]
        return {line.partition("=")[0]: line.partition("=")[2] for line in lines}

    async def printed(self, pod: str, container: str, namespace: str) -> list[str]:
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"

        async def lines() -> list[str]:
            try:
                text = (await self.client.request("GET", path, params={"container": container})).decode()
            except NotFound:
                return []  # a kubelet that has just started does not know its pods yet
            return text.splitlines() if "PATH=" in text else []

        found: list[str] = await self.until(lines, f"{pod}/{container} has printed what it sees")
        return found

    async def running(self, *names: str, namespace: str = "default") -> dict[str, Object]:
        """These pods, once all run and their records say assigned."""
        if not names:
            return {}

        async def all_run() -> dict[str, Object] | None:
            pods = await self.pods(namespace)
            found = {name: pods[name] for name in names if name in pods}
            dead = [name for name, pod in found.items() if pod["status"]["phase"] == "Failed"]
            assert not dead, f"{dead} failed: {found[dead[0]]['status'].get('message')}{self.evidence()}"
            ready = [
                pod
                for pod in found.values()
                if pod["status"]["phase"] == "Running"
                and all(status["ready"] for status in pod["status"].get("containerStatuses", []))
                and "false" not in [value for key, value in annotations(pod).items() if key.lower().endswith("assigned")]
            ]
            return found if len(ready) == len(names) else None

        found: dict[str, Object] = await self.until(all_run, f"{', '.join(names[:5])} … run")
        return found

    async def cards_by_kubelet(self) -> dict[str, dict[str, dict[str, list[int]]]]:
        """Pod → container → kind → cards, as kubelet itself holds them."""
        held = await pod_resources.list_holdings(self.local.path("/var/lib/kubelet"), load([self.profiles]))
        return {
            pod: {
                container: {kind: sorted(by_card(ids)) for (kind, _), ids in roles.items()}
                for container, roles in containers.items()
            }
            for pod, containers in held.items()
            if containers
        }

    async def until(self, condition: Callable[[], Any], what: str, limit_s: float = LIMIT_S) -> Any:
        """The condition's first true value; a request that the API server did not answer is repeated."""
        # Forbidden: an API server that has just started does not know everybody's rights yet.
        return await wait_until_async(condition, what, limit_s, 0.2, evidence=self.evidence, retry_on=(*RETRY_ON, Forbidden))

    def evidence(self) -> str:
        return last_lines(self.agent, self.extender)

    async def clear(self) -> None:
        """Remove every workload and pod of the tests."""
        await self.until(self._cleared, "all pods are gone")
        while self._priorities:
            await self.client.request("DELETE", f"{PRIORITIES}/{self._priorities.pop()}")

    async def _cleared(self) -> bool:
        """Delete what there is. True if all of it is gone; safe to repeat."""
        for kind in ("deployments", "statefulsets"):
            for item in (await self.read(f"/apis/apps/v1/{kind}"))["items"]:
                with contextlib.suppress(NotFound):
                    await self.client.request("DELETE", WORKLOAD.format(kind=kind, **item["metadata"]))
        in_system = {name: pod for name, pod in (await self.pods("kube-system")).items() if name.startswith("gcushare-pod")}
        left = {**await self.pods(), **in_system}
        staying = [pod["metadata"] for pod in left.values() if "deletionTimestamp" not in pod["metadata"]]
        await asyncio.gather(*(self.delete(meta["name"], meta["namespace"]) for meta in staying))
        return not left


@contextlib.asynccontextmanager
async def open_real_node(
    local: LocalCluster, directory: Path, port: int, *flags: str, variables: Mapping[str, str] | None = None, cdi: bool = False
) -> AsyncIterator[RealNode]:
    """Agent and extender at work on a local cluster whose kube-scheduler asks this port. `variables`: of the agent."""
    async with Client(config.load(local.kubeconfig), user_agent="accelshare-tests", timeout_s=REQUEST_LIMIT_S) as client:
        real_node = RealNode(local, client, directory, port, flags)
        real_node.install_fakes(cdi=cdi)
        real_node.agent_variables = variables or {}
        await real_node.clear()  # whatever a test before left when its own clean-up failed
        try:
            real_node.begin_extender()
            real_node.begin_agent()
            await real_node.until(real_node.both_are_up, "extender and agent are ready")
            yield real_node
        finally:
            try:
                if real_node.agent is not None:
                    real_node.agent.terminate()  # it ends while the pods do
                await real_node.clear()
            finally:
                for process in (real_node.agent, real_node.extender):
                    if process is not None:
                        process.stop(120)


async def mixed_pods(real_node: RealNode) -> dict[str, Object]:
    """Running pods with init containers, a sidecar, several cards and whole cards, by name."""
    inits = [
        real_node.container("first", {GCU: 8}, command=["true"]),
        real_node.container("beside", {GCU: 2}, restartPolicy="Always"),
    ]
    await real_node.pod("mixed", {GCU: 3}, {GCU: 5}, {}, initContainers=inits)
    await real_node.pod("two", {GCU: 8}, annotations={"accelshare.io/card-count": "2"})
    await real_node.pod("four", {"baidu.com/xpu-mem": 8000}, labels={"baidu.com/xpu-count": "4"})
    await real_node.pod("whole", {"enflame.com/gcu": 2})
    await real_node.pod("npu", {"streamcomputing.com/npu": 1})
    return await real_node.running("mixed", "two", "four", "whole", "npu")


async def all_agree(real_node: RealNode, pods: list[str]) -> None:
    """Record, kubelet's books and the device node inside are the same card for every container of these pods."""
    found = await real_node.running(*pods)

    async def all_listed() -> dict[str, dict[str, dict[str, list[int]]]] | None:
        """A kubelet that has just started lists its pods a moment after it is healthy."""
        with contextlib.suppress(pod_resources.PodResourcesError):
            listed = await real_node.cards_by_kubelet()
            return listed if {f"default/{name}" for name in pods} <= listed.keys() else None
        return None

    books = await real_node.until(all_listed, "kubelet lists the devices of all pods") if pods else {}
    visible = await asyncio.gather(*(real_node.sees(name) for name in pods))
    for name, nodes in zip(pods, visible, strict=True):
        card = recorded(found[name], "enflame")
        assert books[f"default/{name}"]["c0"]["enflame"] == card, name
        assert nodes == [f"gcu{index}" for index in card], name


def annotations(pod: Object) -> dict[str, str]:
    return pod["metadata"].get("annotations") or {}


def recorded(pod: Object, kind: str) -> list[int]:
    record = json.loads(annotations(pod).get("accelshare.io/assignment", "{}"))
    return sorted(entry["index"] for entry in record.get(kind, []))


def names(prefix: str, numbers: Iterable[int]) -> list[str]:
    return [f"{prefix}{number}" for number in numbers]


@contextlib.asynccontextmanager
async def agent_behind_proxy(node: RealNode, directory: Path) -> AsyncIterator[Proxy]:
    """Between the agent and the API server; the agent is started again behind it."""
    content = yaml.safe_load(node.local.kubeconfig.read_text())
    server = content["clusters"][0]["cluster"]
    url = yarl.URL(server["server"])
    async with Proxy(url.host or "", url.port or 0) as proxy:
        server |= {"server": f"https://127.0.0.1:{proxy.port}", "tls-server-name": url.host}
        node.agent_kubeconfig = directory / "through-the-proxy"
        node.agent_kubeconfig.write_text(yaml.safe_dump(content))
        assert node.agent is not None
        await asyncio.to_thread(node.agent.stop, 40)
        await node.start_agent()

        async def delivers() -> bool:
            """The agent is ready a moment before its Node says so, and pods are bound only then."""
            annotations = (await node.node())["metadata"].get("annotations") or {}
            entries = inventory.entries_of(annotations.get(inventory.KEY, "{}"))
            return bool(entries) and all(entry.delivers for entry in entries.values())

        await node.until(delivers, "the node says that it delivers")
        try:
            yield proxy
        finally:
            proxy.restore()
            node.agent.terminate()  # while it still reaches the API server, which it waits for at its end
            await node.until(lambda: node.agent is None or not node.agent.running, "the agent has ended")


def forget_device_plugins(local: LocalCluster) -> None:
    """kubelet remembers a device plugin for five minutes and rejects pods that are served in any other way."""
    file = local.path("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")
    if file.exists() and json.loads(file.read_text())["Data"]["RegisteredDevices"]:
        local.kill_kubelet()
        file.unlink()
        local.start_kubelet()
