"""Real TLS: trusted CAs, server names, client certificates."""

import ssl
from pathlib import Path

import pytest
from aiohttp import web

from accelshare.kube.client import Client
from accelshare.kube.config import Cluster, load
from accelshare.kube.errors import ConfigError, Unreachable
from accelshare.kube.tls import Pem, Tls
from tests.unit.kube import kubeconfigs
from tests.unit.kube.kubeconfigs import b64
from tests.unit.kube.pki import Authority, Pair
from tests.unit.kube.support import client_of, refusal, serving


async def who(request: web.BaseRequest) -> web.Response:
    """Responds with the name in the client's certificate."""
    assert request.transport is not None
    shown = request.transport.get_extra_info("peercert") or {"subject": ((("commonName", "nobody"),),)}
    return web.Response(text=shown["subject"][0][0][1])


async def ask(client: Client) -> str:
    async with client:
        return (await client.request("GET", "/")).decode()


@pytest.fixture
def ca() -> Authority:
    return Authority()


async def test_a_ca_by_file_and_a_client_certificate_by_file(tmp_path: Path, ca: Authority) -> None:
    """Relative paths start from the kubeconfig's folder."""
    mine = ca.issue("agent")
    (tmp_path / "ca.pem").write_bytes(ca.pem)
    (tmp_path / "me.pem").write_bytes(mine.chain_pem)
    (tmp_path / "me.key").write_bytes(mine.key_pem)
    async with serving(who, tls=ca.server(tmp_path, "127.0.0.1", clients=ca)) as url:
        file = kubeconfigs.write(
            tmp_path / "config",
            cluster={"server": url, "certificate-authority": "ca.pem"},
            user={"client-certificate": "me.pem", "client-key": "me.key"},
        )
        assert await ask(client_of(load(file, environ={}))) == "agent"


async def test_a_ca_and_a_client_certificate_inline(tmp_path: Path, ca: Authority) -> None:
    mine = ca.issue("agent")
    async with serving(who, tls=ca.server(tmp_path, "127.0.0.1", clients=ca)) as url:
        file = kubeconfigs.write(
            tmp_path / "config",
            cluster={"server": url, "certificate-authority-data": b64("Prüfstelle\n".encode() + ca.pem)},
            user={"client-certificate-data": b64(mine.chain_pem), "client-key-data": b64(mine.key_pem)},
        )
        assert await ask(client_of(load(file, environ={}))) == "agent"


async def test_a_server_of_another_ca_is_not_talked_to(tmp_path: Path, ca: Authority) -> None:
    async with serving(who, tls=ca.server(tmp_path, "127.0.0.1")) as url:
        cluster = Cluster(url, tls=Tls(ca=Pem("ca", inline=Authority("other").pem)))
        with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED") as caught:
            await ask(client_of(cluster))
    assert not caught.value.sent
    assert isinstance(caught.value.__cause__, Exception)


async def test_a_name_that_the_certificate_does_not_have_can_be_replaced(tmp_path: Path, ca: Authority) -> None:
    """tls-server-name: the server's certificate has another name than its address."""
    async with serving(who, tls=ca.server(tmp_path, "kubernetes.default")) as url:
        trusted = {"server": url, "certificate-authority-data": b64(ca.pem)}
        plain = kubeconfigs.write(tmp_path / "plain", cluster=trusted)
        named = kubeconfigs.write(tmp_path / "named", cluster={**trusted, "tls-server-name": "kubernetes.default"})
        with pytest.raises(Unreachable, match="mismatch"):
            await ask(client_of(load(plain, environ={})))
        assert await ask(client_of(load(named, environ={}))) == "nobody"


async def test_verification_can_be_switched_off(tmp_path: Path, ca: Authority) -> None:
    async with serving(who, tls=ca.server(tmp_path, "elsewhere")) as url:
        file = kubeconfigs.write(tmp_path / "config", cluster={"server": url, "insecure-skip-tls-verify": True})
        assert await ask(client_of(load(file, environ={}))) == "nobody"


async def test_an_intermediate_ca_is_anchor_enough(tmp_path: Path, ca: Authority) -> None:
    """As in Go: what is in the CA file is trusted, also without the root above it."""
    middle = Authority("middle", under=ca)
    async with serving(who, tls=middle.server(tmp_path, "127.0.0.1")) as url:
        assert await ask(client_of(Cluster(url, tls=Tls(ca=Pem("ca", inline=middle.pem))))) == "nobody"


def test_strictness_that_kubernetes_cas_do_not_pass_stays_off(ca: Authority) -> None:
    """Python 3.13 requires key identifiers, which the CAs of many clusters do not have."""
    context = Tls(ca=Pem("ca", inline=ca.pem)).context()
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


async def test_rotated_files_are_read_again(tmp_path: Path, ca: Authority) -> None:
    """A CA file that was replaced counts from the next attempt, without a restart."""
    file = tmp_path / "ca.pem"
    file.write_bytes(Authority("old").pem)
    async with (
        serving(who, tls=ca.server(tmp_path, "127.0.0.1")) as url,
        client_of(Cluster(url, tls=Tls(ca=Pem("ca", path=file)))) as client,
    ):
        with pytest.raises(Unreachable):
            await client.request("POST", "/")
        file.write_bytes(ca.pem)
        assert await client.request("POST", "/") == b"nobody"


async def test_a_rotated_client_certificate_is_read_again_after_a_401(tmp_path: Path, ca: Authority) -> None:
    """An expired certificate is a 401; kubelet has written a new one into the same file by then."""
    file = tmp_path / "me.pem"

    def put(pair: Pair) -> None:
        file.write_bytes(pair.chain_pem + pair.key_pem)

    async def only_new(request: web.BaseRequest) -> web.StreamResponse:
        answer = await who(request)
        if answer.text == "new":
            return answer
        put(ca.issue("new"))
        return refusal(401)

    put(ca.issue("old"))
    mine = Pem("me", path=file)
    async with serving(only_new, tls=ca.server(tmp_path, "127.0.0.1", clients=ca)) as url:
        cluster = Cluster(url, tls=Tls(ca=Pem("ca", inline=ca.pem), certificate=mine, key=mine))
        assert await ask(client_of(cluster)) == "new"


def test_invalid_certificates_are_an_error(ca: Authority) -> None:
    mine, other = ca.issue("me"), ca.issue("other")
    with pytest.raises(ConfigError, match=r"the CA: .*BEGIN CERTIFICATE"):
        Tls(ca=Pem("the CA", inline=b"")).context()
    for key_pem in (other.key_pem, b"", mine.locked(b"secret")):
        with pytest.raises(ConfigError, match=r"the cert with the key: .*its own key, the key without a password"):
            Tls(certificate=Pem("the cert", inline=mine.chain_pem), key=Pem("the key", inline=key_pem)).context()


def test_without_memory_files_a_temporary_file_serves(ca: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.memfd_create", raising=False)
    mine = ca.issue("me")
    Tls(certificate=Pem("cert", inline=mine.chain_pem), key=Pem("key", inline=mine.key_pem)).context()
