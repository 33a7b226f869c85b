"""Credentials from a program."""

import base64
import datetime
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from accelshare.kube.config import Cluster, load
from accelshare.kube.credentials import Credentials
from accelshare.kube.errors import ConfigError, Unauthorized
from accelshare.kube.exec_plugin import ExecPlugin, Program
from accelshare.kube.tls import Pem, Tls
from tests.unit.kube import kubeconfigs
from tests.unit.kube.kubeconfigs import b64
from tests.unit.kube.pki import Authority
from tests.unit.kube.support import client_of, refusal, serving

EXPIRY = datetime.datetime(2090, 1, 1, tzinfo=datetime.UTC)
V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"


def answer(version: str = V1, **status: str) -> str:
    return json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})


def script(folder: Path, text: str, name: str = "plugin") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def program(command: Path | str, *, version: str = V1, environ: dict[str, str] | None = None, **more: Any) -> Program:
    return Program(str(command), (), environ if environ is not None else dict(os.environ), version, Path("/"), **more)


def counting(folder: Path, text: str) -> tuple[Path, Callable[[], int]]:
    """A plugin, and how often it has run."""
    runs = folder / "runs"
    return script(folder, f"echo >> {runs}\n{text}"), lambda: len(runs.read_text()) if runs.exists() else 0


def credentials_from(tmp_path: Path, exec_: dict[str, Any], cluster: dict[str, Any] | None = None) -> Credentials:
    spec = {"interactiveMode": "Never", "apiVersion": V1, **exec_}
    file = kubeconfigs.write(tmp_path / "kube" / "config", cluster=cluster, user={"exec": spec})
    return load(file, environ=os.environ).credentials


@pytest.mark.parametrize("version", [V1, V1BETA1])
def test_a_plugins_token_is_presented(tmp_path: Path, version: str) -> None:
    script(tmp_path / "kube" / "bin", f"echo '{answer(version, token='abc')}'")
    credentials = credentials_from(tmp_path, {"command": "bin/plugin", "apiVersion": version})
    assert not credentials.at_hand
    assert credentials.present().authorization == "Bearer abc"
    assert credentials.at_hand


def test_arguments_and_environment_reach_the_plugin(tmp_path: Path) -> None:
    script(tmp_path / "kube", 'printf \'{"apiVersion":"%s","kind":"ExecCredential","status":{"token":"%s-%s"}}\' $1 $2 $REGION')
    credentials = credentials_from(
        tmp_path, {"command": "./plugin", "args": [V1, "abc"], "env": [{"name": "REGION", "value": "north"}]}
    )
    assert credentials.present().authorization == "Bearer abc-north"


def test_a_command_without_a_slash_is_looked_for_on_path(tmp_path: Path) -> None:
    script(tmp_path / "bin", f"echo '{answer(token='abc')}'", name="my-login")
    found = ExecPlugin(program("my-login", environ={"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}))
    assert found.present().authorization == "Bearer abc"


def test_a_missing_program_is_an_error_with_the_install_hint() -> None:
    plugin = ExecPlugin(program("no-such-login", install_hint="apt install no-such-login"))
    with pytest.raises(ConfigError, match=r"'no-such-login': not found on PATH\napt install no-such-login"):
        plugin.present()
    with pytest.raises(ConfigError, match="cannot be started"):
        ExecPlugin(program("/no/such/login")).present()


@pytest.mark.parametrize("provided", [True, False])
def test_what_is_passed_to_the_plugin(tmp_path: Path, provided: bool) -> None:
    """provideClusterInfo passes the cluster, with the plugin's settings from the kubeconfig."""
    ca = Authority().pem
    script(tmp_path / "kube", f"echo \"$KUBERNETES_EXEC_INFO\" > {tmp_path}/info\necho '{answer(token='abc')}'")
    cluster = {
        "certificate-authority-data": b64(ca),
        "tls-server-name": "kubernetes",
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}],
    }
    credentials_from(tmp_path, {"command": "./plugin", "provideClusterInfo": provided}, cluster).present()
    info = json.loads((tmp_path / "info").read_text())
    assert (info["kind"], info["apiVersion"]) == ("ExecCredential", V1)
    assert info["spec"]["interactive"] is False
    if not provided:
        assert "cluster" not in info["spec"]
        return
    assert info["spec"]["cluster"] == {
        "server": "https://api.test:6443",
        "tls-server-name": "kubernetes",
        "certificate-authority-data": base64.b64encode(ca).decode(),
        "config": {"audience": "x"},
    }


def test_a_token_is_kept_until_it_expires(tmp_path: Path) -> None:
    path, runs = counting(tmp_path, f"echo '{answer(token='abc', expirationTimestamp='2090-01-01T00:00:00Z')}'")
    now = [EXPIRY.timestamp() - 1]
    plugin = ExecPlugin(program(path), clock=lambda: now[0])
    plugin.present()
    plugin.present()
    assert runs() == 1
    now[0] += 2
    assert not plugin.at_hand
    plugin.present()
    assert runs() == 2


def test_a_refused_token_is_renewed_once(tmp_path: Path) -> None:
    """Ten concurrent 401s cause one new run."""
    path, runs = counting(tmp_path, f"echo '{answer(token='abc')}'")
    plugin = ExecPlugin(program(path))
    shown = plugin.present()
    plugin.refused(shown)
    assert not plugin.at_hand
    renewed = plugin.present()
    plugin.refused(type(shown)("Bearer older"))
    assert plugin.present() is renewed
    assert runs() == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("echo no login >&2; exit 3", "exit code 3: no login"),
        ("exit 1", "nothing on stderr"),
        ("echo hello", "printed 6 bytes"),
        ("true", "printed 0 bytes"),
        (f"echo '{answer(V1BETA1, token='abc')}'", f"it must be ExecCredential of '{V1}'"),
        (f"echo '{answer()}'", "status.token"),
        (f"echo '{answer(clientCertificateData='abc')}'", "it must be both or none"),
        (f"echo '{answer(token='a b')}'", "bearer token"),
        (f"echo '{answer(token='abc', expirationTimestamp='soon')}'", "expirationTimestamp is 'soon'"),
    ],
)
def test_invalid_output_is_an_error_with_its_cause(tmp_path: Path, text: str, problem: str) -> None:
    plugin = ExecPlugin(program(script(tmp_path, text)))
    with pytest.raises(ConfigError) as caught:
        plugin.present()
    assert problem in str(caught.value)
    assert str(tmp_path / "plugin") in str(caught.value)
    assert not plugin.at_hand


def test_what_a_plugin_printed_stays_out_of_the_message(tmp_path: Path) -> None:
    """It may contain a token."""
    with pytest.raises(ConfigError) as caught:
        ExecPlugin(program(script(tmp_path, "echo secret-token"))).present()
    assert "secret" not in str(caught.value)


def test_a_plugin_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    """The shell's child holds the pipe open; waiting for it would never end."""
    path = script(tmp_path, f"sleep 1000 & echo $! > {tmp_path}/child\nwait")
    with pytest.raises(ConfigError, match=r"within 0\.5 s"):
        ExecPlugin(program(path), timeout_s=0.5).present()
    child = int((tmp_path / "child").read_text())
    for _ in range(200):
        if not _runs(child):
            return
        time.sleep(0.01)  # init reaps it, not we
    pytest.fail(f"process {child} is still there")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_401_runs_the_plugin_again_and_repeats_the_request_once(tmp_path: Path) -> None:
    path, runs = counting(tmp_path, f"printf '{answer(token='t%s')}' $(wc -l < {tmp_path}/runs)")
    seen: list[str] = []

    async def second_token_only(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(request.headers["Authorization"])
        return web.Response(text="ok") if seen[-1] == "Bearer t2" else refusal(401, "Unauthorized")

    async with serving(second_token_only) as url, client_of(_cluster(url, path)) as client:
        assert await client.request("POST", "/", body=b"{}") == b"ok"
        assert await client.request("POST", "/", body=b"{}") == b"ok"
    assert seen == ["Bearer t1", "Bearer t2", "Bearer t2"]
    assert runs() == 2


async def test_a_second_401_is_raised(tmp_path: Path) -> None:
    path, runs = counting(tmp_path, f"echo '{answer(token='abc')}'")

    async def nobody(request: web.BaseRequest) -> web.StreamResponse:
        return refusal(401, "Unauthorized", "who are you?")

    async with serving(nobody) as url, client_of(_cluster(url, path)) as client:
        with pytest.raises(Unauthorized, match="who are you"):
            await client.request("GET", "/")
    assert runs() == 2


async def test_a_plugins_certificate_is_shown_and_replaced_when_refused(tmp_path: Path) -> None:
    """Each new certificate needs a new handshake: an old connection would still show the old one."""

    async def second_only(request: web.BaseRequest) -> web.StreamResponse:
        name = certificate_name(request)
        return web.Response(text=name) if name == "second" else refusal(401)

    ca = Authority()
    path = certificates(tmp_path, ca)
    async with serving(second_only, tls=ca.server(tmp_path, "127.0.0.1", clients=ca)) as url:
        user = {"exec": {"command": str(path), "apiVersion": V1, "interactiveMode": "IfAvailable"}}
        trusted = {"server": url, "certificate-authority-data": b64(ca.pem)}
        file = kubeconfigs.write(tmp_path / "config", cluster=trusted, user=user)
        async with client_of(load(file)) as client:
            assert await client.request("GET", "/") == b"second"


async def test_a_plugins_certificate_is_replaced_when_it_expires(tmp_path: Path) -> None:
    async def who(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=certificate_name(request))

    ca = Authority()
    now = [EXPIRY.timestamp() - 1]
    plugin = ExecPlugin(program(certificates(tmp_path, ca)), clock=lambda: now[0])
    async with serving(who, tls=ca.server(tmp_path, "127.0.0.1", clients=ca)) as url:
        cluster = Cluster(url, credentials=plugin, tls=Tls(ca=Pem("ca", inline=ca.pem)))
        async with client_of(cluster) as client:
            assert await client.request("GET", "/") == b"first"
            now[0] += 2
            assert await client.request("GET", "/") == b"second"


def certificates(folder: Path, ca: Authority) -> Path:
    """A plugin that prints the certificate 'first', and from its second run on 'second'."""
    for name in ("first", "second"):
        pair = ca.issue(name)
        (folder / name).write_text(
            answer(
                clientCertificateData=pair.chain_pem.decode(),
                clientKeyData=pair.key_pem.decode(),
                expirationTimestamp=EXPIRY.isoformat(),
            )
        )
    return script(folder, f"cat {folder}/first 2>/dev/null || cat {folder}/second\nrm -f {folder}/first")


def certificate_name(request: web.BaseRequest) -> str:
    assert request.transport is not None
    return str(request.transport.get_extra_info("peercert")["subject"][0][0][1])


def _cluster(url: str, path: Path) -> Cluster:
    return Cluster(url, credentials=ExecPlugin(program(path)))


@pytest.mark.parametrize(
    "more", [{"args": ["a\0b"]}, {"env": [{"name": "A=B", "value": "c"}]}, {"env": [{"name": "A", "value": "\0"}]}], ids=str
)
def test_words_that_no_program_can_get_are_an_error_with_their_cause(tmp_path: Path, more: dict[str, Any]) -> None:
    script(tmp_path / "kube" / "bin", f"echo '{answer(token='abc')}'")
    with pytest.raises(ConfigError, match="cannot be started"):
        credentials_from(tmp_path, {"command": "bin/plugin", **more}).present()
