"""What an agent that starts waits for before it decides how cards are delivered."""

import asyncio
import fcntl
from pathlib import Path
from typing import Any, cast

import pytest

from accelshare.agent.discovery.device_inventory import DeviceInventory
from accelshare.agent.nri import delivery as delivery_module
from accelshare.agent.nri.delivery import LOCK, NriDelivery

PARTS = ("mode", "selector", "state", "outcomes", "repairs", "pins", "pods", "leftovers", "limit_review", "updates", "files")
LIMIT_S = 60.0


async def test_nothing_is_decided_while_another_agent_holds_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that was deleted by force still drains. A device plugin that registered now would be remembered by kubelet."""
    monkeypatch.setattr(delivery_module, "CHECK_S", 0.01)
    monkeypatch.setattr(delivery_module, "FIRST_CONTACT_S", 0.05)
    socket = tmp_path / "nri.sock"
    socket.touch()
    parts: dict[str, Any] = dict.fromkeys(PARTS)
    nri = NriDelivery(DeviceInventory(), cast("Any", None), sets_limits=False, socket=socket, **parts)
    with (tmp_path / LOCK).open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        contact = asyncio.create_task(nri.first_contact())
        done, _ = await asyncio.wait([contact], timeout=0.5)
        assert not done
    async with asyncio.timeout(LIMIT_S):
        assert not await contact, "no runtime answers here"
