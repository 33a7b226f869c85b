"""With NRI on a real containerd every container gets the card of its record, whichever process is killed."""

import asyncio
import json
import random
from functools import partial
from pathlib import Path

import pytest

from accelshare.wire.quantity import whole_number
from cluster.local.images import busybox_files
from tests.e2e.node.real_node import RealNode, mixed_pods, names, recorded
from tests.e2e.node.seed_workloads import gcushare_pods_see_their_cards, the_other_seeds_pods_see_their_cards

pytestmark = pytest.mark.real

GCU, GPU = "enflame.com/gcu-memory", "aliyun.com/gpu-mem"
FLAG = "enflame.com/gcu-device-assigned"
ALL_CARDS_IMAGE = "accelshare.local/names-all-cards:1"


async def all_right(real_node: RealNode, pods: list[str]) -> None:
    """The bind's record and the device node inside are the same card for each of these pods."""
    found = await real_node.running(*pods)
    visible = await asyncio.gather(*(real_node.sees(name) for name in pods))
    wrong = {name: nodes for name, nodes in zip(pods, visible, strict=True) if nodes != _wanted(found[name])}
    assert wrong == {}


def _wanted(pod: dict[str, object]) -> list[str]:
    return [f"gcu{index}" for index in recorded(pod, "enflame")]


async def test_the_runtime_is_chosen_and_the_node_shows_all_amounts(by_runtime: RealNode) -> None:
    real_node = by_runtime

    async def delivered_by_nri() -> bool:
        entry = await real_node.inventory_entry("enflame")
        return (entry.delivery, entry.insists, entry.delivers) == ("nri", True, True)

    await real_node.until(delivered_by_nri, "the inventory says that NRI delivers and the runtime requires it")

    async def shown() -> bool:
        status = (await real_node.node())["status"]
        wanted = {"enflame.com/gcu-count": "8", GCU: "128", "enflame.com/gcu": "8", "streamcomputing.com/npu": "1"}
        return all(wanted.items() <= status[part].items() for part in ("capacity", "allocatable"))

    await real_node.until(shown, "count, memory and whole cards in capacity and allocatable")
    await asyncio.to_thread(real_node.local.restart_kubelet)
    await real_node.until(shown, "the same after kubelet's restart")


async def test_every_seeds_own_workload_sees_its_card_by_name(by_runtime: RealNode) -> None:
    await gcushare_pods_see_their_cards(by_runtime)
    await the_other_seeds_pods_see_their_cards(by_runtime)


async def test_containers_inits_sidecars_several_and_whole_cards_by_name(by_runtime: RealNode) -> None:
    real_node = by_runtime
    found = await mixed_pods(real_node)
    for container in ("beside", "c0", "c1"):
        assert await real_node.sees("mixed", container) == _wanted(found["mixed"])
    assert await real_node.sees("mixed", "c2") == []
    for name, kind, node in (
        ("two", "enflame", "gcu"),
        ("four", "kunlun", "xpu"),
        ("whole", "enflame", "gcu"),
        ("npu", "stream", "stc"),
    ):
        assert await real_node.sees(name) == [f"{node}{index}" for index in recorded(found[name], kind)]
    assert [len(recorded(found[name], "enflame")) for name in ("mixed", "two", "whole")] == [1, 2, 2]
    assert set(recorded(found["whole"], "enflame")).isdisjoint(
        recorded(found["mixed"], "enflame") + recorded(found["two"], "enflame")
    )


async def test_forged_records_variables_and_node_names(by_runtime: RealNode) -> None:
    real_node = by_runtime
    forged = json.dumps({"enflame": [{"index": 5, "units": 4}]})
    record = {"accelshare.io/assignment": forged, "enflame.com/gcu-device-id": "5"}
    container = real_node.container("c0", {GCU: 4}, env=[{"name": "ENFLAME_VISIBLE_DEVICES", "value": "7"}])
    await real_node.pod("claims", containers=[container], annotations=record)
    found = await real_node.running("claims")
    assert recorded(found["claims"], "enflame") == [0]
    assert await real_node.sees("claims") == ["gcu0"]
    assert (await real_node.env("claims")).get("ENFLAME_VISIBLE_DEVICES", "0") != "7"
    # Whoever names its node has no card, whatever it claims; and a pod that asks for nothing gets nothing.
    await real_node.pod("by-hand", {GCU: 4}, nodeName=real_node.local.node_name, annotations=record)
    await real_node.pod("asks-nothing", {}, nodeName=real_node.local.node_name, annotations=record)

    async def refused() -> bool:
        params = {"fieldSelector": "involvedObject.name=by-hand"}
        text = (await real_node.client.request("GET", "/api/v1/namespaces/default/events", params=params)).decode()
        return "names its node itself" in text

    await real_node.until(refused, "an event that says why")
    await real_node.running("asks-nothing")
    assert await real_node.sees("asks-nothing") == []


async def test_a_unit_so_fine_that_no_device_list_could_hold_it(by_runtime: RealNode) -> None:
    """0.001 GB on 8 cards of 16 GB: 128,000 units, and the pod's status stays small."""
    real_node = by_runtime
    assert real_node.agent is not None
    real_node.agent.stop(40)
    await real_node.start_agent("--memory-unit=enflame=0.001")
    try:
        await real_node.until(lambda: _shows(real_node, 128_000), "128000 units are shown")
        await real_node.pod("fine", {GCU: 12345})
        found = await real_node.running("fine")
        assert await real_node.sees("fine") == _wanted(found["fine"])
        assert len(json.dumps(found["fine"])) < 16_000
    finally:
        await real_node.clear()


async def _shows(real_node: RealNode, amount: int) -> bool:
    shown: dict[str, str] = (await real_node.node())["status"]["allocatable"]
    return whole_number(shown.get(GCU)) == amount  # the API server writes 128k


async def test_rounds_of_equal_pods_with_every_process_killed_in_each(by_runtime: RealNode, rounds: int, rush_size: int) -> None:
    """Agent, kubelet and extender are killed in each round, containerd in every fifth.

    No pod is misassigned, without a card, failed or recreated; no record changes.
    """
    real_node = by_runtime
    chance = random.Random(23)
    for turn in range(rounds):
        coming = names(f"r{turn}-", range(rush_size))
        chance.shuffle(coming)
        made = await asyncio.gather(*(real_node.pod(name, {GCU: 2}) for name in coming))
        victims = ["agent", "kubelet", "extender"] + ["containerd"] * (turn % 5 == 0)
        chance.shuffle(victims)
        for some, victim in zip(sorted(chance.sample(range(1, rush_size - 4), len(victims))), victims, strict=True):
            await real_node.until(partial(_run, real_node, tuple(coming), some), f"{some} pods run")
            await kill(real_node, victim)
        await all_right(real_node, coming)
        now = await real_node.pods()
        assert {name: now[name]["metadata"]["uid"] for name in coming} == {
            pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in made
        }
        assert await real_node.drift() == 0
        await real_node.clear()


async def _run(real_node: RealNode, coming: tuple[str, ...], some: int) -> bool:
    pods = await real_node.pods()
    assert all(pods[name]["status"]["phase"] != "Failed" for name in coming if name in pods)
    running = [name for name in coming if name in pods and pods[name]["status"]["phase"] == "Running"]
    return len(running) >= some


async def kill(real_node: RealNode, what: str) -> None:
    assert real_node.agent is not None
    assert real_node.extender is not None
    if what == "agent":
        real_node.agent.kill()
        await real_node.start_agent()
    elif what == "extender":
        real_node.extender.kill()
        await real_node.start_extender()
    else:
        await asyncio.to_thread(real_node.local.restart_kubelet if what == "kubelet" else real_node.local.restart_containerd)


async def test_a_runtime_that_stops_insisting_and_insists_again_with_pods_running(by_runtime: RealNode, rush_size: int) -> None:
    """Without the validator kubelet's device plugins deliver and NRI corrects; with it back, the node returns. Last in this file:
    kubelet remembers device plugins for five minutes, unless it is started without its memory.
    """
    real_node = by_runtime
    assert real_node.agent is not None
    await real_node.pod("first", {GCU: 2})
    await all_right(real_node, ["first"])
    await asyncio.to_thread(real_node.local.restart_containerd, nri="on")
    try:
        agent = real_node.agent
        await real_node.until(lambda: not agent.running, "the agent ends to decide anew")
        assert "container runtime" in agent.last_lines()
        await real_node.start_agent()
        await real_node.until(partial(_delivers, real_node, "device-plugin+nri", True), "the node delivers in both ways")
        # Device files stay as kubelet gave them, and the record follows; variables are made equal to the record.
        coming = names("c", range(rush_size // 2))
        envs = names("e", range(rush_size // 3))
        await asyncio.gather(
            *(real_node.pod(name, {GCU: 2}) for name in coming), *(real_node.pod(name, {GPU: 3}) for name in envs)
        )
        # As the manifest of the OpenShift guide does it: kubelet passes it together with what the device plugin answers.
        index = {"fieldRef": {"fieldPath": "metadata.annotations['ALIYUN_COM_GPU_MEM_IDX']"}}
        variable = {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": index}
        await real_node.pod("by-annotation", containers=[real_node.container("c0", {GPU: 3}, env=[variable])])
        # As most CUDA images do it: containerd lists the image's variable before that of the device plugin.
        every = {"NVIDIA_VISIBLE_DEVICES": "all"}
        await asyncio.to_thread(
            real_node.local.make_image, ALL_CARDS_IMAGE, busybox_files(Path("/bin/busybox")), ["/bin/sh"], variables=every
        )
        await real_node.pod("by-image", containers=[real_node.container("c0", {GPU: 3}, image=ALL_CARDS_IMAGE)])
        envs += ["by-annotation", "by-image"]
        await all_right(real_node, coming)
        found = await real_node.running(*envs)
        seen = {name: (await real_node.env(name))["NVIDIA_VISIBLE_DEVICES"] for name in envs}
        assert seen == {name: f"GPU-{recorded(found[name], 'nvidia')[0]}" for name in envs}
        real_node.agent.kill()
        assert all(pod["status"]["phase"] == "Running" for pod in (await real_node.pods()).values())
    finally:
        real_node.agent.kill()
        await asyncio.to_thread(real_node.local.restart_containerd, nri="validated")
    # Moving back: while pods live that kubelet's device plugins served, those go on.
    await real_node.start_agent()
    await real_node.until(partial(_delivers, real_node, "device-plugin+nri", True), "the node goes on to deliver in both ways")
    await real_node.pod("stays", {GCU: 2})
    await all_right(real_node, ["first", "stays", *coming])
    # Without them the runtime delivers. Until kubelet has forgotten, the cluster is told that nothing is delivered here.
    real_node.agent.stop(40)
    await asyncio.gather(*(real_node.delete(name) for name in ("stays", *coming, *envs)))
    await real_node.until(partial(_only, real_node, "first"), "the others are gone")
    agent = real_node.begin_agent()
    await real_node.until(partial(_delivers, real_node, "nri", False), "the node says that it does not deliver yet")
    await real_node.pod("waits", {GCU: 2})
    real_node.local.kill_kubelet()
    real_node.local.path("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint").unlink()
    await asyncio.to_thread(real_node.local.start_kubelet)
    await real_node.until(partial(_delivers, real_node, "nri", True), "the node delivers by the runtime again")
    await all_right(real_node, ["first", "waits"])
    # And to device plugins, with all of them running.
    agent.stop(40)
    await real_node.start_agent("--delivery=device-plugin")
    await real_node.pod("last", {GCU: 2})
    await all_right(real_node, ["first", "waits", "last"])


async def _only(real_node: RealNode, name: str) -> bool:
    return set(await real_node.pods()) == {name}


async def _delivers(real_node: RealNode, way: str, delivers: bool) -> bool:
    entry = await real_node.inventory_entry("enflame")
    return (entry.delivery, entry.delivers) == (way, delivers)
