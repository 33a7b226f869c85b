"""Promises over real HTTP: pending pods get a nominated node, bind decides by the ledger, wrong promises are taken back."""

import asyncio
import math
import re
import time

import pytest

from tests.contract.fake_cluster import FakeCluster, Object

PROMISES = ("--promises=4", "--promises-from-nodes=1")
AMOUNTS = {"cpu": "8", "memory": "32Gi", "pods": "110"}


def amounts(fake_cluster: FakeCluster, *names: str) -> None:
    """What kubelet reports; without it a node has neither CPU nor room for a pod."""
    for name in names:
        content = {"status": {"capacity": AMOUNTS, "allocatable": AMOUNTS}}
        fake_cluster.api.store.patch("nodes", name, content, content_type="application/merge-patch+json", subresource="status")


def nominated(fake_cluster: FakeCluster, *names: str) -> dict[str, str]:
    return {name: fake_cluster.read(name)["status"].get("nominatedNodeName", "") for name in names}


async def outcomes(fake_cluster: FakeCluster) -> dict[str, int]:
    _, text = await fake_cluster.call("GET", "/metrics")
    prefix = 'accelshare_promises_total{outcome="'
    lines = [line.removeprefix(prefix).split('"} ') for line in text.splitlines() if line.startswith(prefix)]
    return {outcome: int(float(count)) for outcome, count in lines if float(count)}


async def planning(fake_cluster: FakeCluster, pods: int, units: int = 4) -> list[Object]:
    """Pods of which kube-scheduler asks for the first one; the later ones are promised nodes."""
    await fake_cluster.start_extender(*PROMISES)
    queue = [fake_cluster.pod(f"p{number:02d}", units) for number in range(pods)]

    async def asked() -> bool:
        """The extender's watches may show the pods later than they were created."""
        await fake_cluster.filter(queue[0], "n1", "n2")
        return any(nominated(fake_cluster, *(pod["metadata"]["name"] for pod in queue)).values())

    await fake_cluster.until(asked, "some pods have a nominated node")
    return queue


async def test_pods_of_a_queue_are_bound_to_their_nominated_nodes(fake_cluster: FakeCluster) -> None:
    fake_cluster.node("n1", 16, 16)
    fake_cluster.node("n2", 16, 16)
    amounts(fake_cluster, "n1", "n2")
    queue = await planning(fake_cluster, 16)
    # How many depends on the time that the first ones took.
    promised = {name: node for name, node in nominated(fake_cluster, *(pod["metadata"]["name"] for pod in queue)).items() if node}
    for pod in queue:
        name = pod["metadata"]["name"]
        first = nominated(fake_cluster, name)[name]
        answer = await fake_cluster.filter(pod, *([first] if first else ["n1", "n2"]))
        assert len(answer["NodeNames"]) == 1, answer
        assert await fake_cluster.bind(pod, answer["NodeNames"][0]) == ""
    assert {name: fake_cluster.read(name)["spec"]["nodeName"] for name in promised} == promised
    assert await fake_cluster.used() == {"n1": [16, 16], "n2": [16, 16]}

    async def counted() -> bool:
        return (await outcomes(fake_cluster)).get("kept", 0) >= len(promised)

    await fake_cluster.until(counted, "the kept promises are counted")
    assert fake_cluster.extender is not None
    messages = [line.partition(" ")[2] for line in fake_cluster.extender.log.read_text().splitlines()]  # without their times
    assert not [message for message in messages if re.search(r"(?<![\d.])409(?![\d.])", message)]


async def test_without_the_flag_nothing_is_nominated(fake_cluster: FakeCluster) -> None:
    fake_cluster.node("n1", 16, 16)
    amounts(fake_cluster, "n1")
    queue = [fake_cluster.pod(f"p{number:02d}", 4) for number in range(8)]
    await fake_cluster.start_extender()
    for pod in queue:
        assert await fake_cluster.bind(pod, (await fake_cluster.filter(pod, "n1"))["NodeNames"][0]) == ""
    assert not any(nominated(fake_cluster, *(pod["metadata"]["name"] for pod in queue)).values())


async def test_a_promise_never_keeps_another_pod_off_and_is_taken_back(fake_cluster: FakeCluster) -> None:
    """A pod that comes later takes the promised card; bind decides by the ledger, and the nomination is removed."""
    fake_cluster.node("n1", 16, 16, 16)
    amounts(fake_cluster, "n1")
    queue = await planning(fake_cluster, 12)
    for number in range(3):
        stranger = fake_cluster.pod(f"stranger{number}", 16)
        answer = await fake_cluster.filter(stranger, "n1")
        assert answer["NodeNames"] == ["n1"]
        assert await fake_cluster.bind(stranger, "n1") == ""
    assert await fake_cluster.used() == {"n1": [16, 16, 16]}
    everything = [pod["metadata"]["name"] for pod in queue]
    await fake_cluster.until(lambda: not any(nominated(fake_cluster, *everything).values()), "no node is nominated")
    refused = await fake_cluster.filter(queue[8], "n1")
    assert refused["NodeNames"] == []
    assert "n1" in refused["FailedNodes"]
    assert "Insufficient GPU Memory" in await fake_cluster.bind(queue[8], "n1")
    assert await fake_cluster.used() == {"n1": [16, 16, 16]}
    assert (await outcomes(fake_cluster))["withdrawn"] >= 1


async def test_a_cordoned_node_loses_its_nominations(fake_cluster: FakeCluster) -> None:
    fake_cluster.node("n1", 16, 16, 16)
    amounts(fake_cluster, "n1")
    queue = await planning(fake_cluster, 12)
    fake_cluster.api.store.patch("nodes", "n1", {"spec": {"unschedulable": True}})
    names = [pod["metadata"]["name"] for pod in queue]
    await fake_cluster.until(lambda: not any(nominated(fake_cluster, *names).values()), "no node is nominated")


@pytest.mark.parametrize("status", [403, 500, 503])
async def test_the_extender_serves_while_nominations_are_refused(fake_cluster: FakeCluster, status: int) -> None:
    fake_cluster.node("n1", 16, 16, 16)
    amounts(fake_cluster, "n1")
    await fake_cluster.start_extender(*PROMISES)  # its start changes the status of the pods that it finds
    queue = [fake_cluster.pod(f"p{number:02d}", 4) for number in range(12)]
    paths = [f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/status" for pod in queue]
    faults = [fake_cluster.api.faults.answer(status, method="PATCH", path=path, times=10**6) for path in paths]

    async def tried() -> bool:
        await fake_cluster.filter(queue[0], "n1")
        return any(fault.hits for fault in faults)

    begun_at = time.monotonic()
    await fake_cluster.until(tried, "a nomination was refused")
    for pod in queue:
        assert (await fake_cluster.filter(pod, "n1"))["NodeNames"] == ["n1"]
        assert await fake_cluster.bind(pod, "n1") == ""
    assert await fake_cluster.used() == {"n1": [16, 16, 16]}
    assert fake_cluster.extender is not None
    most = 2 + math.log2(time.monotonic() - begun_at + 1)  # it rests 1, 2, 4 … seconds
    assert fake_cluster.extender.log.read_text().count("promise pod=") <= most


async def test_a_pod_bound_while_its_nomination_is_on_its_way_keeps_one_card(fake_cluster: FakeCluster) -> None:
    """The nomination names the pod's version: after the bind the API server refuses it."""
    fake_cluster.node("n1", *[16] * 16)
    amounts(fake_cluster, "n1")
    queue = await planning(fake_cluster, 48)
    errors = await asyncio.gather(*(fake_cluster.bind(pod, "n1") for pod in queue))
    assert errors == [""] * len(queue)
    assert await fake_cluster.used() == {"n1": [16] * 12 + [0] * 4}
    assert not any(nominated(fake_cluster, *(pod["metadata"]["name"] for pod in queue)).values())
