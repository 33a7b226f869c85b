"""On a real containerd each container is given its card by name: nothing to correct, nothing that dies, whoever is killed."""

import asyncio
import json
import random
from functools import partial

import pytest

from accelshare.wire.quantity import whole_number
from tests.e2e.node.farm import Farm, names, recorded
from tests.e2e.node.seed_workloads import gcushare_pods_see_their_cards, the_other_seeds_pods_see_their_cards

pytestmark = pytest.mark.real

GCU, GPU = "enflame.com/gcu-memory", "aliyun.com/gpu-mem"
FLAG = "enflame.com/gcu-device-assigned"


async def all_right(farm: Farm, pods: list[str]) -> None:
    """The bind's record and the device node inside are the same card for each of these pods."""
    found = await farm.running(*pods)
    sights = await asyncio.gather(*(farm.sees(name) for name in pods))
    wrong = {name: sight for name, sight in zip(pods, sights, strict=True) if sight != _wanted(found[name])}
    assert wrong == {}


def _wanted(pod: dict[str, object]) -> list[str]:
    return [f"gcu{index}" for index in recorded(pod, "enflame")]


async def test_the_runtime_is_chosen_and_the_node_shows_all_amounts(by_runtime: Farm) -> None:
    farm = by_runtime
    told = await farm.told("enflame")
    assert (told.delivery, told.insists) == ("nri", True)

    async def shown() -> bool:
        status = (await farm.node())["status"]
        wanted = {"enflame.com/gcu-count": "8", GCU: "128", "enflame.com/gcu": "8", "streamcomputing.com/npu": "1"}
        return all(wanted.items() <= status[part].items() for part in ("capacity", "allocatable"))

    await farm.until(shown, "count, memory and whole cards in capacity and allocatable")
    await asyncio.to_thread(farm.local.restart_kubelet)
    await farm.until(shown, "the same after kubelet's restart")


async def test_every_seeds_own_workload_sees_its_card_by_name(by_runtime: Farm) -> None:
    await gcushare_pods_see_their_cards(by_runtime)
    await the_other_seeds_pods_see_their_cards(by_runtime)


async def test_containers_inits_sidecars_several_and_whole_cards_by_name(by_runtime: Farm) -> None:
    farm = by_runtime
    inits = [farm.container("first", {GCU: 8}, command=["true"]), farm.container("beside", {GCU: 2}, restartPolicy="Always")]
    await farm.pod("mixed", {GCU: 3}, {GCU: 5}, {}, initContainers=inits)
    await farm.pod("two", {GCU: 8}, annotations={"accelshare.io/card-count": "2"})
    await farm.pod("four", {"baidu.com/xpu-mem": 8000}, labels={"baidu.com/xpu-count": "4"})
    await farm.pod("whole", {"enflame.com/gcu": 2})
    await farm.pod("npu", {"streamcomputing.com/npu": 1})
    found = await farm.running("mixed", "two", "four", "whole", "npu")
    for container in ("beside", "c0", "c1"):
        assert await farm.sees("mixed", container) == _wanted(found["mixed"])
    assert await farm.sees("mixed", "c2") == []
    for name, kind, node in (
        ("two", "enflame", "gcu"),
        ("four", "kunlun", "xpu"),
        ("whole", "enflame", "gcu"),
        ("npu", "stream", "stc"),
    ):
        assert await farm.sees(name) == [f"{node}{index}" for index in recorded(found[name], kind)]
    assert [len(recorded(found[name], "enflame")) for name in ("mixed", "two", "whole")] == [1, 2, 2]
    assert set(recorded(found["whole"], "enflame")).isdisjoint(
        recorded(found["mixed"], "enflame") + recorded(found["two"], "enflame")
    )


async def test_forged_records_variables_and_node_names(by_runtime: Farm) -> None:
    farm = by_runtime
    forged = json.dumps({"enflame": [{"index": 5, "units": 4}]})
    record = {"accelshare.io/assignment": forged, "enflame.com/gcu-device-id": "5"}
    container = farm.container("c0", {GCU: 4}, env=[{"name": "ENFLAME_VISIBLE_DEVICES", "value": "7"}])
    await farm.pod("claims", containers=[container], annotations=record)
    found = await farm.running("claims")
    assert recorded(found["claims"], "enflame") == [0]
    assert await farm.sees("claims") == ["gcu0"]
    assert (await farm.env("claims")).get("ENFLAME_VISIBLE_DEVICES", "0") != "7"
    # Whoever names its node has no card, whatever it claims; and a pod that asks for nothing gets nothing.
    await farm.pod("by-hand", {GCU: 4}, nodeName=farm.local.node_name, annotations=record)
    await farm.pod("asks-nothing", {}, nodeName=farm.local.node_name, annotations=record)

    async def refused() -> bool:
        params = {"fieldSelector": "involvedObject.name=by-hand"}
        text = (await farm.client.request("GET", "/api/v1/namespaces/default/events", params=params)).decode()
        return "names its node itself" in text

    await farm.until(refused, "an event that says why")
    await farm.running("asks-nothing")
    assert await farm.sees("asks-nothing") == []


async def test_a_unit_so_fine_that_no_device_list_could_hold_it(by_runtime: Farm) -> None:
    """0.001 GB on 8 cards of 16 GB: 128,000 units, and the pod's status stays small."""
    farm = by_runtime
    assert farm.agent is not None
    farm.agent.stop(40)
    await farm.start_agent("--memory-unit=enflame=0.001")
    try:
        await farm.until(lambda: _shows(farm, 128_000), "128000 units are shown")
        await farm.pod("fine", {GCU: 12345})
        found = await farm.running("fine")
        assert await farm.sees("fine") == _wanted(found["fine"])
        assert len(json.dumps(found["fine"])) < 16_000
    finally:
        await farm.clear()


async def _shows(farm: Farm, amount: int) -> bool:
    shown: dict[str, str] = (await farm.node())["status"]["allocatable"]
    return whole_number(shown.get(GCU)) == amount  # the API server writes 128k


async def test_five_hundred_equal_pods_and_everybody_killed_in_each_round(by_runtime: Farm) -> None:
    """Ten kills each of agent, kubelet and extender, and two of containerd: no pod is wrong, bare, dead or made anew; no record
    changes.
    """
    farm = by_runtime
    chance = random.Random(23)
    for turn in range(10):
        coming = names(f"r{turn}-", range(50))
        chance.shuffle(coming)
        made = await asyncio.gather(*(farm.pod(name, {GCU: 2}) for name in coming))
        victims = ["agent", "kubelet", "extender"] + ["containerd"] * (turn % 5 == 0)
        chance.shuffle(victims)
        for some, victim in zip(sorted(chance.sample(range(1, 46), len(victims))), victims, strict=True):
            await farm.until(partial(_run, farm, tuple(coming), some), f"{some} pods run")
            await kill(farm, victim)
        await all_right(farm, coming)
        now = await farm.pods()
        assert {name: now[name]["metadata"]["uid"] for name in coming} == {
            pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in made
        }
        assert await farm.drift() == 0
        await farm.clear()


async def _run(farm: Farm, coming: tuple[str, ...], some: int) -> bool:
    pods = await farm.pods()
    assert all(pods[name]["status"]["phase"] != "Failed" for name in coming if name in pods)
    running = [name for name in coming if name in pods and pods[name]["status"]["phase"] == "Running"]
    return len(running) >= some


async def kill(farm: Farm, what: str) -> None:
    assert farm.agent is not None
    assert farm.extender is not None
    if what == "agent":
        farm.agent.kill()
        await farm.start_agent()
    elif what == "extender":
        farm.extender.kill()
        await farm.start_extender()
    else:
        await asyncio.to_thread(farm.local.restart_kubelet if what == "kubelet" else farm.local.restart_containerd)


async def test_a_runtime_that_stops_insisting_and_insists_again_with_pods_running(by_runtime: Farm) -> None:
    """Without the validator kubelet's device plugins deliver and NRI corrects; with it back, the node returns. Last in this file:
    kubelet remembers device plugins for five minutes, unless it is started without its memory.
    """
    farm = by_runtime
    assert farm.agent is not None
    await farm.pod("first", {GCU: 2})
    await all_right(farm, ["first"])
    await asyncio.to_thread(farm.local.restart_containerd, nri="on")
    try:
        agent = farm.agent
        await farm.until(lambda: not agent.running, "the agent ends to decide anew")
        assert "starting anew" in agent.last_lines()
        await farm.start_agent()
        assert (await farm.told("enflame")).delivery == "device-plugin+nri"
        # Device files stay as kubelet gave them, and the record follows; variables are made equal to the record.
        coming = names("c", range(30))
        envs = names("e", range(20))
        await asyncio.gather(*(farm.pod(name, {GCU: 2}) for name in coming), *(farm.pod(name, {GPU: 3}) for name in envs))
        await all_right(farm, coming)
        found = await farm.running(*envs)
        said = {name: (await farm.env(name))["NVIDIA_VISIBLE_DEVICES"] for name in envs}
        assert said == {name: f"GPU-{recorded(found[name], 'nvidia')[0]}" for name in envs}
        farm.agent.kill()
        assert all(pod["status"]["phase"] == "Running" for pod in (await farm.pods()).values())
    finally:
        farm.agent.kill()
        await asyncio.to_thread(farm.local.restart_containerd, nri="validated")
    # Moving back: while pods live that kubelet's device plugins served, those go on.
    await farm.start_agent()
    assert (await farm.told("enflame")).delivery == "device-plugin+nri"
    await farm.pod("stays", {GCU: 2})
    await all_right(farm, ["first", "stays", *coming])
    # Without them the runtime delivers. Until kubelet has forgotten, the cluster is told that nothing is delivered here.
    farm.agent.stop(40)
    await asyncio.gather(*(farm.delete(name) for name in ("stays", *coming, *envs)))
    await farm.until(partial(_only, farm, "first"), "the others are gone")
    agent = farm.begin_agent()
    await farm.until(partial(_delivers, farm, "nri", False), "the node says that it does not deliver yet")
    await farm.pod("waits", {GCU: 2})
    farm.local.kill_kubelet()
    farm.local.path("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint").unlink()
    await asyncio.to_thread(farm.local.start_kubelet)
    await farm.until(partial(_delivers, farm, "nri", True), "the node delivers by the runtime again")
    await all_right(farm, ["first", "waits"])
    # And to device plugins, with all of them running.
    agent.stop(40)
    await farm.start_agent("--delivery=device-plugin")
    await farm.pod("last", {GCU: 2})
    await all_right(farm, ["first", "waits", "last"])


async def _only(farm: Farm, name: str) -> bool:
    return set(await farm.pods()) == {name}


async def _delivers(farm: Farm, way: str, delivers: bool) -> bool:
    told = await farm.told("enflame")
    return (told.delivery, told.delivers) == (way, delivers)
