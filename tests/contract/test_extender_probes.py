"""The plain-HTTP probe port beside a port that requires client certificates: only health and metrics."""

import socket
import ssl
from pathlib import Path

import aiohttp
import pytest

from cluster.certificates import Authority
from cluster.https import free_port
from tests.contract.fake_cluster import FakeCluster


async def get(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.request(method, f"http://127.0.0.1:{port}{path}") as answer:
        return answer.status, await answer.text()


async def test_kubelet_and_prometheus_need_no_certificate_there(fake_cluster: FakeCluster, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")
    certificate, key = authority.serving_certificate("extender")
    fake_cluster.scheme, fake_cluster.tls = "https", ssl.create_default_context(cafile=str(authority.file))
    fake_cluster.tls.load_cert_chain(*authority.client_certificate("kube-scheduler"))
    fake_cluster.node("n1", 16)
    port = free_port()
    process = await fake_cluster.start_extender(
        f"--tls-cert={certificate}", f"--tls-key={key}", f"--client-ca={authority.file}", f"--probe-port={port}"
    )
    assert await get(port, "/healthz") == (200, "ok")
    assert await get(port, "/livez") == (200, "ok")
    assert await get(port, "/readyz") == (200, "ok")
    assert "accelshare_ready 1.0" in (await get(port, "/metrics"))[1]
    for path in ("/accelshare/inspect", "/accelshare/bind", "/version", "/"):
        status, body = await get(port, path, "POST")
        assert (status, "this port has /healthz" in body) == (404, True)
    stranger = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(authority.file)))
    async with aiohttp.ClientSession(connector=stranger) as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"https://127.0.0.1:{fake_cluster.port}/healthz")
    process.stop()
    assert process.exit_code == 0


async def test_a_probe_port_in_use_is_an_error(fake_cluster: FakeCluster) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        extender = fake_cluster.begin_extender(f"--probe-port={port}")
        await fake_cluster.until(lambda: not extender.running, "the extender has ended")
    assert extender.exit_code == 1
    assert f"cannot listen on 127.0.0.1:{port}" in extender.last_lines()
