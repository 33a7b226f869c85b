"""Probes come to any of the node's addresses."""

import socket

import aiohttp
import pytest

from accelshare.agent import status


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="the kernel has no IPv6")
async def test_by_ipv6_and_by_ipv4() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    served = await status.serve(None, port, {"/readyz": lambda: (200, b"ready")})
    async with served, aiohttp.ClientSession() as session:
        for host in ("127.0.0.1", "[::1]"):
            async with session.get(f"http://{host}:{port}/readyz") as answer:
                assert (answer.status, await answer.text()) == (200, "ready")
