"""Limits of living containers are checked, set again if they are missing, and reported if that fails."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from accelshare.agent.limits.review import LimitReview
from accelshare.agent.limits.setting import ContainerLimits
from accelshare.agent.limits.wanted import Limit
from accelshare.ledger.facts import PodSeen
from accelshare.vendors.enforcement import Enforcement, Region
from accelshare.wire.node_pods import NodePod
from tests.unit.agent.limits.kernel import Kernel

GIB = 2**30
WAY = Enforcement("dmem", set_by="dmem", regions=(Region("fake/zpu0", 16 * GIB),))
LIMIT = Limit("acme", 0, "zpu0", 4 * GIB, WAY)
POD = NodePod(PodSeen("u", "default", "p", request=(), slices=()), parts=(), annotations={}, phase="Running", terminating=False)


@dataclass(frozen=True, slots=True)
class Living:
    cgroup: str
    pod: NodePod = POD
    name: str = "train"
    limits: tuple[Limit, ...] = (LIMIT,)


class Node:
    def __init__(self, directory: Path) -> None:
        self.kernel = Kernel(directory, {"fake/zpu0": 16 * GIB})
        self.containers: list[Living] = []
        self.repaired = 0
        self.failed: list[str] = []
        self.review = LimitReview(
            ContainerLimits(self.kernel, {}),
            lambda: self.containers,
            on_repaired=self._count,
            on_failed=lambda pod, problem: self.failed.append(f"{pod.name}: {problem}"),
        )

    def _count(self) -> None:
        self.repaired += 1


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_a_missing_limit_is_set_again_and_counted(node: Node) -> None:
    group = node.kernel.make("pod/one")
    node.containers = [Living("/pod/one"), Living("/pod/gone")]
    await node.review.once()
    assert (node.repaired, node.failed) == (1, [])
    assert node.kernel.read(group, "dmem.max") == f"fake/zpu0 {4 * GIB}\n"
    await node.review.once()
    assert node.repaired == 1


async def test_a_limit_that_cannot_be_set_is_reported_once_until_it_was_held_again(node: Node) -> None:
    node.kernel.make("pod/one")
    node.containers = [Living("/pod/one"), Living("neither:a-path")]
    node.kernel.forgets = True
    for _ in range(2):
        await node.review.once()
    assert node.repaired == 0
    assert len(node.failed) == 2
    assert all(line.startswith("default/p: container train: ") for line in node.failed)
    node.kernel.forgets = False
    node.containers = [Living("/pod/one")]
    await node.review.once()
    node.kernel.make("pod/one")
    node.kernel.forgets = True
    await node.review.once()
    assert (node.repaired, len(node.failed)) == (1, 3)
