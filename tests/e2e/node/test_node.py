"""On a real kubelet, record, kubelet's allocation and device node in the container are the same card."""

import asyncio
import random
import re

import pytest

from tests.e2e.node.real_node import GCU, RealNode, all_agree, mixed_pods, names, recorded
from tests.e2e.node.seed_workloads import gcushare_pods_see_their_cards, the_other_seeds_pods_see_their_cards

pytestmark = pytest.mark.real


async def test_the_node_shows_what_the_gcushare_guide_shows(real_node: RealNode) -> None:
    async def shown() -> bool:
        status = (await real_node.node())["status"]
        return all(
            (status[part].get("enflame.com/gcu-count"), status[part].get(GCU)) == ("8", "128")
            for part in ("capacity", "allocatable")
        )

    await real_node.until(shown, "gcu-count 8 and gcu-memory 128 in capacity and allocatable")

    async def written() -> bool:
        """The agent is ready a moment before it has written the inventory; what an agent before it wrote is there until then."""
        return (await real_node.inventory_entry("enflame")).delivery == "device-plugin"

    await real_node.until(written, "the inventory says that device plugins deliver")
    first = (await real_node.inventory_entry("enflame")).cards[0]
    assert (first.index, first.size, first.minor, first.id) == (0, 16, 0, "GCU-U53000090100")


async def test_every_seeds_own_workload_sees_its_card(real_node: RealNode) -> None:
    await gcushare_pods_see_their_cards(real_node)
    for pod, card in (("gcushare-pod-1", "gcu0"), ("gcushare-pod-2", "gcu0"), ("gcushare-pod-3", "gcu1")):
        listed = await asyncio.to_thread(real_node.local.exec, pod, "ls", "/dev", namespace="kube-system")
        assert re.findall(r"\bgcu[0-9]+\b", listed) == [card]
    pods = await the_other_seeds_pods_see_their_cards(real_node)
    (demo,) = [name for name in pods if name.startswith("demo1-")]
    assert (await real_node.env(demo, "demo1"))["NVIDIA_VISIBLE_DEVICES"] == "0"
    assert await real_node.drift() == 0


async def test_equal_pods_of_all_priorities_and_rounds_of_change(real_node: RealNode, rounds: int, rush_size: int) -> None:
    """Created in a shuffled order with three priorities; then some go and others come, in random order, again and again."""
    shuffling = random.Random(11)
    classes = [await real_node.priority(name, value) for name, value in (("low", 1), ("middle", 50), ("high", 1000))]
    made = 2 * rush_size
    alive = names("p", range(made))
    shuffling.shuffle(alive)
    await asyncio.gather(*(real_node.pod(name, {GCU: 1}, priorityClassName=shuffling.choice(classes)) for name in alive))
    await all_agree(real_node, alive)
    for _ in range(rounds // 2 + 1):
        leaving = shuffling.sample(alive, 20)
        await asyncio.gather(*(real_node.delete(name) for name in leaving))
        coming = names("p", range(made, made + 20))
        made += 20
        await asyncio.gather(*(real_node.pod(name, {GCU: 1}, priorityClassName=shuffling.choice(classes)) for name in coming))
        alive = [name for name in alive if name not in leaving] + coming
        await all_agree(real_node, alive)
    assert await real_node.drift() == 0
    await real_node.until(lambda: _holders(real_node, len(alive)), "PodResources lists these pods and no others")


async def _holders(real_node: RealNode, count: int) -> bool:
    return len(await real_node.cards_by_kubelet()) == count


async def test_containers_inits_sidecars_several_and_whole_cards(real_node: RealNode) -> None:
    found = await mixed_pods(real_node)
    (card,) = recorded(found["mixed"], "enflame")
    for container in ("beside", "c0", "c1"):
        assert await real_node.sees("mixed", container) == [f"gcu{card}"]
    assert await real_node.sees("mixed", "c2") == []
    for name, kind, node in (
        ("two", "enflame", "gcu"),
        ("four", "kunlun", "xpu"),
        ("whole", "enflame", "gcu"),
        ("npu", "stream", "stc"),
    ):
        assert await real_node.sees(name) == [f"{node}{index}" for index in recorded(found[name], kind)]
    assert len(recorded(found["two"], "enflame")) == len(recorded(found["whole"], "enflame")) == 2
    assert len(recorded(found["four"], "kunlun")) == 4
    whole = set(recorded(found["whole"], "enflame"))
    assert whole.isdisjoint([card, *recorded(found["two"], "enflame")])
    assert await real_node.drift() == 0


async def test_a_card_falls_ill_and_recovers(real_node: RealNode) -> None:
    """While a pod is on it, and while one waits for it."""
    full = names("full", range(8))  # no two of them fit on one card
    await asyncio.gather(*(real_node.pod(name, {GCU: 12}) for name in full))
    await real_node.running(*full)
    real_node.gcu(**{f"gcu{number}": 0 for number in range(8)})
    await real_node.until(lambda: _healthy(real_node, 0), "the cluster hears of it")
    await real_node.pod("waits", {GCU: 4})

    async def has_event() -> bool:
        conditions = (await real_node.pods())["waits"]["status"].get("conditions", [])
        return any("Insufficient" in c.get("message", "") or "unhealthy" in c.get("message", "") for c in conditions)

    await real_node.until(has_event, "the pod has the event")
    real_node.gcu()
    await real_node.until(lambda: _healthy(real_node, 8), "the cluster hears that all is well")
    await all_agree(real_node, [*full, "waits"])
    assert await real_node.drift() == 0


async def _healthy(real_node: RealNode, count: int) -> bool:
    return sum(card.healthy for card in (await real_node.inventory_entry("enflame")).cards) == count


async def test_a_new_vendor_is_one_file(real_node: RealNode) -> None:
    assert real_node.agent is not None
    real_node.agent.stop(40)
    for index in range(2):
        real_node.local.make_device_node(f"/dev/zpu{index}")
    (real_node.profiles / "acme.toml").write_text(
        'name = "acme"\ntitle = "Acme"\nnoun = "ZPU"\n'
        '[resources]\nmemory = "acme.example/zpu-mem"\ncount = "acme.example/zpu-count"\n'
        '[hardware]\ndevice_nodes = ["/dev/zpu{minor}"]\n[container]\nstrategy = ["device-nodes"]\n'
        '[unit]\ndefault = "GiB"\n[unit.mib]\nGiB = 1024\n'
        '[driver]\nname = "static"\n[driver.static]\nglob = "/dev/zpu[0-9]*"\nmemory_mib = 8192\n'
    )
    try:
        assert real_node.extender is not None
        real_node.extender.stop()
        await real_node.start_extender()
        await real_node.start_agent()
        for number in range(2):
            await real_node.pod(f"z{number}", {"acme.example/zpu-mem": 5})
        await real_node.running("z0", "z1")
        assert sorted([await real_node.sees("z0"), await real_node.sees("z1")]) == [["zpu0"], ["zpu1"]]
    finally:
        for index in range(2):
            real_node.local.remove_device_node(f"/dev/zpu{index}")
