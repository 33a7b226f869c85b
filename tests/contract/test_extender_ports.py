"""Both ports of the extender under hostile clients: their cost is bounded, and a bind succeeds."""

import asyncio
import contextlib
import socket
import ssl
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest

from accelshare.install.certificates import x509
from cluster.https import free_port
from cluster.process import Process
from tests.contract.fake_cluster import FakeCluster

OPEN_FILES = 64
CROWD = 150
LIMIT_S = 60.0
TRIES = 3


@pytest.fixture
async def ports(fake_cluster: FakeCluster, tmp_path: Path) -> tuple[FakeCluster, int]:
    """An extender with TLS, a probe port and a low limit of open files; and the probe port's number."""
    now, life = datetime.now(UTC), timedelta(hours=1)
    ours = x509.authority("ours", now=now, life=2 * life)
    server = x509.leaf(ours, "server", "extender", names={"127.0.0.1"}, now=now, life=life)
    client = x509.leaf(ours, "client", "kube-scheduler", now=now, life=life)
    for name, text in {"tls.crt": server.certificate, "tls.key": server.key, "ca.crt": ours.certificate}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "client.pem").write_text(client.certificate + client.key)
    context = ssl.create_default_context(cadata=ours.certificate)
    context.load_cert_chain(tmp_path / "client.pem")
    fake_cluster.scheme, fake_cluster.tls = "https", context
    fake_cluster.node("n1", 16)
    probe_port = free_port()
    command = [
        sys.executable,
        "-m",
        "accelshare",
        "extender",
        f"--listen=127.0.0.1:{fake_cluster.port}",
        f"--probe-port={probe_port}",
    ]
    command += [
        f"--kubeconfig={fake_cluster.api.write_kubeconfig(tmp_path / 'kubeconfig')}",
        f"--tls-cert={tmp_path / 'tls.crt'}",
    ]
    command += [f"--tls-key={tmp_path / 'tls.key'}", f"--client-ca={tmp_path / 'ca.crt'}"]
    limited = ["/bin/sh", "-c", f'ulimit -n {OPEN_FILES}; exec "$@"', "sh", *command]
    fake_cluster.extender = Process("extender", limited, tmp_path / "extender.log")
    await fake_cluster.until(fake_cluster.is_ready, "the extender is ready")
    return fake_cluster, probe_port


async def fresh_bind(fake_cluster: FakeCluster, name: str) -> str:
    """A bind on a new connection, as kube-scheduler does after a restart; like it, this retries a dropped connection."""
    meta = fake_cluster.pod(name, 1)["metadata"]
    body = {"PodName": name, "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": "n1"}
    url = f"https://127.0.0.1:{fake_cluster.port}/accelshare/bind"
    timeout = aiohttp.ClientTimeout(total=LIMIT_S)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True), timeout=timeout) as session:
        for _ in range(TRIES):
            with contextlib.suppress(aiohttp.ClientConnectionError):
                async with session.post(url, json=body, ssl=fake_cluster.tls) as answer:
                    return str((await answer.json(content_type=None))["Error"])
    return f"{TRIES} connections were dropped"


async def health(port: int) -> int:
    timeout = aiohttp.ClientTimeout(total=LIMIT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session, session.get(f"http://127.0.0.1:{port}/livez") as answer:
        return answer.status


@contextlib.contextmanager
def crowd(*ports: int) -> Iterator[None]:
    """Many silent connections, half of them to each port."""
    with contextlib.ExitStack() as callers:
        for number in range(CROWD):
            callers.enter_context(socket.create_connection(("127.0.0.1", ports[number % len(ports)]), timeout=LIMIT_S))
        yield


async def test_many_silent_connections_leave_files_for_binds(ports: tuple[FakeCluster, int]) -> None:
    """More connections than the process may open files, on both ports: probes are served and pods are bound."""
    fake_cluster, probe_port = ports
    with crowd(fake_cluster.port, probe_port):
        assert await asyncio.gather(*(fresh_bind(fake_cluster, f"p{number}") for number in range(6))) == [""] * 6
        assert await health(probe_port) == 200
        assert fake_cluster.extender is not None
        if sys.platform == "linux":
            assert len(list(Path(f"/proc/{fake_cluster.extender.pid}/fd").iterdir())) < OPEN_FILES
    assert "Too many open files" not in fake_cluster.extender.log.read_text()


async def test_an_endless_header_on_the_probe_port_is_refused_at_once(ports: tuple[FakeCluster, int]) -> None:
    """One header of 96 MiB took 13 s of CPU time that all clients share."""
    _, probe_port = ports
    reader, writer = await asyncio.open_connection("127.0.0.1", probe_port)
    writer.write(b"GET /livez HTTP/1.1\r\nX: ")
    answered = asyncio.ensure_future(reader.read(100))
    sent = 0
    with contextlib.suppress(ConnectionError):
        while not answered.done() and sent < 96 << 20:
            writer.write(b"y" * (1 << 16))
            sent += 1 << 16
            await writer.drain()
            await asyncio.sleep(0)
    # What was not read any more makes the kernel reset the connection, which may overtake the answer.
    with contextlib.suppress(ConnectionResetError):
        assert b" 431 " in await answered
    assert sent < 32 << 20
    writer.close()
