"""A process of several tasks, none of which may die in silence."""

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from accelshare.extender.feed import Feed
from accelshare.extender.requeue import Requeue
from accelshare.extender.serving import Settings, serve
from accelshare.testing.api_server import FakeApiServer
from accelshare.vendors.catalog import load
from cluster.https import free_port

LIMIT_S = 60.0


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    """A server of its own process tells the collector what to do; this process goes on without it."""
    threshold = gc.get_threshold()
    yield
    gc.enable()
    gc.unfreeze()
    gc.set_threshold(*threshold)


@pytest.mark.parametrize("task", [Feed, Requeue])
async def test_a_task_that_breaks_ends_the_process(task: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kubelet starts it anew; without pods being told or woken it would only look alive."""

    async def broken(_self: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(task, "run", broken)
    async with FakeApiServer() as api:
        settings = Settings("127.0.0.1", free_port(), api.write_kubeconfig(tmp_path / "kubeconfig"))
        with pytest.raises(RuntimeError, match="broken"):
            async with asyncio.timeout(LIMIT_S):
                await serve(settings, load(()))
