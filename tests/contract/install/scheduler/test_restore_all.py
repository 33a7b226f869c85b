"""`manage --restore-all` with an API server that is unreachable for a while."""

import asyncio
import json

import pytest

from accelshare.install.errors import InstallError
from accelshare.install.scheduler.manager import state_configmap
from accelshare.kube.client import Client
from accelshare.kube.config import Cluster
from accelshare.kube.leases import Lease
from accelshare.kube.named_data import Place
from accelshare.testing.api_server import FakeApiServer, Fault

PLACE = Place("ConfigMap", "kube-system", "state")
FOR_LONG = 15  # answers; more than the client asks again by itself


async def put_state(client: Client) -> None:
    content = {"metadata": {"name": PLACE.name}, "data": {"wanted": "applied", "node.cp-1": "applied"}}
    await client.request("POST", PLACE.collection, body=json.dumps(content).encode())


async def until_used(fault: Fault) -> None:
    while fault.hits < fault.times:
        await asyncio.sleep(0.02)


async def test_an_unreachable_api_server_is_waited_for() -> None:
    """The managers wait for it too; whoever waits for them must not give up first."""
    async with FakeApiServer() as api, Client(Cluster(api.url), user_agent="tests") as client:
        await put_state(client)
        lines: list[str] = []
        lease = Lease(client, PLACE.namespace, "state", identity="restore-all")
        waiting = asyncio.create_task(state_configmap.restore_all(client, PLACE, lease, limit_s=60, say=lines.append))
        while not lines:
            await asyncio.sleep(0.02)
        away = api.faults.answer(503, method="GET", path="/configmaps/state$", times=FOR_LONG)
        await asyncio.wait({waiting, asyncio.create_task(until_used(away))}, return_when=asyncio.FIRST_COMPLETED)
        await state_configmap.write_state(client, PLACE, "cp-1", state_configmap.RESTORED)
        await waiting
        assert lines == ["cp-1: waiting", "cp-1: restored"]


async def test_after_the_limit_the_error_of_the_api_server_is_named() -> None:
    async with FakeApiServer() as api, Client(Cluster(api.url), user_agent="tests") as client:
        await put_state(client)

        def fall_silent(_line: str) -> None:
            api.faults.answer(500, method="GET", path="/configmaps/state$", times=10_000)

        lease = Lease(client, PLACE.namespace, "state", identity="restore-all")
        with pytest.raises(InstallError, match=r"not restored within 1 s on cp-1: .*500 InternalError"):
            await state_configmap.restore_all(client, PLACE, lease, limit_s=1, say=fall_silent)
