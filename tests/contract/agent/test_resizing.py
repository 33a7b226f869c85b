"""Resizing living slices: the real agent, with a fake library of a driver or fake cgroup files, and a fake runtime."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from accelshare.ledger.nouns import Resize
from accelshare.testing.fake_runtime import RuntimeRefusalError
from accelshare.wire import resizing
from tests.contract.agent.fake_node import MEMORY, NODE, FakeNode
from tests.contract.agent.test_limits import GIB, Node, built, opened  # noqa: F401 – `built` is a fixture
from tests.contract.agent.test_nri_delivery import CONTAINERD, bind


class Resizing:
    """A node with a running pod `a` that has 4 units of card 0."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.fake = node.fake

    async def start(self, *flags: str) -> None:
        await self.node.start_agent(*flags or ("--resize",))

    async def run(self, name: str, units: int, card: int = 0) -> None:
        bind(self.fake, name, {MEMORY: units}, card, units=units)
        await self.node.create(name)
        await self.node.start(name)
        self.fake.api.store.patch("pods", name, {"status": {"phase": "Running"}}, subresource="status")

    def grant(self, name: str, units: int, number: int) -> None:
        text = resizing.granted_text(Resize(units, number))
        self.fake.api.store.patch("pods", name, {"metadata": {"annotations": {resizing.GRANTED: text}}})

    def annotation(self) -> str | None:
        found: dict[str, str] = self.fake.api.store.get("nodes", NODE).object["metadata"].get("annotations") or {}
        return found.get(resizing.APPLIED)

    def applied(self, name: str) -> Resize | None:
        return resizing.applied(self.annotation() or "{}").get(self.fake.read(name)["metadata"]["uid"])

    async def until_applied(self, name: str, units: int, number: int) -> None:
        await self.fake.until(lambda: self.applied(name) == Resize(units, number), f"the node reports {units} units, n {number}")

    async def until_event(self, name: str, reason: str, *facts: str) -> None:
        def written() -> bool:
            events: list[dict[str, Any]] = [event.object for event in self.fake.api.store.list("events").versions]
            own = [event for event in events if event["involvedObject"]["name"] == name and event["reason"] == reason]
            return any(all(fact in event["message"] for fact in facts) for event in own)

        await self.fake.until(written, f"an event {reason} on {name} with {facts}")

    def driver_limits(self, name: str) -> set[int]:
        """The limits of the pod's cgroup and of its container's."""
        groups = (str(self.node.group(name)), str(self.node.pod_group(name)))
        return {self.node.limits()["zpu0", group] for group in groups}

    def kernel_limit(self, name: str) -> str:
        return (self.node.group(name) / "dmem.max").read_text().strip()

    def set_use(self, name: str, use: int) -> None:
        (self.node.group(name) / "dmem.current").write_text(f"fake/zpu0 {use}\nfake/zpu2 0\n")


@pytest.fixture
async def resizing_node(fake_node: FakeNode, built: Path, tmp_path: Path) -> AsyncIterator[Resizing]:  # noqa: F811
    async with opened(fake_node, built, tmp_path, CONTAINERD) as node:
        yield Resizing(node)


async def test_the_driver_limits_a_living_container_to_its_new_amount(resizing_node: Resizing) -> None:
    one = resizing_node
    one.node.uses_driver()
    await one.start()
    await one.fake.until(lambda: one.annotation() == "{}", "the agent says that it resizes")
    await one.run("a", 4)
    one.grant("a", 8, 1)
    await one.until_applied("a", 8, 1)
    assert one.driver_limits("a") == {8 * GIB}
    await one.until_event("a", "ResizeApplied", "8 units", "4", str(8 * GIB))
    one.node.has(used_in_group_mib=2048)
    one.grant("a", 2, 2)
    await one.until_applied("a", 2, 2)
    assert one.driver_limits("a") == {2 * GIB}
    assert await one.fake.metric('accelshare_agent_resizes_total{outcome="applied"}') == 2


async def test_a_shrink_below_the_use_is_refused_and_nothing_changes(resizing_node: Resizing) -> None:
    one = resizing_node
    one.node.uses_driver()
    await one.start()
    await one.run("a", 8)
    one.node.has(used_in_group_mib=5000)
    one.grant("a", 4, 1)
    await one.until_applied("a", 8, 1)
    assert one.driver_limits("a") == {8 * GIB}
    await one.until_event("a", "ResizeFailed", "5000 MiB", "4096 MiB", "keeps 8 units")
    assert await one.fake.metric('accelshare_agent_resizes_total{outcome="failed"}') == 1
    one.grant("a", 5, 2)
    await one.until_applied("a", 5, 2)
    assert one.driver_limits("a") == {5 * GIB}


async def test_a_driver_that_does_not_set_the_limit_leaves_the_old_amount(resizing_node: Resizing) -> None:
    one = resizing_node
    one.node.uses_driver()
    await one.start()
    await one.run("a", 4)
    one.node.has(set_limit=4)
    one.grant("a", 8, 1)
    await one.until_applied("a", 4, 1)
    await one.until_event("a", "ResizeFailed", "keeps 4 units", "returned 4")
    assert one.driver_limits("a") == {4 * GIB}


async def test_a_limit_that_can_neither_be_set_nor_read_is_tried_again(resizing_node: Resizing) -> None:
    """It is not known which limit is in force, so the extender goes on counting the larger amount."""
    one = resizing_node
    one.node.uses_driver()
    await one.start()
    await one.run("a", 4)
    one.node.has(limit_mib=16384)
    one.grant("a", 8, 1)
    await one.fake.until(lambda: one.fake.agent and "outcome=postponed" in one.fake.agent.log.read_text(), "it is postponed")
    assert one.applied("a") is None
    one.node.has()
    await one.until_applied("a", 8, 1)
    assert one.driver_limits("a") == {8 * GIB}


async def test_the_runtime_writes_the_kernels_new_limit_and_keeps_it(resizing_node: Resizing) -> None:
    """What the runtime keeps of a container is what it writes again when kubelet changes the container's CPUs."""
    one = resizing_node
    one.node.uses_kernel()
    await one.start()
    await one.run("a", 4)
    one.grant("a", 8, 1)
    await one.until_applied("a", 8, 1)
    assert one.kernel_limit("a") == f"fake/zpu0 {8 * GIB}"
    assert one.node.runtime.real.containers["a-c0"].container.linux.resources.unified["dmem.max"] == f"fake/zpu0 {8 * GIB}"
    one.set_use("a", 3 * GIB + 1)
    one.grant("a", 3, 2)
    await one.until_applied("a", 8, 2)
    assert one.kernel_limit("a") == f"fake/zpu0 {8 * GIB}"
    one.set_use("a", 3 * GIB)
    one.grant("a", 3, 3)
    await one.until_applied("a", 3, 3)
    assert one.kernel_limit("a") == f"fake/zpu0 {3 * GIB}"


async def test_a_container_that_is_created_again_starts_with_the_new_amount(resizing_node: Resizing) -> None:
    one = resizing_node
    one.node.uses_kernel()
    await one.start()
    await one.run("a", 4)
    one.grant("a", 8, 1)
    await one.until_applied("a", 8, 1)
    made = await one.node.create("a")
    assert dict(made.container.linux.resources.unified) == {"dmem.max": f"fake/zpu0 {8 * GIB}"}
    await one.node.start("a")
    assert one.kernel_limit("a") == f"fake/zpu0 {8 * GIB}"


async def test_units_that_a_shrink_freed_are_for_others(resizing_node: Resizing) -> None:
    one = resizing_node
    one.node.uses_kernel()
    await one.start()
    await one.run("a", 10)
    bind(one.fake, "b", {MEMORY: 12}, 0, units=12)

    async def has_no_room() -> bool:
        with pytest.raises(RuntimeRefusalError) as refusal:
            await one.node.create_once("b")
        return "6 of 16 left" in str(refusal.value)

    await one.fake.until(has_no_room, "the card has no room for b")
    one.set_use("a", 0)
    one.grant("a", 4, 1)
    await one.until_applied("a", 4, 1)
    await one.node.create("b")
    await one.node.start("b")
    assert one.kernel_limit("b") == f"fake/zpu0 {12 * GIB}"


async def test_a_restarted_agent_keeps_the_amount_and_does_what_was_granted_meanwhile(resizing_node: Resizing) -> None:
    one = resizing_node
    one.node.uses_kernel()
    await one.start()
    await one.run("a", 4)
    await one.run("b", 4, card=2)
    one.grant("a", 8, 1)
    await one.until_applied("a", 8, 1)
    await one.node.kill_agent()
    (one.node.group("a") / "dmem.max").write_text("fake/zpu0 max\n")
    one.grant("b", 6, 1)
    await one.start()
    await one.until_applied("b", 6, 1)
    assert one.applied("a") == Resize(8, 1)
    await one.fake.until(lambda: one.kernel_limit("a") == f"fake/zpu0 {8 * GIB}", "the limit after the resize is set again")
    one.fake.api.store.delete("pods", "b", options={"gracePeriodSeconds": 0})
    await one.fake.until(
        lambda: list(json.loads(one.annotation() or "{}")) == [one.fake.read("a")["metadata"]["uid"]], "b is gone"
    )


async def test_a_runtime_that_changes_no_container_leaves_the_old_amount(resizing_node: Resizing) -> None:
    one = resizing_node
    one.node.uses_kernel()
    await one.start()
    await one.run("a", 4)
    one.node.runtime.real.refuses_updates = True
    one.grant("a", 8, 1)
    await one.until_applied("a", 4, 1)
    await one.until_event("a", "ResizeFailed", "keeps 4 units", "a-c0")
    assert one.kernel_limit("a") == f"fake/zpu0 {4 * GIB}"
    one.node.runtime.real.refuses_updates = False
    one.grant("a", 8, 2)
    await one.until_applied("a", 8, 2)


async def test_without_the_flag_a_grant_changes_nothing(resizing_node: Resizing) -> None:
    """Where no admission policy protects the annotation, any user could write it."""
    one = resizing_node
    one.node.uses_kernel()
    await one.start("--no-resize")
    await one.run("a", 4)
    one.grant("a", 8, 1)
    await one.run("b", 4)
    assert one.annotation() is None
    assert one.kernel_limit("a") == f"fake/zpu0 {4 * GIB}"


async def test_growth_between_creation_and_start_raises_the_limit_of_the_pod_too(resizing_node: Resizing) -> None:
    """As when the pod's template has the wish already."""
    one = resizing_node
    one.node.uses_driver()
    await one.start()
    bind(one.fake, "a", {MEMORY: 4}, 0, units=4)
    await one.node.create("a")
    one.grant("a", 8, 1)
    await one.until_applied("a", 8, 1)
    await one.node.start("a")
    assert one.driver_limits("a") == {8 * GIB}
