"""`accelshare certificates` against the real API server, with the rights of its job and no more."""

import asyncio
import base64
import secrets
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from accelshare.install.certificates import secrets as tls_secrets
from accelshare.install.certificates import x509
from accelshare.install.certificates.renewal import Lifetimes
from accelshare.install.certificates.secrets import Names
from accelshare.kube import config
from accelshare.kube.client import Client
from accelshare.kube.errors import NotFound
from accelshare.kube.leases import Lease
from tests.e2e.rights import SECRETS, grant
from tests.e2e.scheduling_cluster import Object, SchedulingCluster

pytestmark = pytest.mark.real
ROOT = Path(__file__).parents[2]
USER = "accelshare-certificates"


@dataclass(frozen=True)
class SecretNamespace:
    """A namespace of one test's own."""

    scheduling_cluster: SchedulingCluster
    namespace: str
    kubeconfig: Path

    async def run(self, *words: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "accelshare", "certificates", *words]
        process = await asyncio.create_subprocess_exec(
            *command,
            f"--namespace={self.namespace}",
            f"--kubeconfig={self.kubeconfig}",
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    async def secret(self, name: str) -> Object:
        return await self.scheduling_cluster.read(f"/api/v1/namespaces/{self.namespace}/secrets/{name}")

    async def text(self, name: str, key: str) -> str:
        return base64.b64decode((await self.secret(name))["data"][key]).decode()

    async def versions(self) -> list[str]:
        return [(await self.secret(name))["metadata"]["resourceVersion"] for name in SECRETS]

    async def service(self) -> str:
        content = {"metadata": {"name": "accelshare-extender"}, "spec": {"ports": [{"port": 12345}]}}
        made = await self.scheduling_cluster.create(
            f"/api/v1/namespaces/{self.namespace}/services", {"apiVersion": "v1", "kind": "Service", **content}
        )
        return str(made["spec"]["clusterIP"])

    def client(self) -> Client:
        return Client(config.load(self.kubeconfig), user_agent="accelshare-tests")


@pytest.fixture
async def secrets_in(scheduling_cluster: SchedulingCluster) -> AsyncIterator[SecretNamespace]:
    namespace = f"certificates-{secrets.token_hex(4)}"
    await scheduling_cluster.create(
        "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    )
    await grant(scheduling_cluster, USER, namespace)
    yield SecretNamespace(scheduling_cluster, namespace, scheduling_cluster.plane.kubeconfig_for(USER))
    await scheduling_cluster.delete(f"/api/v1/namespaces/{namespace}")


async def test_they_are_made_once(secrets_in: SecretNamespace) -> None:
    code, out, err = await secrets_in.run("ensure")
    assert (code, err) == (0, "")
    assert [line.split(":")[0] for line in out.splitlines()] == [f"Secret {secrets_in.namespace}/{name}" for name in SECRETS]
    before = await secrets_in.versions()
    assert await secrets_in.run("ensure") == (0, "unchanged\n", "")
    assert await secrets_in.versions() == before

    secret = await secrets_in.secret("accelshare-extender-tls")
    assert (secret["type"], set(secret["data"])) == ("kubernetes.io/tls", {"tls.crt", "tls.key", "ca.crt"})
    assert await secrets_in.text("accelshare-scheduler-tls", "ca.crt") == await secrets_in.text("accelshare-ca", "ca.crt")
    facts = x509.facts(await secrets_in.text("accelshare-extender-tls", "tls.crt"))
    assert {"accelshare-extender", f"accelshare-extender.{secrets_in.namespace}.svc"} <= facts.names
    assert timedelta(days=89) < facts.until - datetime.now(UTC) < timedelta(days=91)

    code, out, err = await secrets_in.run("status")
    assert (code, err) == (0, "")
    assert "89.9 days left" in out or "90.0 days left" in out
    assert "PRIVATE" not in out


async def test_the_services_address_joins_the_names(secrets_in: SecretNamespace) -> None:
    """Before the Service is there nobody knows it; the name that is always there is enough until then."""
    assert (await secrets_in.run("ensure", "--also", "192.0.2.7", "--also", "extender.example"))[0] == 0
    before = x509.facts(await secrets_in.text("accelshare-extender-tls", "tls.crt"))
    assert {"192.0.2.7", "extender.example"} <= before.names
    address = await secrets_in.service()
    code, out, _ = await secrets_in.run("ensure", "--also", "192.0.2.7", "--also", "extender.example")
    assert (code, len(out.splitlines())) == (0, 1)
    assert x509.facts(await secrets_in.text("accelshare-extender-tls", "tls.crt")).names == before.names | {address}


async def test_many_at_once_end_with_one_ca(secrets_in: SecretNamespace) -> None:
    """A Secret is written only in the version that was read, so that of two writers one wins and the other looks again."""
    names, lifetimes = Names(secrets_in.namespace), Lifetimes()

    async def one(days: float) -> list[str]:
        async with secrets_in.client() as client:
            return await tls_secrets.ensure(client, names, now=datetime.now(UTC) + timedelta(days=days), lifetimes=lifetimes)

    await asyncio.gather(*(one(0) for _ in range(8)))
    authority = await secrets_in.text("accelshare-ca", "ca.crt")
    for name in SECRETS[1:]:
        assert await secrets_in.text(name, "ca.crt") == authority
        assert x509.signed_by(await secrets_in.text(name, "tls.crt"), authority)
    assert await one(0) == []

    await asyncio.gather(*(one(2500) for _ in range(8)))  # each of them would make a CA to follow
    following = await secrets_in.text("accelshare-ca", "next.crt")
    for name in SECRETS[1:]:
        assert await secrets_in.text(name, "ca.crt") == authority + following
    assert await one(2500) == []


async def test_whoever_was_faster_is_not_overwritten(secrets_in: SecretNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between one's reading and writing another one makes the CA to follow: there is one such CA, and it is the other one's."""
    names, lifetimes, late = Names(secrets_in.namespace), Lifetimes(), datetime.now(UTC) + timedelta(days=2500)
    due, slow = tls_secrets.due, True
    made = ""

    async def overtaken(client: Client, names: Names, *, now: datetime, lifetimes: Lifetimes) -> list[tls_secrets.SecretWrite]:
        nonlocal slow, made
        found = await due(client, names, now=now, lifetimes=lifetimes)
        if slow:
            slow = False
            await tls_secrets.ensure(client, names, now=now, lifetimes=lifetimes)
            made = await secrets_in.text("accelshare-ca", "next.crt")
        return found

    async with secrets_in.client() as client:
        await tls_secrets.ensure(client, names, now=datetime.now(UTC), lifetimes=lifetimes)
        monkeypatch.setattr(tls_secrets, "due", overtaken)
        assert await tls_secrets.ensure(client, names, now=late, lifetimes=lifetimes) == []
    assert made
    assert await secrets_in.text("accelshare-ca", "next.crt") == made


async def test_somebody_elses_secret_is_left_alone(secrets_in: SecretNamespace) -> None:
    content = {"metadata": {"name": "accelshare-extender-tls"}, "stringData": {"tls.crt": "mine", "tls.key": "mine"}}
    await secrets_in.scheduling_cluster.create(
        f"/api/v1/namespaces/{secrets_in.namespace}/secrets", {"apiVersion": "v1", "kind": "Secret", **content}
    )
    code, _, err = await secrets_in.run("ensure")
    assert code == 1
    assert "accelshare-extender-tls" in err
    assert await secrets_in.text("accelshare-extender-tls", "tls.crt") == "mine"
    with pytest.raises(NotFound):
        await secrets_in.secret("accelshare-ca")  # nothing was written at all
    assert (await secrets_in.run("remove"))[:2] == (0, "nothing to remove\n")


async def test_a_broken_ca_is_refused_in_words(secrets_in: SecretNamespace) -> None:
    assert (await secrets_in.run("ensure"))[0] == 0
    broken = {"data": {"ca.key": base64.b64encode(b"half a key").decode()}}
    await secrets_in.scheduling_cluster.patch(f"/api/v1/namespaces/{secrets_in.namespace}/secrets/accelshare-ca", broken)
    code, _, err = await secrets_in.run("ensure")
    assert code == 1
    assert "the key cannot be read" in err
    assert "remove it" in err


async def test_a_ca_hands_over_to_the_next(secrets_in: SecretNamespace) -> None:
    """With a clock that is ours: the next CA joins the bundle first, signs later, and the old one leaves last."""
    names, lifetimes = Names(secrets_in.namespace), Lifetimes(ca=timedelta(days=400), leaf=timedelta(days=90))
    start = datetime.now(UTC)

    async def on_day(number: float) -> tuple[int, str]:
        async with secrets_in.client() as client:
            await tls_secrets.ensure(client, names, now=start + timedelta(days=number), lifetimes=lifetimes)
            assert await tls_secrets.ensure(client, names, now=start + timedelta(days=number), lifetimes=lifetimes) == []
        bundle = await secrets_in.text("accelshare-scheduler-tls", "ca.crt")
        assert bundle == await secrets_in.text("accelshare-extender-tls", "ca.crt")
        return bundle.count("BEGIN"), await secrets_in.text("accelshare-ca", "ca.crt")

    first = (await on_day(0))[1]
    assert await on_day(266) == (1, first)
    assert await on_day(267) == (2, first)  # announced
    count, second = await on_day(298)  # signs
    assert (count, second != first) == (2, True)
    assert await on_day(359) == (2, second)  # the last leaves of the old one are replaced
    assert await on_day(390) == (1, second)
    assert set((await secrets_in.secret("accelshare-ca"))["data"]) == {"ca.crt", "ca.key"}


async def test_they_can_be_removed(secrets_in: SecretNamespace) -> None:
    assert (await secrets_in.run("ensure"))[0] == 0
    code, out, _ = await secrets_in.run("remove")
    assert (code, len(out.splitlines())) == (0, 3)
    code, out, _ = await secrets_in.run("status")
    assert code == 1
    assert out.count("missing") == 3


async def test_a_lease_has_one_holder_and_a_dead_one_is_followed(secrets_in: SecretNamespace) -> None:
    now = 0.0
    async with Client(config.load(secrets_in.scheduling_cluster.plane.kubeconfig), user_agent="accelshare-tests") as client:
        a, b = (Lease(client, secrets_in.namespace, "turn", identity=name, duration_s=30, clock=lambda: now) for name in "ab")
        assert await a.take()
        assert not await b.take()
        assert b.holder == "a"
        assert await a.take()  # it goes on
        assert not await b.take()
        now = 29.0
        assert not await b.take()
        now = 30.0
        assert await b.take()  # a was silent for too long
        assert not await a.take()
        await b.give_back()
        async with a.held() as ours:
            assert ours
            async with b.held() as theirs:
                assert not theirs
        assert await b.take()
        again = Lease(client, secrets_in.namespace, "turn", identity="b")
        assert await again.take()  # after a restart
        await a.give_back()  # not its own any more
        assert not await a.take()
