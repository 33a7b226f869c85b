"""A node with systemd and cgroup v2 delivers a card to its pod, and no other."""

from tests.vm.virtual_cluster import CARD_GIB, VirtualCluster


async def test_the_node_is_what_production_is(virtual_cluster: VirtualCluster) -> None:
    """Its own kernel with the device memory controller, systemd as the first process, and cgroup v2."""
    assert await virtual_cluster.node_is_ready()
    assert (await virtual_cluster.run("stat --file-system --format=%T /sys/fs/cgroup")).strip() == "cgroup2fs"
    assert (await virtual_cluster.run("cat /proc/1/comm")).strip() == "systemd"
    assert "dmem" in (await virtual_cluster.run("cat /sys/fs/cgroup/cgroup.controllers")).split()
    capacity = (await virtual_cluster.run("cat /sys/fs/cgroup/dmem.capacity")).splitlines()
    assert sorted(capacity) == [f"fake/zpu{number} {CARD_GIB * 1024**3}" for number in range(2)]


async def test_the_agent_publishes_the_cards_and_the_runtime_delivers_them(virtual_cluster: VirtualCluster) -> None:
    entry = await virtual_cluster.with_cards()
    assert [(card.index, card.size, card.healthy) for card in entry.cards] == [(0, CARD_GIB, True), (1, CARD_GIB, True)]
    assert (entry.delivery, entry.insists) == ("nri", True)


async def test_a_pod_gets_its_card_in_a_scope_of_systemd(virtual_cluster: VirtualCluster) -> None:
    await virtual_cluster.pod("first", CARD_GIB)
    await virtual_cluster.pod("second", CARD_GIB)
    await virtual_cluster.pod("none", 0)
    first, *_ = await virtual_cluster.running("first", "second", "none")
    cards = [await virtual_cluster.cards(name) for name in ("first", "second")]
    assert sorted(cards) == [["zpu0"], ["zpu1"]]
    assert await virtual_cluster.cards("none") == []
    container = first["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    scopes = await virtual_cluster.run(f"find /sys/fs/cgroup/kubepods.slice -name 'cri-containerd-{container}.scope'")
    assert len(scopes.split()) == 1


async def test_the_other_card_cannot_be_opened_with_a_device_node_of_ones_own(virtual_cluster: VirtualCluster) -> None:
    """With cgroup v2 the device rules are a BPF program, which the runtime loads from the same answer of the agent."""
    await virtual_cluster.pod("curious", 1)
    await virtual_cluster.running("curious")
    (own,) = await virtual_cluster.cards("curious")
    minors = dict(line.split() for line in (await virtual_cluster.run("grep zpu /proc/misc | awk '{print $2, $1}'")).splitlines())
    other = next(name for name in minors if name != own)
    script = "mknod /tmp/{0} c 10 {1} && (exec 3>/tmp/{0}) 2>/dev/null && echo opened || echo refused"
    assert (await virtual_cluster.exec("curious", script.format(own, minors[own]))).strip() == "opened"
    assert (await virtual_cluster.exec("curious", script.format(other, minors[other]))).strip() == "refused"
