"""A bind that the API server carries out late, after the extender that sent it has ended: no card is given twice."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.holding_proxy import HoldingProxy, open_proxy
from tests.e2e.house import House, Object

pytestmark = pytest.mark.real

MEMORY = "enflame.com/gcu-memory"
SIZE = 8
BINDINGS = "POST .*/binding$"


@pytest.fixture
async def proxy(house: House) -> AsyncIterator[HoldingProxy]:
    """Between the extender and the API server, with the extender's rights."""
    tls = ssl.create_default_context(cafile=str(house.plane.ca_file))
    tls.load_cert_chain(*house.plane.client_certificate("accelshare-extender"))
    async with open_proxy(house.plane.url, tls) as opened:
        yield opened


async def one_card(house: House) -> None:
    entry = {"index": 0, "id": "GCU-0", "size": SIZE}
    await house.node("n1", {MEMORY: SIZE, "enflame.com/gcu-count": 1}, inventory={"enflame": {"cards": [entry]}})


async def start(house: House, kubeconfig: Path) -> None:
    await house.start_extender(f"--kubeconfig={kubeconfig}")


async def bind(house: House, pod: Object) -> str:
    meta = pod["metadata"]
    body = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": "n1"}
    async with aiohttp.ClientSession() as session, session.post(f"{house.extender_url}/accelshare/bind", json=body) as answer:
        return str((await answer.json(content_type=None))["Error"])


async def held_units(house: House) -> int:
    """What the pods on the node ask together."""
    on_node = [pod for pod in (await house.pods()).values() if pod["spec"].get("nodeName")]
    return sum(int(pod["spec"]["containers"][0]["resources"]["limits"][MEMORY]) for pod in on_node)


@pytest.mark.parametrize("ended_by", ["SIGKILL", "SIGTERM"])
async def test_a_late_bind_of_an_extender_that_ended_is_refused(
    house: House, proxy: HoldingProxy, tmp_path: Path, ended_by: str
) -> None:
    """Its POST is on its way when it ends; the next extender gives the card to another pod; then the POST arrives."""
    kubeconfig = proxy.write_kubeconfig(tmp_path / "held.kubeconfig")
    await one_card(house)
    first = await house.pod("first", {MEMORY: SIZE})
    await start(house, kubeconfig)
    proxy.hold(BINDINGS)
    binding = asyncio.ensure_future(bind(house, first))
    await house.until(lambda: proxy.held, "the Binding is on its way")
    assert house.extender is not None
    if ended_by == "SIGKILL":
        house.extender.kill()
    else:
        house.extender.terminate()
    await house.until(lambda: house.extender is not None and not house.extender.running, "the extender has ended")
    await asyncio.gather(binding, return_exceptions=True)
    proxy.hold("")
    second = await house.pod("second", {MEMORY: SIZE})
    await start(house, kubeconfig)
    assert await bind(house, second) == ""
    answers = await proxy.release()
    assert answers
    assert set(answers) == {409}
    assert await held_units(house) == SIZE


async def test_sigterm_waits_until_no_bind_is_in_doubt(house: House, proxy: HoldingProxy, tmp_path: Path) -> None:
    """While the API server does not answer, the extender stays; once it does, the bind is settled and the extender ends."""
    await one_card(house)
    first = await house.pod("first", {MEMORY: SIZE})
    await start(house, proxy.write_kubeconfig(tmp_path / "held.kubeconfig"))
    proxy.hold("(POST|PATCH|GET) .*/pods/first")
    assert await bind(house, first) != ""
    extender = house.extender
    assert extender is not None
    extender.terminate()
    await house.until(lambda: "binds_in_doubt=1" in extender.last_lines(), "it says for what it waits")
    assert extender.running
    proxy.hold("")
    await house.until(lambda: not extender.running, "it has ended")
    assert extender.exit_code == 0
    assert "outcome=not-bound" in extender.last_lines()
    assert set(await proxy.release()) <= {200, 409}
    assert await held_units(house) == 0
