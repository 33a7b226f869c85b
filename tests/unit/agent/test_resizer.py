"""Resizes of slices whose pods end meanwhile."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from accelshare.agent.amounts import AmountsInForce
from accelshare.agent.delivery_mode import Deliverer
from accelshare.agent.discovery.device_inventory import DeviceInventory, InventoryCard, VendorCards
from accelshare.agent.limits.review import LimitReview
from accelshare.agent.limits.setting import ContainerLimits
from accelshare.agent.limits.wanted import Limit, wanted_limits
from accelshare.agent.nri.protocol.errors import GoneError
from accelshare.agent.pod_store import PodStore
from accelshare.agent.resizer import SliceResizer
from accelshare.ledger.nouns import Resize
from accelshare.vendors.catalog import load
from accelshare.vendors.drivers.driver import HostCard
from accelshare.vendors.enforcement import Enforcement, Region
from accelshare.wire.node_pods import ContainerNeeds, NodePod
from tests.builders import running, share
from tests.unit.agent.builders import mode
from tests.unit.agent.limits.kernel import Kernel

GIB = 2**30
PROFILE = load()["amd"]
KIND = PROFILE.name
WAY = Enforcement("dmem", set_by="dmem", regions=(Region("drm/0000:01:00.0/vram", 16 * GIB),))


@dataclass(frozen=True, slots=True)
class Living:
    pod: NodePod
    limits: tuple[Limit, ...]
    id: str = "c1"
    name: str = "train"
    cgroup: str = "/pod/one"
    pod_cgroup: str = ""
    pod_limits: tuple[Limit, ...] = ()


class Runtime:
    """The container runtime. `ends`: the pod that is gone when the runtime is asked for something."""

    connected = True

    def __init__(self, store: PodStore) -> None:
        self._store = store
        self.ends = ""

    async def wait_for_calls(self) -> None:
        self._store.remove(self.ends)

    async def set_files(self, container_id: str, unified: Mapping[str, str]) -> None:
        self._store.remove(self.ends)
        raise GoneError(f"there is no container {container_id}")


class Node:
    def __init__(self, directory: Path) -> None:
        self.devices = DeviceInventory()
        card = InventoryCard(HostCard(0, "id0", 16 * 1024, minor=0, pci="0000:01:00.0"), 16, enforcement=WAY)
        self.devices.put(VendorCards(PROFILE, "GiB", 1024, {0: card}))
        self.amounts = AmountsInForce(enabled=True)
        self.pods = PodStore(self.amounts)
        self.runtime = Runtime(self.pods)
        self.kernel = Kernel(directory, {"drm/0000:01:00.0/vram": 16 * GIB})
        limits = ContainerLimits(self.kernel, {})
        self.review = LimitReview(limits, list, on_repaired=lambda: None, on_failed=lambda _pod, _problem: None)
        self.events: list[str] = []
        self.cgroup = "/pod/one"
        self.resizer = SliceResizer(
            cast("Any", None),
            "n1",
            cast("Any", SimpleNamespace(record=self._record)),
            self.devices,
            self.pods,
            self.amounts,
            mode(Deliverer.NRI),
            limits,
            self.review,
            self.runtime,
            containers=self._containers,
            on_answered=lambda _outcome: None,
        )

    async def _record(self, _pod: object, *, kind: str, reason: str, message: str) -> bool:
        self.events.append(reason)
        return True

    def _containers(self) -> list[Living]:
        kinds = self.devices.snapshot().kinds
        return [Living(pod, wanted_limits(kinds, pod.seen.slices), cgroup=self.cgroup) for pod in self.pods.values()]

    def run(self, name: str, units: int, *, granted: int) -> None:
        seen = running(name, on="n1/0", request=share(units, kind=KIND))
        seen = replace(seen, granted=Resize(granted, 1))
        part = ContainerNeeds("train", ((KIND, False, units),))
        self.pods.put(NodePod(seen, parts=(part,), annotations={}, phase="Running", terminating=False))
        self.kernel.make("pod/one")

    async def answer(self) -> None:
        await self.resizer._answer("a")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_a_pod_that_ends_while_it_is_resized_stays_gone(node: Node) -> None:
    """A pod that is in the store again would keep its card from every later pod."""
    node.run("a", 4, granted=8)
    node.runtime.ends = "a"
    await node.answer()
    assert dict(node.pods) == {}
    assert node.amounts.annotation == "{}"
    assert node.events == []


async def test_a_pod_that_ends_while_limits_are_checked_stays_gone(node: Node) -> None:
    node.run("a", 4, granted=8)
    await node.review.lock.acquire()
    answering = asyncio.create_task(node.answer())
    await asyncio.sleep(0)
    node.pods.remove("a")
    node.review.lock.release()
    await answering
    assert dict(node.pods) == {}
    assert node.amounts.annotation == "{}"
    assert node.events == []


@pytest.mark.parametrize("cgroup", ["", "a:b", "/"])
async def test_a_shrink_of_a_container_whose_cgroup_cannot_be_read_is_postponed(node: Node, cgroup: str) -> None:
    """And the agent goes on."""
    node.cgroup = cgroup
    node.run("a", 8, granted=4)
    await node.answer()
    assert node.amounts.annotation == "{}"
    assert node.events == []
