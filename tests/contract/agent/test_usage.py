"""Who uses the cards: a real agent process with a vendor's (fake) library and a fake /proc."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.contract.agent.fake_node import MEMORY, NODE, FakeNode
from tests.fakes.build import build
from tests.fakes.hardware import Hardware

UUID = "GPU-00000001-1111-2222-3333-0123456789ab"
GIB = 2**30
ID = "d" * 64


def series_of(metric: str, pod: str) -> str:
    return f'{metric}{{card="0",namespace="default",node="{NODE}",pod="{pod}",vendor="acme"}}'


class UsedNode:
    """The fake node with one card of 16 GiB, whose processes a test starts."""

    def __init__(self, node: FakeNode, hardware: Hardware) -> None:
        self.node = node
        self.hardware = hardware
        self.proc = node.directory / "proc"
        self.proc.mkdir()
        hardware.has({"uuid": UUID, "memory_mib": 16384, "minor": 0, "used_mib": 512})
        profile = (node.profiles / "acme.toml").read_text().partition("[driver]")[0]
        driver = f'[driver]\nname = "nvidia"\nevery_s = 0.1\nlibraries = ["{hardware.path("libnvidia-ml.so.1")}"]\n'
        (node.profiles / "acme.toml").write_text(profile + driver)
        node.cards(1)

    async def start(self, *flags: str) -> None:
        await self.node.start_agent("--usage", "--usage-every=0.1", f"--proc-root={self.proc}", *flags)

    async def place(self, name: str, units: int) -> str:
        uid = self.node.pod(name, {MEMORY: units})
        self.node.bind(name, 0, units=units, id=False)
        await self.node.settled(name)
        return uid

    def process(self, pid: int, uid: str = "") -> None:
        """A process in a container of this pod, or of the host."""
        (self.proc / str(pid)).mkdir(exist_ok=True)
        group = f"/kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/cri-containerd-{ID}.scope" if uid else "/init.scope"
        (self.proc / str(pid) / "cgroup").write_text(f"0::{group}\n")

    async def use(self) -> dict[str, Any]:
        head, _, body = (await self.node.page("/usage")).partition("\r\n\r\n")
        return json.loads(body) if " 200 " in head.partition("\r\n")[0] else {}

    async def pods(self) -> dict[str, dict[str, Any]]:
        return {pod["name"]: pod for pod in (await self.use()).get("pods", ())}

    async def series(self) -> dict[str, float]:
        text = (await self.node.page("/metrics")).partition("\r\n\r\n")[2]
        lines = [line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#")]
        return {name: float(value) for name, _, value in lines}

    def events(self, name: str) -> set[str]:
        found = (json.loads(version.item) for version in self.node.api.store.list("events").versions)
        return {event["reason"] for event in found if event["involvedObject"]["name"] == name}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("nvidia", tmp_path_factory.mktemp("nvidia"))


@pytest.fixture
def used(fake_node: FakeNode, built: Path, tmp_path: Path) -> UsedNode:
    return UsedNode(fake_node, Hardware.copied(built, tmp_path / "hardware"))


async def test_two_pods_on_a_card_have_their_own_numbers(used: UsedNode) -> None:
    """DCGM gives every pod of a card the card's number."""
    async with used.node.kubelet():
        await used.start()
        a, b = await used.place("a", 4), await used.place("b", 8)
        used.process(100, a)
        used.process(200, b)
        used.process(201, b)
        used.process(300)
        used.hardware.runs((UUID, 100, 1024, 25), (UUID, 200, 2048, 30), (UUID, 201, 1024, 5), (UUID, 300, 512, 1))

        async def sampled() -> bool:
            pods = await used.pods()
            return {name: pod.get("used_bytes") for name, pod in pods.items()} == {"a": GIB, "b": 3 * GIB}

        await used.node.until(sampled, "both pods have their memory")
        series = await used.series()
        assert series[series_of("accelshare_pod_used_bytes", "a")] == GIB
        assert series[series_of("accelshare_pod_used_bytes", "b")] == 3 * GIB
        assert series[series_of("accelshare_pod_utilisation_ratio", "a")] == 0.25
        assert series[series_of("accelshare_pod_utilisation_ratio", "b")] == 0.35
        assert series[series_of("accelshare_pod_over_use_bytes", "b")] == 0
        assert series[f'accelshare_card_used_by_others_bytes{{card="0",node="{NODE}",vendor="acme"}}'] == GIB / 2
        (card,) = (await used.use())["cards"]
        assert card["others"] == [{"pid": 300, "used_bytes": GIB // 2}]


async def test_the_series_of_a_pod_end_with_it(used: UsedNode) -> None:
    async with used.node.kubelet():
        await used.start()
        await used.place("a", 4)

        async def has_series() -> bool:
            return any('pod="a"' in name for name in await used.series())

        await used.node.until(has_series, "the pod has series")
        used.node.api.store.delete("pods", "a", options={"gracePeriodSeconds": 0})

        async def has_none() -> bool:
            return not await has_series()

        await used.node.until(has_none, "its series are gone")


async def test_over_use_is_an_event_and_no_eviction(used: UsedNode) -> None:
    async with used.node.kubelet():
        await used.start()
        used.process(100, await used.place("a", 4))
        used.hardware.runs((UUID, 100, 6144, 1))
        await used.node.until(lambda: "AcceleratorOverused" in used.events("a"), "the pod has its Event")

        async def marked() -> bool:
            return bool((await used.pods())["a"].get("over_use", False))

        await used.node.until(marked, "the pod is marked")
        assert (await used.series())[series_of("accelshare_pod_over_use_bytes", "a")] == 2 * GIB
        assert "deletionTimestamp" not in used.node.read("a")["metadata"]
        assert (await used.series())["accelshare_over_use_evictions_total"] == 0


async def test_over_use_is_ended_by_an_eviction_if_that_is_switched_on(used: UsedNode) -> None:
    async with used.node.kubelet():
        await used.start("--evict-over-use-after=0.5")
        used.process(100, await used.place("a", 4))
        used.process(200, await used.place("b", 4))
        used.hardware.runs((UUID, 100, 6144, 1), (UUID, 200, 4096, 1))
        await used.node.until(lambda: "AcceleratorOveruseEvicted" in used.events("a"), "the pod is evicted")
        assert used.events("b") & {"AcceleratorOverused", "AcceleratorOveruseEvicted"} == set()
        assert "deletionTimestamp" not in used.node.read("b")["metadata"]
        assert (await used.series())["accelshare_over_use_evictions_total"] == 1


async def test_a_pod_that_computes_nothing_is_idle(used: UsedNode) -> None:
    async with used.node.kubelet():
        await used.start()
        used.process(100, await used.place("a", 4))
        used.hardware.runs((UUID, 100, 4096, -1))

        async def idle_for_a_second() -> bool:
            return ((await used.pods()).get("a", {}).get("idle_s") or 0) > 1

        await used.node.until(idle_for_a_second, "the pod is idle")
        used.hardware.runs((UUID, 100, 4096, 3))

        async def busy() -> bool:
            return (await used.series())[series_of("accelshare_pod_idle_seconds", "a")] == 0

        await used.node.until(busy, "the pod is not idle any more")


async def test_without_the_flag_there_is_no_such_page(used: UsedNode) -> None:
    async with used.node.kubelet():
        await used.node.start_agent()
        assert " 404 " in (await used.node.page("/usage")).partition("\r\n")[0]
        assert not any(name.startswith("accelshare_pod_used") for name in await used.series())


async def test_inspect_shows_what_the_agent_has_sampled(used: UsedNode) -> None:
    """The whole way: library, /proc, agent, the API server's proxy, table."""
    async with used.node.kubelet():
        await used.start()
        used.process(100, await used.place("a", 4))
        used.hardware.runs((UUID, 100, 3072, 25), (UUID, 300, 1024, -1))
        container = {"name": "agent", "image": "none", "ports": [{"name": "probes", "containerPort": used.node.port}]}
        metadata = {"name": "agent", "labels": {"accelshare.io/agent": "true"}}
        content = {"metadata": metadata, "spec": {"nodeName": NODE, "containers": [container]}}
        used.node.api.store.create("pods", content, namespace="default")
        status = {"status": {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}}
        used.node.api.store.patch("pods", "agent", status, subresource="status")

        async def sampled() -> bool:
            return (await used.pods()).get("a", {}).get("used_bytes") == 3 * GIB

        await used.node.until(sampled, "the pod has its memory")
        kubeconfig = used.node.directory / "kubeconfig"
        command = [sys.executable, "-m", "accelshare", "inspect", "-o", "wide", f"--kubeconfig={kubeconfig}"]
        done = await asyncio.create_subprocess_exec(
            *command, f"--profiles={used.node.profiles}", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, err = await done.communicate()
        assert (done.returncode, err) == (0, b"")
        (line,) = [line for line in out.decode().splitlines() if " ZPU0 " in line]
        assert line.endswith("4.0 GiB        25%          1.0 GiB    default/a 4 (3.0 GiB, 25%)")
