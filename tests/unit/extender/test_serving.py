"""The extender process: a task that ends ends the process; the limits of connections."""

import asyncio
import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from accelshare.extender.feed import Feed
from accelshare.extender.requeue import Requeue
from accelshare.extender.serving import OWN_FILES, ConnectionLimits, ExtenderSettings, connection_limits, serve
from accelshare.testing.api_server import FakeApiServer
from accelshare.vendors.catalog import load
from cluster.https import free_port

LIMIT_S = 60.0


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    """`serve` configures the garbage collector of its process; the test's process must not change."""
    threshold = gc.get_threshold()
    yield
    gc.enable()
    gc.unfreeze()
    gc.set_threshold(*threshold)


@pytest.mark.parametrize("task", [Feed, Requeue])
async def test_a_task_that_breaks_ends_the_process(task: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kubelet restarts it; without its watches or requeueing it would only seem to work."""

    async def broken(_self: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(task, "run", broken)
    async with FakeApiServer() as api:
        settings = ExtenderSettings("127.0.0.1", free_port(), api.write_kubeconfig(tmp_path / "kubeconfig"))
        with pytest.raises(RuntimeError, match="broken"):
            async with asyncio.timeout(LIMIT_S):
                await serve(settings, load(()))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
@pytest.mark.parametrize(
    ("soft", "hard", "raised", "most"),
    [
        (1024, 1 << 20, 2140, ConnectionLimits(1000, 100)),
        (1 << 20, 1 << 20, 0, ConnectionLimits(1000, 100)),
        (256, 1024, 1024, ConnectionLimits(442, 100)),
        (64, 64, 64, ConnectionLimits(10, 3)),
        (-1, -1, 0, ConnectionLimits(1000, 100)),
    ],
)
def test_every_connection_leaves_a_file_for_its_bind(
    soft: int, hard: int, raised: int, most: ConnectionLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit of open files is raised if allowed; the limits of connections follow from it."""
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _which, limits: new_limits.append(limits))
    new_limits: list[tuple[int, int]] = []
    assert connection_limits() == most
    assert new_limits == ([(raised, hard)] if raised else [])
    if raised:
        assert OWN_FILES + 2 * most.scheduler + most.probes <= raised
    with_others = connection_limits(reserved=10)
    assert with_others.scheduler <= most.scheduler
    if soft >= 0:
        allowed = new_limits[-1][0] if len(new_limits) > bool(raised) else soft
        assert OWN_FILES + 10 + 2 * with_others.scheduler + with_others.probes <= allowed
