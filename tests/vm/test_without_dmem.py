"""On a kernel without the device memory controller nobody holds a limit, and a pod that requires one waits.

The last file: its node is another one, and each node takes a minute or more to boot.
"""

from tests.vm.virtual_cluster import VirtualCluster

NOT_ENFORCED = "nothing limits the memory of ZPUs here"  # of zpu.toml


async def test_nobody_holds_the_limit(without_dmem: VirtualCluster) -> None:
    assert "dmem" not in (await without_dmem.run("cat /sys/fs/cgroup/cgroup.controllers")).split()
    entry = await without_dmem.with_cards()
    assert [card.enforced_by for card in entry.cards] == ["nobody", "nobody"]


async def test_a_pod_that_requires_a_limit_waits_and_is_told_why(without_dmem: VirtualCluster) -> None:
    """Another pod runs, with its card."""
    await without_dmem.pod("strict", 2, annotations={"accelshare.io/enforcement": "required"})
    await without_dmem.pod("lenient", 2, annotations={"accelshare.io/enforcement": "preferred"})
    await without_dmem.running("lenient")
    assert len(await without_dmem.cards("lenient")) == 1

    async def told() -> bool:
        return any(NOT_ENFORCED in message for message in await without_dmem.events("strict", "FailedScheduling"))

    await without_dmem.until(told, "an event on the pod that says why")
    assert not (await without_dmem.pods())["strict"]["spec"].get("nodeName")
