"""A Binding that the API server executes after its extender has ended: no card is allocated twice."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.holding_proxy import HoldingProxy, open_proxy
from tests.e2e.scheduling_cluster import Object, SchedulingCluster

pytestmark = pytest.mark.real

MEMORY = "enflame.com/gcu-memory"
SIZE = 8
BINDINGS = "POST .*/binding$"


@pytest.fixture
async def proxy(scheduling_cluster: SchedulingCluster) -> AsyncIterator[HoldingProxy]:
    """Between the extender and the API server, with the extender's rights."""
    tls = ssl.create_default_context(cafile=str(scheduling_cluster.plane.ca_file))
    tls.load_cert_chain(*scheduling_cluster.plane.client_certificate("accelshare-extender"))
    async with open_proxy(scheduling_cluster.plane.url, tls) as opened:
        yield opened


async def one_card(scheduling_cluster: SchedulingCluster) -> None:
    entry = {"index": 0, "id": "GCU-0", "size": SIZE}
    await scheduling_cluster.node("n1", {MEMORY: SIZE, "enflame.com/gcu-count": 1}, inventory={"enflame": {"cards": [entry]}})


async def start(scheduling_cluster: SchedulingCluster, kubeconfig: Path) -> None:
    await scheduling_cluster.start_extender(f"--kubeconfig={kubeconfig}")


async def bind(scheduling_cluster: SchedulingCluster, pod: Object) -> str:
    meta = pod["metadata"]
    body = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": "n1"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{scheduling_cluster.extender_url}/accelshare/bind", json=body) as answer,
    ):
        return str((await answer.json(content_type=None))["Error"])


async def held_units(scheduling_cluster: SchedulingCluster) -> int:
    """What the pods on the node ask together."""
    on_node = [pod for pod in (await scheduling_cluster.pods()).values() if pod["spec"].get("nodeName")]
    return sum(int(pod["spec"]["containers"][0]["resources"]["limits"][MEMORY]) for pod in on_node)


@pytest.mark.parametrize("ended_by", ["SIGKILL", "SIGTERM"])
async def test_a_late_bind_of_an_extender_that_ended_is_refused(
    scheduling_cluster: SchedulingCluster, proxy: HoldingProxy, tmp_path: Path, ended_by: str
) -> None:
    """Its POST is on its way when it ends; the next extender gives the card to another pod; then the POST arrives."""
    kubeconfig = proxy.write_kubeconfig(tmp_path / "held.kubeconfig")
    await one_card(scheduling_cluster)
    first = await scheduling_cluster.pod("first", {MEMORY: SIZE})
    await start(scheduling_cluster, kubeconfig)
    proxy.hold(BINDINGS)
    binding = asyncio.ensure_future(bind(scheduling_cluster, first))
    await scheduling_cluster.until(lambda: proxy.held, "the Binding is on its way")
    assert scheduling_cluster.extender is not None
    if ended_by == "SIGKILL":
        scheduling_cluster.extender.kill()
    else:
        scheduling_cluster.extender.terminate()
    await scheduling_cluster.until(
        lambda: scheduling_cluster.extender is not None and not scheduling_cluster.extender.running, "the extender has ended"
    )
    await asyncio.gather(binding, return_exceptions=True)
    proxy.hold("")
    second = await scheduling_cluster.pod("second", {MEMORY: SIZE})
    await start(scheduling_cluster, kubeconfig)
    assert await bind(scheduling_cluster, second) == ""
    answers = await proxy.release()
    assert answers
    assert set(answers) == {409}
    assert await held_units(scheduling_cluster) == SIZE


async def test_sigterm_waits_until_no_bind_is_in_doubt(
    scheduling_cluster: SchedulingCluster, proxy: HoldingProxy, tmp_path: Path
) -> None:
    """While the API server does not answer, the extender stays; once it does, the bind is settled and the extender ends."""
    await one_card(scheduling_cluster)
    first = await scheduling_cluster.pod("first", {MEMORY: SIZE})
    await start(scheduling_cluster, proxy.write_kubeconfig(tmp_path / "held.kubeconfig"))
    proxy.hold("(POST|PATCH|GET) .*/pods/first")
    assert await bind(scheduling_cluster, first) != ""
    extender = scheduling_cluster.extender
    assert extender is not None
    extender.terminate()
    await scheduling_cluster.until(lambda: "binds_in_doubt=1" in extender.last_lines(), "it says for what it waits")
    assert extender.running
    proxy.hold("")
    await scheduling_cluster.until(lambda: not extender.running, "it has ended")
    assert extender.exit_code == 0
    assert "outcome=not-bound" in extender.last_lines()
    assert set(await proxy.release()) <= {200, 409}
    assert await held_units(scheduling_cluster) == 0
