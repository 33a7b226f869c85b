"""Which source of the configuration counts, and what is read from a kubeconfig."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from accelshare.kube.config import load
from accelshare.kube.errors import ConfigError
from tests.unit.kube import kubeconfigs
from tests.unit.kube.kubeconfigs import b64
from tests.unit.kube.pki import Authority


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    """The service account folder of a pod."""
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("pod-token")
    (folder / "ca.crt").write_bytes(Authority().pem)
    (folder / "namespace").write_text("accelshare\n")
    return folder


IN_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def problems_of(path: Path, **options: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, environ={}, **options)
    return str(caught.value)


# Which source counts


def test_the_sources_count_in_order(tmp_path: Path, pod: Path) -> None:
    """The `kubeconfig` argument, then $KUBECONFIG, then the pod, then ~/.kube/config."""
    given = kubeconfigs.write(tmp_path / "given", cluster={"server": "https://given"})
    listed = kubeconfigs.write(tmp_path / "listed", cluster={"server": "https://listed"})
    kubeconfigs.write(tmp_path / ".kube" / "config", cluster={"server": "https://home"})
    home = {"HOME": str(tmp_path)}
    everything = {**home, **IN_POD, "KUBECONFIG": str(listed)}

    assert load(given, environ=everything, service_account=pod).server == "https://given"
    assert load(environ=everything, service_account=pod).server == "https://listed"
    assert load(environ={**home, **IN_POD}, service_account=pod).server == "https://10.96.0.1:443"
    assert load(environ={**home, **IN_POD}, service_account=tmp_path / "none").server == "https://home"
    assert load(environ=home, service_account=pod).server == "https://home"


def test_a_named_context_is_looked_for_in_files_only(tmp_path: Path, pod: Path) -> None:
    kubeconfigs.write(tmp_path / ".kube" / "config", cluster={"server": "https://home"})
    environ = {**IN_POD, "HOME": str(tmp_path)}
    assert load(context="main", environ=environ, service_account=pod).server == "https://home"


def test_the_error_without_a_source_lists_what_was_tried(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"KUBECONFIG is not set, this is not a pod, and .*/\.kube/config does not exist"):
        load(environ={"HOME": str(tmp_path)})
    with pytest.raises(ConfigError, match="automountServiceAccountToken"):
        load(environ=IN_POD, service_account=tmp_path)


def test_the_environment_is_an_argument_whose_default_is_the_real_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfigs.write(tmp_path / "config", cluster={"server": "https://real"})))
    assert load().server == "https://real"


def test_no_event_loop_and_no_aiohttp_are_needed() -> None:
    """They are too slow for a command that runs 0.1 s."""
    check = "import sys, accelshare.kube.config; print(sorted({'aiohttp', 'asyncio'} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


# In a pod


def test_in_a_pod_the_service_account_is_used(pod: Path) -> None:
    cluster = load(environ=IN_POD, service_account=pod)
    assert cluster.server == "https://10.96.0.1:443"
    assert cluster.namespace == "accelshare"
    assert cluster.credentials.present().authorization == "Bearer pod-token"
    assert cluster.ssl_context() is not None


def test_in_a_pod_an_ipv6_address_gets_its_brackets(pod: Path) -> None:
    environ = {**IN_POD, "KUBERNETES_SERVICE_HOST": "fd00::1"}
    assert load(environ=environ, service_account=pod).server == "https://[fd00::1]:443"


def test_in_a_pod_the_proxy_variables_count(pod: Path) -> None:
    through = {**IN_POD, "HTTPS_PROXY": "http://proxy:3128"}
    assert load(environ=through, service_account=pod).proxy_url == "http://proxy:3128"
    assert load(environ={**through, "NO_PROXY": "10.96.0.0/12"}, service_account=pod).proxy_url is None


def test_a_missing_ca_in_a_pod_is_an_error(pod: Path) -> None:
    (pod / "ca.crt").unlink()
    with pytest.raises(ConfigError, match=r"ca\.crt"):
        load(environ=IN_POD, service_account=pod)


# A kubeconfig


def test_a_kubeconfig_has_server_namespace_and_credentials(tmp_path: Path) -> None:
    context = {"name": "main", "context": {"cluster": "main", "user": "main", "namespace": "ml"}}
    file = kubeconfigs.write(tmp_path / "config", user={"token": "abc"}, contexts=[context])
    cluster = load(file, environ={})
    assert (cluster.server, cluster.namespace) == ("https://api.test:6443", "ml")
    assert cluster.credentials.present().authorization == "Bearer abc"
    assert cluster.proxy_url is None
    assert str(file) in cluster.source


def test_another_context_can_be_named(tmp_path: Path) -> None:
    file = kubeconfigs.write(
        tmp_path / "config",
        clusters=[{"name": name, "cluster": {"server": f"https://{name}"}} for name in ("main", "spare")],
        contexts=[{"name": name, "context": {"cluster": name, "user": "main"}} for name in ("main", "spare")],
    )
    assert load(file, context="spare", environ={}).server == "https://spare"


def test_of_several_files_the_first_wins_for_each_name(tmp_path: Path) -> None:
    """As kubectl: entries are merged by name, a file that does not exist is skipped."""
    first = kubeconfigs.write(
        tmp_path / "one" / "config",
        user={"tokenFile": "token"},
        clusters=[],
        contexts=[{"name": "mixed", "context": {"cluster": "main", "user": "main"}}],
        current="mixed",
    )
    (first.parent / "token").write_text("from-one")
    second = kubeconfigs.write(
        tmp_path / "two" / "config", cluster={"server": "https://two", "certificate-authority": "ca.pem"}, user={"token": "two"}
    )
    (second.parent / "ca.pem").write_bytes(Authority().pem)
    listed = os.pathsep.join(map(str, (first, tmp_path / "missing", second)))
    cluster = load(environ={"KUBECONFIG": listed})
    assert cluster.server == "https://two"
    assert cluster.credentials.present().authorization == "Bearer from-one"
    assert cluster.ssl_context() is not None, "each relative path starts from the file that has it"


def test_a_kubeconfig_variable_without_any_file_is_an_error() -> None:
    with pytest.raises(ConfigError, match="none of its files exists"):
        load(environ={"KUBECONFIG": "/nowhere/a:/nowhere/b"})


@pytest.mark.parametrize(
    ("user", "header"),
    [
        ({"username": "me", "password": "pw"}, "Basic bWU6cHc="),
        ({"username": "me"}, "Basic bWU6"),
        ({"token": "abc", "username": "me"}, "Bearer abc"),
        ({"token": "abc", "tokenFile": "token"}, "Bearer from-file"),
        ({}, None),
    ],
)
def test_the_kinds_of_users(tmp_path: Path, user: dict[str, str], header: str | None) -> None:
    (tmp_path / "token").write_text("from-file")
    file = kubeconfigs.write(tmp_path / "config", user=user)
    assert load(file, environ={}).credentials.present().authorization == header


def test_over_plain_http_no_credentials_are_sent(tmp_path: Path) -> None:
    file = kubeconfigs.write(tmp_path / "config", cluster={"server": "http://api.test"}, user={"token": "secret"})
    cluster = load(file, environ={})
    assert cluster.credentials.present().authorization is None
    assert cluster.ssl_context() is None


@pytest.mark.parametrize(
    ("written", "meant"),
    [("api.test:6443", "https://api.test:6443"), ("https://a/k8s/", "https://a/k8s"), ("HTTPS://a:1", "https://a:1")],
)
def test_a_server_is_read_as_kubectl_reads_it(tmp_path: Path, written: str, meant: str) -> None:
    file = kubeconfigs.write(tmp_path / "config", cluster={"server": written})
    assert load(file, environ={}).server == meant


def test_a_proxy_url_wins_over_the_environment(tmp_path: Path) -> None:
    file = kubeconfigs.write(tmp_path / "config", cluster={"proxy-url": "http://mine:1"})
    assert load(file, environ={"HTTPS_PROXY": "http://theirs:2"}).proxy_url == "http://mine:1"
    plain = kubeconfigs.write(tmp_path / "plain")
    assert load(plain, environ={"HTTPS_PROXY": "http://theirs:2"}).proxy_url == "http://theirs:2"


# What is wrong with it


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert problems_of(tmp_path / "none").startswith(f"kubeconfig {tmp_path / 'none'}: No such file")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not YAML"),
        ("- a\n", "Expected `object`"),
        ("clusters: 7\n", r"\$\.clusters"),
        ("users: [{name: 1}]\n", r"\$\.users\[0\]\.name"),
        ("", "current-context is not set"),
        ("clusters: null\ncurrent-context: a\n", "there is no context 'a'; it has: none"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error_with_the_place(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    with pytest.raises(ConfigError, match=problem):
        load(file, environ={})


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"current": "other"}, "there is no context 'other'; it has: main"),
        ({"clusters": []}, "context 'main': there is no cluster 'main'; it has: none"),
        ({"users": []}, "context 'main': there is no user 'main'; it has: none"),
    ],
)
def test_the_error_for_an_unknown_name_lists_the_known_names(tmp_path: Path, more: dict[str, Any], problem: str) -> None:
    assert problem in problems_of(kubeconfigs.write(tmp_path / "config", **more))


@pytest.mark.parametrize(
    ("cluster", "problem"),
    [
        ({"server": ""}, "server is ''"),
        ({"server": "unix:///run/api.sock"}, "it must be like https://10.0.0.1:6443"),
        ({"server": "https\t://10.0.0.1:6443"}, "it must be like https://10.0.0.1:6443"),
        ({"server": "https://10.0.0.1 :6443"}, "it must be like https://10.0.0.1:6443"),
        ({"server": "https://10.0.0.1:64433333"}, "it must be like https://10.0.0.1:6443"),
        ({"server": "https://10.0.0.1:port"}, "it must be like https://10.0.0.1:6443"),
        ({"server": "https://[::1"}, "it must be like https://10.0.0.1:6443"),
        ({"server": "https://"}, "it must be like https://10.0.0.1:6443"),
        ({"proxy-url": "socks5://proxy"}, "proxy is 'socks5://proxy'"),
        ({"proxy-url": "http://proxy:99999"}, "proxy is 'http://proxy:99999'"),
        ({"proxy-url": "http://[::1"}, "proxy is 'http://[::1'"),
        ({"certificate-authority": "none.pem"}, "certificate-authority none.pem"),
        ({"certificate-authority-data": "?"}, "certificate-authority-data"),
        ({"certificate-authority-data": b64(b"x"), "insecure-skip-tls-verify": True}, "it must be one of them"),
    ],
)
def test_problems_of_a_cluster_entry(tmp_path: Path, cluster: dict[str, Any], problem: str) -> None:
    problems = problems_of(kubeconfigs.write(tmp_path / "config", cluster=cluster))
    assert problem in problems
    assert "cluster 'main'" in problems


EXEC_V1 = {"apiVersion": "client.authentication.k8s.io/v1", "command": "x", "interactiveMode": "Never"}


@pytest.mark.parametrize(
    ("user", "problem"),
    [
        ({"client-certificate-data": b64(b"x")}, "it must be both or none"),
        ({"client-key": "none.pem"}, "client-key none.pem"),
        ({"auth-provider": {"name": "gcp"}}, "use exec instead"),
        ({"as": "admin"}, "impersonation"),
        ({"token": "two words"}, "bearer token"),
        ({"tokenFile": "none"}, "token file"),
        ({"exec": {**EXEC_V1, "command": ""}}, "command is not set"),
        ({"exec": {**EXEC_V1, "apiVersion": "client.authentication.k8s.io/v1alpha1"}}, "v1 or client.auth"),
        ({"exec": {**EXEC_V1, "interactiveMode": "Always"}}, "interactiveMode is 'Always'"),
        ({"exec": {**EXEC_V1, "interactiveMode": None}}, "interactiveMode is None"),
    ],
)
def test_problems_of_a_user_entry(tmp_path: Path, user: dict[str, Any], problem: str) -> None:
    problems = problems_of(kubeconfigs.write(tmp_path / "config", user=user))
    assert problem in problems
    assert "user 'main'" in problems


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    file = kubeconfigs.write(
        tmp_path / "config", cluster={"proxy-url": "ftp://x", "certificate-authority": "none.pem"}, user={"as": "admin"}
    )
    assert len(problems_of(file).splitlines()) == 3


@pytest.mark.parametrize(
    ("cluster", "user"),
    [
        ({"certificate-authority": "a\0b"}, {}),
        ({}, {"client-certificate": "a\0b", "client-key": "c"}),
        ({}, {"tokenFile": "a\0b"}),
    ],
    ids=str,
)
def test_a_path_with_a_zero_byte_is_a_problem_like_any_other(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any]
) -> None:
    """Found by tests/fuzz: it ended with a traceback."""
    assert "embedded null byte" in problems_of(kubeconfigs.write(tmp_path / "config", cluster=cluster, user=user))
