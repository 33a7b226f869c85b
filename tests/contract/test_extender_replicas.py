"""Several extenders and one Lease: one decides, the others stand by and take over."""

import asyncio
import json
import re
import signal
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from accelshare.extender.fence import CONDITION
from accelshare.kube.election import IN_FLIGHT, SETTLED
from tests.contract.fake_cluster import FakeCluster
from tests.contract.replicas import FLAGS, NAME, NAMESPACE, Replica, Replicas

LEASES = "/leases/"
WRITES = ("POST", "PATCH", "PUT", "DELETE")


@pytest.fixture
async def replicas(fake_cluster: FakeCluster) -> AsyncIterator[Replicas]:
    """A cluster with one node of one card, and the extenders' Service. The test starts the extenders."""
    fake_cluster.node("n1", 16)
    opened = Replicas(fake_cluster)
    opened.create_service()
    try:
        yield opened
    finally:
        opened.stop()


def lease(replicas: Replicas) -> dict[str, object]:
    stored = replicas.cluster.api.store.get("leases", NAME, namespace=NAMESPACE)
    spec: dict[str, object] = json.loads(stored.item)["spec"]
    return spec


def settled(replicas: Replicas) -> bool:
    """Whether the one that released the Lease says that all of its binds have a response."""
    stored = json.loads(replicas.cluster.api.store.get("leases", NAME, namespace=NAMESPACE).item)
    note = stored["metadata"].get("annotations", {}).get(SETTLED)
    return bool(note == str(stored["spec"]["leaseTransitions"]))


async def test_one_decides_and_the_other_is_a_ready_standby(replicas: Replicas) -> None:
    first = await replicas.start("first")
    assert await replicas.holder() is first
    second = await replicas.start("second")
    assert await replicas.holder() is first
    assert str(lease(replicas)["holderIdentity"]).startswith("first_")
    pod = replicas.cluster.pod("a", 4)

    async def decides_alone() -> bool:  # not while a renewal is late, as on a busy machine
        answer, metrics = (await first.filter(pod, "n1"))[0], [(await each.get("/metrics"))[1] for each in (first, second)]
        names = ("accelshare_extender_leader", "accelshare_ready")
        values = [[re.search(rf"^{name} (\S+)", text, re.M)[1] for name in names] for text in metrics]  # type: ignore[index]
        shown = ["accelshare_card" in text for text in metrics]
        return bool(answer["NodeNames"] == ["n1"] and values == [["1.0"] * 2, ["0.0"] * 2] and shown == [True, False])

    await replicas.until(decides_alone, "the first one decides, and says so")
    assert "standby" in (await second.get("/readyz"))[1]


async def test_the_service_gets_the_address_when_kubelet_has_reported_it(replicas: Replicas) -> None:
    """The first extender of a cluster decides before kubelet has written the addresses of its pod."""
    first = await replicas.start("first", reported=False)
    assert await replicas.holder() is first
    await replicas.report_address("first", first.address)

    async def led() -> bool:
        stored = replicas.cluster.api.store.list("endpointslices", namespace=NAMESPACE)
        return bool(stored.versions) and replicas.endpoints() == [first.address]

    await replicas.until(led, "the Service leads to it")


async def test_a_standby_refuses_every_call_and_closes_the_connection(replicas: Replicas) -> None:
    """kube-scheduler must not keep a connection to an extender that does not decide."""
    await replicas.start("first")
    await replicas.holder()
    standby = await replicas.start("second")
    pod = replicas.cluster.pod("a", 4)
    answer, headers = await standby.filter(pod, "n1")
    assert "does not hold the lease; first_" in answer["Error"]
    assert headers["Connection"] == "close"
    assert "does not hold the lease" in await standby.bind(pod, "n1")
    answer, headers = await standby.post("prioritize", {"Pod": pod, "NodeNames": ["n1"]})
    assert "does not hold the lease" in answer["error"]
    assert headers["Connection"] == "close"


async def test_a_standby_writes_nothing(replicas: Replicas) -> None:
    """No Event, no touch, no fence; and what was wrong meanwhile is reported when it takes over."""
    first = await replicas.start("first")
    await replicas.holder()
    second = await replicas.start("second")
    first.pause()
    replicas.cluster.api.faults.answer(500, path=LEASES, times=10**6)  # it stays a standby, however long this takes
    store = replicas.cluster.api.store
    writes = [replicas.cluster.api.faults.delay(0.0, path="^(?!.*/leases)", method=method, times=10**6) for method in WRITES]
    created_at = time.monotonic()
    replicas.cluster.pod("wrong", 4, annotations={"accelshare.io/card-count": "none"})
    await replicas.until(lambda: _has_seen(second, since=created_at), "the standby has seen the pod")
    assert not store.list("events").versions
    assert [each.hits for each in writes] == [0] * len(WRITES)
    replicas.cluster.api.faults.clear()
    await replicas.until(second.decides, "the standby has taken over")
    await replicas.until(lambda: len(store.list("events").versions) > 0, "the pod's mistake is an Event")


async def _has_seen(replica: Replica, *, since: float) -> bool:
    """Whether its watch of pods has shown a change since this time."""
    asked_at = time.monotonic()
    silent = re.search(r"^accelshare_watch_silent_seconds\{what=\"pods\"\} (\S+)", (await replica.get("/metrics"))[1], re.M)
    return silent is not None and float(silent[1]) < asked_at - since


@pytest.mark.parametrize("ended_by", [signal.SIGKILL, signal.SIGTERM])
async def test_the_standby_takes_over_and_the_service_leads_to_it(replicas: Replicas, ended_by: signal.Signals) -> None:
    first = await replicas.start("first")
    assert await replicas.holder() is first
    second = await replicas.start("second")
    await replicas.until(lambda: replicas.endpoints() == [first.address], "the Service leads to the first")
    held = replicas.cluster.pod("held", 12)
    assert await first.bind_as_holder(held, "n1") == ""
    if ended_by == signal.SIGKILL:
        first.process.kill()
    else:
        first.process.terminate()
    await replicas.until(second.decides, "the second decides")
    await replicas.until(lambda: replicas.endpoints() == [second.address], "the Service leads to the second")
    assert "Insufficient" in await second.bind_as_holder(replicas.cluster.pod("large", 12), "n1")
    assert await second.bind_as_holder(replicas.cluster.pod("small", 4), "n1") == ""
    assert lease(replicas)["leaseTransitions"] == 1
    if ended_by == signal.SIGTERM:
        await replicas.until(lambda: not first.process.running, "the first has ended")
        assert first.process.exit_code == 0
        assert replicas.endpoints() == [second.address]


async def test_the_last_extender_leaves_no_address(replicas: Replicas) -> None:
    """Calls to the Service are then refused at once instead of waiting for a dead address."""
    first = await replicas.start("first")
    await replicas.until(lambda: _published(replicas), "the Service leads to it")
    first.process.terminate()
    await replicas.until(lambda: not first.process.running, "it has ended")
    assert replicas.endpoints() == []
    assert lease(replicas)["holderIdentity"] == ""
    assert settled(replicas)


async def test_a_holder_that_ends_before_it_has_fenced_every_pod_leaves_that_to_the_next(replicas: Replicas) -> None:
    """A Binding of the holder before it may still be on its way."""
    replicas.cluster.pod("pending", 4)
    fault = replicas.cluster.api.faults.answer(500, method="PATCH", path="/default/pods/pending/status", times=10**6)
    first = await replicas.start("first")
    await replicas.until(lambda: fault.hits > 0, "it tries to fence the pod")
    assert not await first.decides()
    first.process.terminate()
    await replicas.until(lambda: not first.process.running, "it has ended")
    assert lease(replicas)["holderIdentity"] == ""
    assert not settled(replicas)


def fenced(replicas: Replicas, *names: str) -> list[str]:
    """Which of these pods were changed so that earlier Bindings are refused."""
    pods = {name: replicas.cluster.read(name) for name in names}
    types = {name: [each["type"] for each in pod.get("status", {}).get("conditions", ())] for name, pod in pods.items()}
    return [name for name in names if CONDITION in types[name]]


async def test_only_the_pods_whose_binding_is_in_flight_are_fenced(replicas: Replicas) -> None:
    """The holder is killed before a Binding has its response. Other pods wait, and they delay nothing."""
    first = await replicas.start("first")
    assert await replicas.holder() is first
    second = await replicas.start("second")
    sent, other = replicas.cluster.pod("sent", 12), replicas.cluster.pod("other", 12)
    late = replicas.cluster.api.faults.delay(3600.0, method="POST", path="/pods/sent/binding")
    binding = asyncio.ensure_future(first.bind_as_holder(sent, "n1"))
    await replicas.until(lambda: late.hits > 0, "the Binding is in flight")
    stored = json.loads(replicas.cluster.api.store.get("leases", NAME, namespace=NAMESPACE).item)
    assert stored["metadata"]["annotations"][IN_FLIGHT] == f"0 {sent['metadata']['uid']}"
    first.process.kill()
    await asyncio.gather(binding, return_exceptions=True)
    await replicas.until(second.decides, "the second decides")
    assert fenced(replicas, "sent", "other") == ["sent"]
    assert await second.bind_as_holder(other, "n1") == ""


async def test_after_a_holder_of_a_version_that_names_no_pods_every_pending_pod_is_fenced(replicas: Replicas) -> None:
    first = await replicas.start("first")
    assert await replicas.holder() is first
    second = await replicas.start("second")
    replicas.cluster.pod("pending", 4)
    first.process.kill()
    notes = {"metadata": {"annotations": {IN_FLIGHT: None}}}
    replicas.cluster.api.store.patch("leases", NAME, notes, namespace=NAMESPACE)
    await replicas.until(second.decides, "the second decides")
    assert fenced(replicas, "pending") == ["pending"]


def _published(replicas: Replicas) -> bool:
    return bool(replicas.cluster.api.store.list("endpointslices").versions) and bool(replicas.endpoints())


async def test_a_holder_that_cannot_renew_stops_deciding_and_continues_when_it_can(replicas: Replicas) -> None:
    """Nobody else took the Lease, so it need not start again."""
    first = await replicas.start("first")
    await replicas.holder()
    pod = replicas.cluster.pod("a", 4)
    replicas.cluster.api.faults.answer(500, path=LEASES, times=10**6)

    async def refuses() -> bool:
        return "does not hold the lease" in (await first.filter(pod, "n1"))[0]["Error"]

    await replicas.until(refuses, "it refuses calls")
    assert "does not hold the lease" in await first.bind(pod, "n1")
    assert "nodeName" not in replicas.cluster.read("a")["spec"]
    replicas.cluster.api.faults.clear()
    await replicas.until(first.decides, "it decides again")
    assert await first.bind_as_holder(pod, "n1") == ""
    assert lease(replicas)["leaseTransitions"] == 0


async def test_a_paused_holder_that_wakes_after_another_took_over_ends(replicas: Replicas) -> None:
    """Its process ends with an error, so that kubelet starts a new one; the Service stays with the new holder."""
    first = await replicas.start("first")
    await replicas.holder()
    second = await replicas.start("second")
    first.pause()
    await replicas.until(second.decides, "the second decides")
    await replicas.until(lambda: replicas.endpoints() == [second.address], "the Service leads to the second")
    first.resume()
    await replicas.until(lambda: not first.process.running, "the first has ended")
    assert first.process.exit_code == 1
    assert "was lost to second_" in first.process.last_lines()
    assert replicas.endpoints() == [second.address]
    assert await second.bind_as_holder(replicas.cluster.pod("a", 4), "n1") == ""


async def test_a_bind_that_the_earlier_holder_did_unseen_is_known_before_the_first_decision(replicas: Replicas) -> None:
    """The standby's watch is behind; it waits for it to show the changes before its own."""
    first = await replicas.start("first")
    await replicas.holder()
    second = await replicas.start("second")
    replicas.cluster.api.faults.delay(2.0, method="GET", path=r"/pods\?.*watch=", times=10**6)
    replicas.cluster.api.end_watches()
    large = replicas.cluster.pod("large", 12)
    assert await first.bind_as_holder(large, "n1") == ""
    first.process.terminate()
    await replicas.until(second.decides, "the second decides")
    assert "Insufficient" in await second.bind_as_holder(replicas.cluster.pod("other", 12), "n1")


async def test_an_extender_without_a_lease_is_waited_for(replicas: Replicas) -> None:
    """During an upgrade from a version without leases, the old extender decides until its pod is gone."""
    await replicas.create_pod("old", "10.0.0.99", "--listen=:12345")
    first = await replicas.start("first")
    await replicas.until(lambda: "waiting_for=old" in first.process.last_lines(), "it says for what it waits")
    assert await first.is_ready()
    assert not await first.decides()
    replicas.cluster.api.store.delete("pods", "old", namespace=NAMESPACE, options={"gracePeriodSeconds": 0})
    await replicas.until(first.decides, "it decides")


async def test_what_another_program_does_to_the_endpoints_is_put_right(replicas: Replicas) -> None:
    first = await replicas.start("first")
    await replicas.until(lambda: _published(replicas), "the Service leads to it")
    replicas.cluster.api.store.patch("endpointslices", f"{NAME}-ipv4", {"endpoints": []}, namespace=NAMESPACE)
    await replicas.until(lambda: replicas.endpoints() == [first.address], "the Service leads to it again")


def endpoint_slice(replicas: Replicas) -> Any:
    return json.loads(replicas.cluster.api.store.get("endpointslices", f"{NAME}-ipv4", namespace=NAMESPACE).item)


async def test_endpoints_that_no_longer_belong_to_the_service_do_so_again(replicas: Replicas) -> None:
    """kube-proxy finds them by this label."""
    await replicas.start("first")
    await replicas.until(lambda: _published(replicas), "the Service leads to it")
    label = "kubernetes.io/service-name"
    replicas.cluster.api.store.patch(
        "endpointslices", f"{NAME}-ipv4", {"metadata": {"labels": {label: None, "of": "others"}}}, namespace=NAMESPACE
    )
    await replicas.until(lambda: endpoint_slice(replicas)["metadata"]["labels"].get(label) == NAME, "it has the label again")
    assert endpoint_slice(replicas)["metadata"]["labels"]["of"] == "others"


async def test_the_endpoints_are_deleted_with_the_pod_of_the_holder(replicas: Replicas) -> None:
    """With one extender instead of several, none comes after the last holder that could remove its address."""

    def owners() -> list[tuple[str, str]]:
        return [(each["kind"], each["name"]) for each in endpoint_slice(replicas)["metadata"]["ownerReferences"]]

    first = await replicas.start("first")
    await replicas.until(lambda: _published(replicas), "the Service leads to it")
    assert owners() == [("Pod", "first")]
    second = await replicas.start("second")
    # As an earlier version has left it.
    service = {"apiVersion": "v1", "kind": "Service", "name": NAME, "uid": "u"}
    first.pause()
    replicas.cluster.api.store.patch(
        "endpointslices", f"{NAME}-ipv4", {"metadata": {"ownerReferences": [service]}}, namespace=NAMESPACE
    )
    await replicas.until(lambda: replicas.endpoints() == [second.address], "the Service leads to the second")
    await replicas.until(lambda: owners() == [("Pod", "second")], "they belong to the second's pod")


async def test_who_may_not_change_the_owner_of_the_endpoints_still_leads_the_service(replicas: Replicas) -> None:
    """Some clusters let only those change an owner who may delete the object."""
    first = await replicas.start("first")
    await replicas.until(lambda: _published(replicas), "the Service leads to it")
    second = await replicas.start("second")
    refused = replicas.cluster.api.faults.answer(403, method="PATCH", path="/endpointslices/", times=1)
    first.process.kill()
    await replicas.until(lambda: replicas.endpoints() == [second.address], "the Service leads to the second")
    assert refused.hits == 1
    assert endpoint_slice(replicas)["metadata"]["ownerReferences"][0]["name"] == "first"


def test_flags_that_belong_together_are_asked_for(fake_cluster: FakeCluster) -> None:
    for flags, word in (([FLAGS[0]], "--lease needs --pod"), ([FLAGS[1]], "need --lease"), (["--pod=a"], "not NAMESPACE/NAME")):
        process = fake_cluster.begin_extender(*flags)
        process.wait_ended(print, lambda: "")
        assert word in process.last_lines()
