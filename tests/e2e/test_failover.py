"""Two extenders on a real control plane with real kube-schedulers: kills, pauses and stops of the one that decides.

The times that the runs measure are printed. The limits of the assertions are generous, because test machines are busy.
"""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest

from accelshare.extender.fence import CONDITION
from accelshare.kube.election import IN_FLIGHT
from cluster.components import extender_entry
from cluster.process import Process, last_lines
from tests.e2e.extender_replicas import LEASE, Replica, Replicas, open_replicas, stream_of_pods
from tests.e2e.holding_proxy import HoldingProxy, open_proxy
from tests.e2e.oversell_watch import watch_for_oversell
from tests.e2e.scheduling_cluster import MANAGED, Object, SchedulingCluster

pytestmark = pytest.mark.real

MEMORY = "enflame.com/gcu-memory"
SIZE = 16
CARDS = 64
PENDING = 200
MANY_PENDING = 2000
BUSY_S = 30.0  # what a busy machine may add to each limit


@pytest.fixture
async def replicas(scheduling_cluster: SchedulingCluster, request: pytest.FixtureRequest) -> AsyncIterator[Replicas]:
    async with open_replicas(scheduling_cluster, http2=getattr(request, "param", "") == "HTTP/2") as opened:
        yield opened


both_protocols = pytest.mark.parametrize("replicas", ["HTTP/1.1", "HTTP/2"], indirect=True)


async def one_node(cluster: SchedulingCluster, name: str = "n1", *, cards: int = CARDS) -> None:
    entries = [{"index": index, "id": f"{name}-{index}", "size": SIZE} for index in range(cards)]
    amounts = {MEMORY: cards * SIZE, "enflame.com/gcu-count": cards}
    await cluster.node(name, amounts, inventory={"enflame": {"cards": entries}})


async def two_extenders(replicas: Replicas) -> tuple[Replica, Replica]:
    """The holder and the standby."""
    first = await replicas.start("first")
    assert await replicas.holder() is first
    return first, await replicas.start("second")


@both_protocols
@pytest.mark.parametrize(("end", "within_s"), [("SIGKILL", 5.0), ("SIGTERM", 2.0)])
async def test_the_standby_binds_soon_after_the_holder_ended(replicas: Replicas, end: str, within_s: float) -> None:
    cluster = replicas.cluster
    await one_node(cluster)
    first, second = await two_extenders(replicas)
    cluster.start_scheduler(**replicas.entry)
    async with (
        watch_for_oversell(cluster.client, size=SIZE) as watch,
        stream_of_pods(cluster, {MEMORY: 1}, every_s=0.1) as stream,
    ):
        await replicas.until(lambda: len(stream.bound) >= 20, "pods are bound")
        ended_at = time.monotonic()
        if end == "SIGKILL":
            first.process.kill()
        else:
            first.process.terminate()
        await replicas.until(second.decides, "the second decides")
        decided_s = time.monotonic() - ended_at
        await replicas.until(lambda: stream.next_bind_after(replicas.switch.changes[-1][0]), "a pod is bound by the second")
        created = len(stream.created)
        await replicas.until(lambda: len(stream.bound) >= created, "every pod is bound")
        gap_s = stream.longest_gap(ended_at - 1.0)
        print(f"{end}: the second decided after {decided_s:.2f} s; the longest time without a bind was {gap_s:.2f} s")
        assert replicas.switch.changes[-1][1] == second.address
        assert watch.wrong == []
    assert gap_s < within_s + BUSY_S


@pytest.fixture
async def proxy(scheduling_cluster: SchedulingCluster) -> AsyncIterator[HoldingProxy]:
    """Between one extender and the API server, with the extender's rights."""
    tls = ssl.create_default_context(cafile=str(scheduling_cluster.plane.ca_file))
    tls.load_cert_chain(*scheduling_cluster.plane.client_certificate("accelshare-extender"))
    async with open_proxy(scheduling_cluster.plane.url, tls) as opened:
        yield opened


async def bind(replica: Replica, pod: Object) -> str:
    meta = pod["metadata"]
    body = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": "n1"}
    url = f"http://127.0.0.1:{replica.port}/accelshare/bind"
    async with aiohttp.ClientSession() as session, session.post(url, json=body) as answer:
        return str((await answer.json(content_type=None))["Error"])


@pytest.mark.parametrize("arrives", ["before it wakes", "after it wakes"])
async def test_a_holder_paused_in_a_bind_cannot_bind_after_another_took_over(
    replicas: Replicas, proxy: HoldingProxy, tmp_path: Path, arrives: str
) -> None:
    """Its POST is on its way when it is paused. The new holder gives the card to another pod. The POST is refused, and the paused
    extender, when it wakes, does not send it again with the pod's newer version."""
    cluster = replicas.cluster
    await one_node(cluster, cards=1)
    first = await replicas.start("first", kubeconfig=proxy.write_kubeconfig(tmp_path / "held.kubeconfig"))
    assert await replicas.holder() is first
    second = await replicas.start("second")
    async with watch_for_oversell(cluster.client, size=SIZE) as watch:
        one, other = [await cluster.pod(name, {MEMORY: SIZE}) for name in ("one", "other")]
        proxy.hold("POST .*/binding$")
        binding = asyncio.ensure_future(bind(first, one))
        await replicas.until(lambda: proxy.held, "the Binding is on its way")
        first.pause()
        await replicas.until(second.decides, "the second decides")
        assert await bind(second, other) == ""
        proxy.hold("")
        if arrives == "before it wakes":
            assert set(await proxy.release()) == {409}
            first.resume()
        else:
            first.resume()
            await replicas.until(lambda: not first.process.running, "the first has ended")
            assert set(await proxy.release()) == {409}
        answer = (await asyncio.gather(binding, return_exceptions=True))[0]
        assert answer != ""
        await replicas.until(lambda: not first.process.running, "the first has ended")
        assert "was lost to second_" in first.process.last_lines()
        pods = await cluster.pods()
        assert "nodeName" not in pods["one"]["spec"]
        assert pods["other"]["spec"]["nodeName"] == "n1"
        assert watch.wrong == []


@both_protocols
async def test_a_connection_to_a_paused_holder_costs_at_most_its_timeout(replicas: Replicas) -> None:
    """The holder's machine dies without closing its connections. Over HTTP/1.1, kube-scheduler keeps at most two idle ones, and a
    call over each of them fails after httpTimeout. The one of HTTP/2 is given up when its ping is not answered, after 6 s with
    the variables that accelshare sets. Then new connections lead to the new holder."""
    cluster = replicas.cluster
    await one_node(cluster)
    first, second = await two_extenders(replicas)
    timeout_s = 5.0
    cluster.start_scheduler(**replicas.entry, httpTimeout=f"{timeout_s:g}s")
    async with (
        watch_for_oversell(cluster.client, size=SIZE) as watch,
        stream_of_pods(cluster, {MEMORY: 1}, every_s=0.2) as stream,
    ):
        await replicas.until(lambda: len(stream.bound) >= 20, "pods are bound")
        paused_at = time.monotonic()
        first.pause()
        await replicas.until(second.decides, "the second decides")
        await replicas.until(lambda: stream.next_bind_after(replicas.switch.changes[-1][0]), "a pod is bound by the second")
        created = len(stream.created)
        await replicas.until(lambda: len(stream.bound) >= created, "every pod is bound")
        gap_s = stream.longest_gap(paused_at - 1.0)
        print(f"paused: the longest time without a bind was {gap_s:.2f} s")
        first.resume()
        await replicas.until(lambda: not first.process.running, "the first has ended")
        assert watch.wrong == []
    assert gap_s < 2 * timeout_s + 5.0 + BUSY_S


@contextlib.asynccontextmanager
async def two_kube_schedulers(replicas: Replicas) -> AsyncIterator[Callable[[], Process | None]]:
    """Two that elect a leader; yields how to find it. One that has ended is started again, as by kubelet: a kube-scheduler that
    could not renew its Lease in time, as on a busy machine, ends itself."""
    plane = replicas.cluster.plane
    times = {"leaseDuration": "15s", "renewDeadline": "10s", "retryPeriod": "1s"}
    entry = extender_entry(replicas.url, MANAGED)
    config = {"percentageOfNodesToScore": 100, "extenders": [entry], "leaderElection": {"leaderElect": True, **times}}
    schedulers = [plane.start_scheduler(config) for _ in range(2)]

    over = asyncio.Event()

    async def restart_ended() -> None:
        while not over.is_set():
            for place, scheduler in enumerate(schedulers):
                if not scheduler.running:
                    schedulers[place] = await asyncio.to_thread(plane.start_scheduler, config)
            await asyncio.sleep(0.2)

    def leader() -> Process | None:
        return next((each for each in schedulers if each.running and "acquired lease" in each.log.read_text()), None)

    restarting = asyncio.create_task(restart_ended())
    try:
        yield leader
    except BaseException:
        print(last_lines(*schedulers))
        raise
    finally:
        over.set()
        await asyncio.wait([restarting])  # never in mid-start: what it starts is stopped below
        for scheduler in schedulers:
            scheduler.stop()


async def test_with_two_kube_schedulers_the_leader_and_the_holder_may_die(replicas: Replicas) -> None:
    cluster = replicas.cluster
    await one_node(cluster)
    first, second = await two_extenders(replicas)
    async with (
        two_kube_schedulers(replicas) as leader,
        watch_for_oversell(cluster.client, size=SIZE) as watch,
        stream_of_pods(cluster, {MEMORY: 1}, every_s=0.2) as stream,
    ):
        await replicas.until(lambda: len(stream.bound) >= 10, "pods are bound")
        leading: Process = await replicas.until(leader, "a kube-scheduler leads")
        moment = time.monotonic()
        first.process.kill()
        leading.kill()
        await replicas.until(second.decides, "the second decides")
        await replicas.until(lambda: stream.next_bind_after(replicas.switch.changes[-1][0]), "a pod is bound by the second")
        created = len(stream.created)
        await replicas.until(lambda: len(stream.bound) >= created, "every pod is bound")
        print(f"two schedulers: next bind after {stream.longest_gap(moment - 1.0):.2f} s")
        assert watch.wrong == []


async def create_pending(cluster: SchedulingCluster, count: int) -> None:
    """Pods that no kube-scheduler looks at yet."""
    gate = asyncio.Semaphore(16)

    async def create(number: int) -> None:
        async with gate:
            await cluster.pod(f"p{number}", {MEMORY: 1})

    await asyncio.gather(*map(create, range(count)))


async def fenced(cluster: SchedulingCluster) -> list[str]:
    """The pods that were changed so that earlier Bindings are refused."""
    pods = (await cluster.pods()).items()
    return [name for name, pod in pods if any(each["type"] == CONDITION for each in pod["status"].get("conditions", ()))]


async def test_after_a_holder_that_named_no_pods_every_pending_pod_is_fenced(
    replicas: Replicas,
) -> None:
    """Its version did not name them on the Lease, so each may have a Binding in flight."""
    cluster = replicas.cluster
    await one_node(cluster, cards=1)
    first, second = await two_extenders(replicas)
    await create_pending(cluster, PENDING)
    killed_at = time.monotonic()
    first.process.kill()
    await cluster.patch(LEASE, {"metadata": {"annotations": {IN_FLIGHT: None}}})
    await replicas.until(second.decides, "the second decides")
    print(f"{PENDING} pending pods, all fenced: the second decided after {time.monotonic() - killed_at:.2f} s")
    assert len(await fenced(cluster)) == PENDING


async def test_the_number_of_pending_pods_does_not_delay_a_takeover(replicas: Replicas) -> None:
    """kube-scheduler is at work on a long queue when the holder is killed."""
    cluster = replicas.cluster
    await one_node(cluster, cards=200)
    first, second = await two_extenders(replicas)
    await create_pending(cluster, MANY_PENDING)
    cluster.start_scheduler(url=replicas.url)
    async with (
        watch_for_oversell(cluster.client, size=SIZE) as watch,
        stream_of_pods(cluster, {MEMORY: 1}, every_s=1.0) as stream,
    ):
        await replicas.until(lambda: len(stream.bound) >= 50, "pods are bound")
        killed_at, bound = time.monotonic(), len(stream.bound)
        first.process.kill()
        await replicas.until(second.decides, "the second decides")
        decided_s = time.monotonic() - killed_at
        await replicas.until(lambda: stream.next_bind_after(killed_at + decided_s), "a pod is bound by the second")
        gap_s = stream.longest_gap(killed_at - 1.0)
        line = next(line for line in second.process.log.read_text().splitlines() if "outcome=taken" in line)
        waiting = MANY_PENDING - bound
        print(f"{waiting} pending pods: the second decided after {decided_s:.2f} s; {gap_s:.2f} s without a bind; {line}")
        assert len(await fenced(cluster)) < MANY_PENDING / 10
        assert watch.wrong == []
    assert gap_s < 5.0 + BUSY_S
