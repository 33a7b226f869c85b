"""Pods that require enforced memory limits, through the extender's process over HTTP."""

import json
from typing import Any

import pytest

from tests.contract.fake_cluster import FakeCluster

ANNOTATION = "accelshare.io/enforcement"
NOT_ENFORCED = "node has too few GPUs with enforced memory limits"
TOO_SMALL = "slice is smaller than the minimum of the node's GPUs"


def requiring(fake_cluster: FakeCluster, name: str, units: int = 4, says: str = "required") -> dict[str, Any]:
    return fake_cluster.pod(name, units, annotations={ANNOTATION: says})


async def problems(fake_cluster: FakeCluster, node: str) -> list[str]:
    (shown,) = json.loads((await fake_cluster.call("GET", f"/accelshare/inspect/{node}"))[1])["nodes"]
    return list(shown["problems"])


async def test_a_pod_that_requires_a_limit_is_named_only_nodes_that_enforce_it(fake_cluster: FakeCluster) -> None:
    fake_cluster.node("plain", 16, enforced_by="nobody")
    fake_cluster.node("old", 16, enforced_by="watch")
    fake_cluster.node("limited", 16, enforced_by="nvml", min_units=2)
    await fake_cluster.start_extender("--shortlist=0")
    names = ("plain", "old", "limited")
    pod, small = requiring(fake_cluster, "a"), fake_cluster.pod("small", 1)

    answer = await fake_cluster.filter(pod, *names)
    assert answer["NodeNames"] == ["limited"]
    assert answer["FailedAndUnresolvableNodes"] == {"plain": NOT_ENFORCED, "old": NOT_ENFORCED}
    answer = await fake_cluster.filter(small, *names)
    assert answer["FailedAndUnresolvableNodes"] == {"limited": TOO_SMALL}
    answer = await fake_cluster.filter(requiring(fake_cluster, "b", says="preferred"), *names)
    assert answer["NodeNames"][0] == "limited"
    assert sorted(answer["NodeNames"]) == sorted(names)

    assert NOT_ENFORCED in await fake_cluster.bind(pod, "plain")
    assert await fake_cluster.bind(pod, "limited") == ""
    metrics = (await fake_cluster.call("GET", "/metrics"))[1]
    assert 'accelshare_card_enforcement{node="limited",vendor="nvidia",card="0",way="nvml"} 1\n' in metrics
    assert 'accelshare_card_enforcement{node="old",vendor="nvidia",card="0",way="nobody"} 0\n' in metrics
    assert 'accelshare_refused_nodes_total{reason="limits-not-enforced"} 2.0\n' in metrics


async def test_a_card_that_loses_its_limit_keeps_its_pods_and_gets_no_new_ones(fake_cluster: FakeCluster) -> None:
    fake_cluster.node("n1", 16, enforced_by="nvml")
    await fake_cluster.start_extender()
    assert await fake_cluster.bind(requiring(fake_cluster, "a"), "n1") == ""
    fake_cluster.change_node("n1", 16, enforced_by="nobody")
    await fake_cluster.until(lambda: problems(fake_cluster, "n1"), "the extender has seen the change")
    assert await problems(fake_cluster, "n1") == [
        "pod default/a requires an enforced memory limit, and nobody enforces it on nvidia card 0"
    ]
    assert await fake_cluster.used() == {"n1": [4]}
    waiting = requiring(fake_cluster, "b")
    answer = await fake_cluster.filter(waiting, "n1")
    assert answer["FailedAndUnresolvableNodes"] == {"n1": NOT_ENFORCED}
    victims = {"n1": {"Pods": [{"UID": fake_cluster.read("a")["metadata"]["uid"]}], "NumPDBViolations": 0}}
    answer = await fake_cluster.post("preempt", {"Pod": waiting, "NodeNameToMetaVictims": victims})
    assert answer["NodeNameToMetaVictims"] == {}

    fake_cluster.change_node("n1", 16, enforced_by="dmem")

    def requeued() -> bool:
        return "accelshare.io/requeued" in fake_cluster.read("b")["metadata"]["annotations"]

    await fake_cluster.until(requeued, "the waiting pod is tried again")
    assert (await fake_cluster.filter(fake_cluster.read("b"), "n1"))["NodeNames"] == ["n1"]
    assert await problems(fake_cluster, "n1") == []


async def test_the_default_is_for_pods_that_say_nothing_in_every_part_of_the_extender(fake_cluster: FakeCluster) -> None:
    fake_cluster.node("plain", 16)
    fake_cluster.node("limited", 8, enforced_by="nvml")
    waits = fake_cluster.pod("waits", 4)  # it is there before the start, so the fence changes and reads it again
    await fake_cluster.start_extender("--default-enforcement=required")
    answer = await fake_cluster.filter(waits, "plain", "limited")
    assert (answer["NodeNames"], answer["FailedAndUnresolvableNodes"]) == (["limited"], {"plain": NOT_ENFORCED})
    assert NOT_ENFORCED in await fake_cluster.bind(waits, "plain")
    assert await fake_cluster.bind(waits, "limited") == ""
    prefers = requiring(fake_cluster, "prefers", 16, says="preferred")
    assert await fake_cluster.bind(prefers, "plain") == ""


@pytest.mark.parametrize("edited", ["preferred", "nonsense", None])
async def test_an_edit_after_the_bind_moves_and_frees_nothing(fake_cluster: FakeCluster, edited: str | None) -> None:
    fake_cluster.node("n1", 16, 16, enforced_by="nvml")
    await fake_cluster.start_extender()
    assert await fake_cluster.bind(requiring(fake_cluster, "a"), "n1") == ""
    fake_cluster.api.store.patch("pods", "a", {"metadata": {"annotations": {ANNOTATION: edited}}})
    assert await fake_cluster.bind(fake_cluster.pod("b", 4), "n1") == ""  # its bind is seen after the edit
    assert await fake_cluster.used() == {"n1": [8, 0]}
    assert fake_cluster.extender is not None
    fake_cluster.extender.kill()
    await fake_cluster.start_extender()
    assert await fake_cluster.used() == {"n1": [8, 0]}


async def test_another_value_is_reported_on_the_pod(fake_cluster: FakeCluster) -> None:
    fake_cluster.node("n1", 16, enforced_by="nvml")
    await fake_cluster.start_extender()
    pod = requiring(fake_cluster, "a", says="always")
    text = f"annotation {ANNOTATION} must be required or preferred"

    def event() -> Any:
        events = [version.object for version in fake_cluster.api.store.list("events").versions]
        return next((each for each in events if each["reason"] == "BadAcceleratorRequest"), None)

    assert (await fake_cluster.until(event, "the event is written"))["message"] == text
    answer = await fake_cluster.filter(pod, "n1")
    assert answer["FailedAndUnresolvableNodes"] == {"n1": text}
    assert await fake_cluster.bind(pod, "n1") == text
