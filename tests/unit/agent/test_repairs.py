"""Writes about pods that were served through NRI."""

import asyncio
from typing import cast

import pytest

from accelshare.agent.repairs import Repairs
from accelshare.kube.client import Client
from accelshare.kube.errors import Forbidden
from accelshare.kube.events import Events
from accelshare.ledger.facts import PodSeen
from accelshare.ledger.nouns import Slice
from accelshare.vendors.catalog import load
from accelshare.wire.node_pods import NodePod

PROFILES = {profile.name: profile for profile in load()}
KIND = next(name for name, profile in PROFILES.items() if profile.annotations.assigned is not None)


def pod(name: str) -> NodePod:
    seen = PodSeen(name, "default", name, request=(), slices=(Slice(KIND, 0, 2),))
    return NodePod(seen, (), {}, "Running", terminating=False)


class Server:
    """A policy denies writes on one pod."""

    def __init__(self) -> None:
        self.written = asyncio.Event()

    async def request(self, method: str, path: str, **_: object) -> bytes:
        if path.endswith("/denied"):
            raise Forbidden(403, "Forbidden", "a policy does not allow it", request=f"{method} {path}")
        self.written.set()
        return b"{}"


async def test_a_pod_that_may_not_be_written_delays_no_other() -> None:
    server = Server()
    repairs = Repairs(cast("Client", server), cast("Events", server), PROFILES, on_replaced=lambda: None)
    for name in ("denied", "other"):
        repairs.flag_assigned(pod(name))
    running = asyncio.create_task(repairs.run())
    await asyncio.wait_for(server.written.wait(), 60)
    running.cancel()


async def test_denied_writes_are_tried_less_and_less_often(caplog: pytest.LogCaptureFixture) -> None:
    """Forty pods that may not be written on: a write each at first, at most one a minute each later, one log line each."""
    now, requests = 0.0, 0

    class Denies:
        async def request(self, method: str, path: str, **_: object) -> bytes:
            nonlocal requests
            requests += 1
            raise Forbidden(403, "Forbidden", "a policy does not allow it", request=f"{method} {path}")

    denies = Denies()
    repairs = Repairs(cast("Client", denies), cast("Events", denies), PROFILES, on_replaced=lambda: None, clock=lambda: now)
    for number in range(40):
        repairs.flag_assigned(pod(f"p{number}"))
    with caplog.at_level("WARNING"):
        await repairs.write()
        assert requests == 40
        for _ in range(300):
            now += 1
            await repairs.write()
        requests = 0
        for _ in range(600):
            now += 1
            await repairs.write()
    assert requests <= 40 * 600 / 30
    assert len([line for line in caplog.messages if "outcome=failed" in line]) == 40
