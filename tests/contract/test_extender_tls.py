"""TLS on the extender's port: required client certificates, and files that are reloaded when they change."""

import asyncio
import re
import shutil
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest

from accelshare.install.certificates import x509
from accelshare.install.certificates.x509 import Pair
from cluster.certificates import Authority
from tests.contract.fake_cluster import FakeCluster

LIMIT_S = 60.0
FLAGS = ("tls-cert", "tls-key", "client-ca")


class Office:
    """A CA, a server certificate in fixed files, and clients' contexts."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory / name
        self._directory.mkdir()
        self.authority = Authority(self._directory)

    def serve_from(self, certificate: Path, key: Path) -> None:
        for made, wanted in zip(self.authority.serving_certificate("extender"), (certificate, key), strict=True):
            shutil.copy(made, wanted.with_suffix(".new"))
            wanted.with_suffix(".new").rename(wanted)

    def client(self, user: str = "") -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority.file))
        if user:
            context.load_cert_chain(*self.authority.client_certificate(user))
        return context


@pytest.fixture
async def files(fake_cluster: FakeCluster, tmp_path: Path) -> tuple[FakeCluster, Office, Path, Path]:
    fake_cluster.node("n1", 16)
    office = Office(tmp_path, "first")
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    office.serve_from(certificate, key)
    fake_cluster.scheme = "https"
    fake_cluster.tls = office.client("kube-scheduler")
    return fake_cluster, office, certificate, key


async def test_clients_without_a_certificate_are_refused(files: tuple[FakeCluster, Office, Path, Path], tmp_path: Path) -> None:
    fake_cluster, office, certificate, key = files
    flags = [f"--tls-cert={certificate}", f"--tls-key={key}", f"--client-ca={office.authority.file}"]
    await fake_cluster.start_extender(*flags)
    assert (await fake_cluster.filter(fake_cluster.pod("a", 4), "n1"))["NodeNames"] == ["n1"]
    fake_cluster.tls = office.client()
    with pytest.raises(aiohttp.ClientError):
        await fake_cluster.call("GET", "/version")
    stranger = Office(tmp_path, "stranger")
    context = office.client()
    context.load_cert_chain(*stranger.authority.client_certificate("kube-scheduler"))
    fake_cluster.tls = context
    with pytest.raises(aiohttp.ClientError):
        await fake_cluster.call("GET", "/version")


async def test_each_new_connection_is_counted(files: tuple[FakeCluster, Office, Path, Path]) -> None:
    fake_cluster, office, certificate, key = files
    await fake_cluster.start_extender(f"--tls-cert={certificate}", f"--tls-key={key}", f"--client-ca={office.authority.file}")

    async def counted() -> int:
        page = (await fake_cluster.call("GET", "/metrics"))[1]
        return int(float(re.findall(r"^accelshare_tls_connections_total (.+)$", page, re.MULTILINE)[0]))

    before = await counted()
    assert await counted() == before, "a connection that is kept counts once"
    for _ in range(3):
        assert await fresh(fake_cluster, office.client("kube-scheduler")) == 200
    assert await counted() == before + 3


async def test_new_files_are_used_without_a_restart(files: tuple[FakeCluster, Office, Path, Path], tmp_path: Path) -> None:
    """A new CA on both sides: old clients are refused, new ones served, and half-written files change nothing."""
    fake_cluster, office, certificate, key = files
    client_ca = tmp_path / "ca.crt"
    shutil.copy(office.authority.file, client_ca)
    process = await fake_cluster.start_extender(f"--tls-cert={certificate}", f"--tls-key={key}", f"--client-ca={client_ca}")
    new = Office(tmp_path, "second")
    certificate.write_text("half a certificate")
    assert await fresh(fake_cluster, office.client("kube-scheduler")) == 200
    new.serve_from(certificate, key)
    shutil.copy(new.authority.file, client_ca)
    assert await fresh(fake_cluster, new.client("kube-scheduler")) == 200
    with pytest.raises(aiohttp.ClientError):
        await fresh(fake_cluster, office.client("kube-scheduler"))
    assert process.running


@pytest.mark.parametrize("which", ["expired", "a server's", "of another CA", "none"])
async def test_only_a_valid_client_certificate_of_the_right_ca_is_accepted(
    fake_cluster: FakeCluster, tmp_path: Path, which: str
) -> None:
    """The certificates that accelshare makes itself: the one for kube-scheduler is accepted, and these are not."""
    now, life = datetime.now(UTC), timedelta(hours=1)
    ours, theirs = (x509.authority(name, now=now, life=2 * life) for name in ("ours", "theirs"))
    server = x509.leaf(ours, "server", "extender", names={"127.0.0.1"}, now=now, life=life)
    right = x509.leaf(ours, "client", "kube-scheduler", now=now, life=life)
    wrong = {
        "expired": x509.leaf(ours, "client", "kube-scheduler", now=now - 2 * life, life=life),
        "a server's": server,
        "of another CA": x509.leaf(theirs, "client", "kube-scheduler", now=now, life=life),
        "none": None,
    }[which]
    files = {"tls.crt": server.certificate, "tls.key": server.key, "ca.crt": ours.certificate}
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    def shown(pair: Pair | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=ours.certificate)
        if pair is not None:
            (tmp_path / "client.pem").write_text(pair.certificate + pair.key)
            context.load_cert_chain(tmp_path / "client.pem")
        return context

    fake_cluster.scheme, fake_cluster.tls = "https", shown(right)
    await fake_cluster.start_extender(*(f"--{flag}={tmp_path / name}" for flag, name in zip(FLAGS, files, strict=True)))
    with pytest.raises(aiohttp.ClientError):
        await fresh(fake_cluster, shown(wrong))
    assert await fresh(fake_cluster, shown(right)) == 200


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_no_tls_session_outlives_its_client_ca(
    files: tuple[FakeCluster, Office, Path, Path], tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """A client of the old CA shows the session that it got before the rotation, and is refused as without one."""
    fake_cluster, office, certificate, key = files
    client_ca = tmp_path / "ca.crt"
    shutil.copy(office.authority.file, client_ca)
    await fake_cluster.start_extender(f"--tls-cert={certificate}", f"--tls-key={key}", f"--client-ca={client_ca}")
    old = office.client("kube-scheduler")
    old.maximum_version = old.minimum_version = version
    status, session = await asyncio.to_thread(ask_once, fake_cluster.port, old, None)
    assert (status, (await asyncio.to_thread(ask_once, fake_cluster.port, old, session))[0]) == (200, 200)
    new = Office(tmp_path, "second")
    shutil.copy(new.authority.file, tmp_path / "ca.new")
    (tmp_path / "ca.new").rename(client_ca)
    context = office.client()
    context.load_cert_chain(*new.authority.client_certificate("kube-scheduler"))
    assert await fresh(fake_cluster, context) == 200
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.to_thread(ask_once, fake_cluster.port, old, session)


def ask_once(port: int, context: ssl.SSLContext, session: ssl.SSLSession | None) -> tuple[int, ssl.SSLSession | None]:
    """The status of a request that offers this session, and the session that the server returns."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as connection,
    ):
        connection.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = connection.recv(4096)
        if not answer:
            raise ConnectionResetError("closed without an answer")
        return int(answer.split()[1]), connection.session


async def fresh(fake_cluster: FakeCluster, context: ssl.SSLContext) -> int:
    """The status of a call on a connection of its own."""
    url = f"https://127.0.0.1:{fake_cluster.port}/version"
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session, session.get(url, ssl=context) as answer:
        return answer.status
