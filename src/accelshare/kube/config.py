"""Finds the cluster, its proxy and our credentials: from a kubeconfig, or from inside a pod.

Belongs here: which source counts, and one `Cluster` from it or an error with all of its problems. Never: a connection.
"""

import base64
import binascii
import ipaddress
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from accelshare.kube import kubeconfig as files
from accelshare.kube.credentials import Certificate, Credentials, TokenFile, anonymous, basic, static_token
from accelshare.kube.errors import ConfigError
from accelshare.kube.tls import Pem, Tls

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
EXEC_EXTENSION: Final = "client.authentication.k8s.io/exec"


@dataclass(frozen=True, slots=True)
class Cluster:
    """One API server, with its TLS settings and credentials."""

    server: str
    credentials: Credentials = field(default_factory=anonymous)
    tls: Tls = field(default_factory=Tls)
    proxy_url: str | None = None
    namespace: str = "default"
    source: str = "given"

    def ssl_context(self, certificate: Certificate | None = None) -> ssl.SSLContext | None:
        """A new context, None for plain HTTP. Reads files. `certificate`: what the credentials presented, if they did."""
        return self.tls.context(certificate) if self.server.startswith("https:") else None


def load(
    kubeconfig: Path | None = None,
    *,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> Cluster:
    """The cluster of the first source that exists: `kubeconfig`, $KUBECONFIG, the pod we run in, ~/.kube/config.

    Raises ConfigError. A `context` needs a kubeconfig, so with one the pod is not a source.
    """
    if kubeconfig is not None:
        return _from_files([kubeconfig], context, environ)
    if listed := [Path(part) for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]:
        present = [path for path in listed if path.exists()]
        if not present:
            raise ConfigError(f"KUBECONFIG is {environ['KUBECONFIG']!r}: none of its files exists; name one, or unset it")
        return _from_files(present, context, environ)
    token, host = service_account / "token", environ.get("KUBERNETES_SERVICE_HOST", "")
    in_pod = bool(host and environ.get("KUBERNETES_SERVICE_PORT") and token.exists())
    if in_pod and context is None:
        return _from_pod(environ, service_account)
    home = environ.get("HOME")
    file = Path(home) / ".kube" / "config" if home else None
    if file is not None and file.exists():
        return _from_files([file], context, environ)
    pod = f"{token} is missing (automountServiceAccountToken?)" if host and not in_pod else "this is not a pod"
    raise ConfigError(
        f"no cluster configured: there is no --kubeconfig, KUBECONFIG is not set, {pod},"
        f" and {file or '~/.kube/config'} does not exist; one of these is needed"
    )


def _from_pod(environ: Mapping[str, str], service_account: Path) -> Cluster:
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ["KUBERNETES_SERVICE_PORT"]
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    ca = Pem(f"service account CA {service_account / 'ca.crt'}", path=service_account / "ca.crt")
    ca.read()
    credentials = TokenFile(service_account / "token")
    credentials.present()
    try:
        namespace = (service_account / "namespace").read_text(encoding="utf-8").strip() or "default"
    except OSError:
        namespace = "default"
    proxy_url = proxy_from_environment(server, environ)
    if proxy_url is not None and not _is_url(proxy_url):
        raise ConfigError(f"the environment's proxy is {proxy_url!r}; it must be an http:// or https:// URL")
    return Cluster(server, credentials, Tls(ca=ca), proxy_url, namespace, source=f"service account {service_account}")


def _from_files(paths: list[Path], context: str | None, environ: Mapping[str, str]) -> Cluster:
    whole = files.read(paths)
    where = "kubeconfig " + ", ".join(map(str, paths))
    name = context or whole.current_context
    if not name:
        raise ConfigError(f"{where}: current-context is not set; set it, or name one of: {_names(whole.contexts)}")
    chosen = whole.contexts.get(name)
    if chosen is None:
        raise ConfigError(f"{where}: there is no context {name!r}; it has: {_names(whole.contexts)}")
    server = whole.clusters.get(chosen.value.cluster)
    if server is None:
        raise ConfigError(
            f"{where}: context {name!r}: there is no cluster {chosen.value.cluster!r}; it has: {_names(whole.clusters)}"
        )
    user = whole.users.get(chosen.value.user) if chosen.value.user else files.Entry(files.User(), chosen.file)
    if user is None:
        raise ConfigError(f"{where}: context {name!r}: there is no user {chosen.value.user!r}; it has: {_names(whole.users)}")
    reading = _Reading(chosen.value.cluster, server, chosen.value.user, user, environ)
    return reading.cluster(chosen.value.namespace or "default", source=f"{where}, context {name!r}")


def _is_url(text: str) -> bool:
    if not text.isprintable() or " " in text:  # urlsplit ignores tabs and line breaks
        return False
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port or an IPv6 address that is none
        return False


def _names(entries: Mapping[str, object]) -> str:
    return ", ".join(sorted(entries)) or "none"


class _Reading:
    """Makes a `Cluster` from one cluster entry and one user entry; collects all problems and raises them together."""

    def __init__(
        self,
        server_name: str,
        server: files.Entry[files.KubeconfigCluster],
        user_name: str,
        user: files.Entry[files.User],
        environ: Mapping[str, str],
    ) -> None:
        self._server, self._user = server.value, user.value
        self._server_file, self._user_file = server.file, user.file
        self._server_label = f"kubeconfig {server.file}: cluster {server_name!r}"
        self._user_label = f"kubeconfig {user.file}: user {user_name!r}"
        self._environ = environ
        self._problems: list[str] = []

    def cluster(self, namespace: str, *, source: str) -> Cluster:
        url = self._url()
        # As kubectl: no credentials are sent over plain HTTP.
        secure = url.startswith("https:")
        tls = self._tls() if secure else Tls()
        credentials = self._credentials(tls) if secure else anonymous()
        proxy_url = self._proxy(url) if _is_url(url) else None
        if self._problems:
            raise ConfigError("\n".join(self._problems))
        return Cluster(url, credentials, tls, proxy_url, namespace, source)

    def _url(self) -> str:
        url = self._server.server
        url = (url if "://" in url or not url else f"https://{url}").rstrip("/")
        if not _is_url(url):
            self._problems.append(f"{self._server_label}: server is {url!r}; it must be like https://10.0.0.1:6443")
        scheme, colon, place = url.partition(":")
        return f"{scheme.lower()}{colon}{place}"

    def _proxy(self, url: str) -> str | None:
        proxy_url = self._server.proxy_url or proxy_from_environment(url, self._environ)
        if proxy_url and not _is_url(proxy_url):
            self._problems.append(f"{self._server_label}: proxy is {proxy_url!r}; it must be an http:// or https:// URL")
        return proxy_url or None

    def _tls(self) -> Tls:
        server, user = self._server, self._user
        ca = self._pem(
            self._server_label,
            self._server_file,
            "certificate-authority",
            server.certificate_authority,
            server.certificate_authority_data,
        )
        if server.insecure_skip_tls_verify and ca is not None:
            self._problems.append(
                f"{self._server_label}: both insecure-skip-tls-verify and a certificate-authority; it must be one of them"
            )
        certificate = self._pem(
            self._user_label, self._user_file, "client-certificate", user.client_certificate, user.client_certificate_data
        )
        key = self._pem(self._user_label, self._user_file, "client-key", user.client_key, user.client_key_data)
        if (certificate is None) != (key is None):
            self._problems.append(f"{self._user_label}: one of client-certificate and client-key; it must be both or none")
        return Tls(ca, not server.insecure_skip_tls_verify, certificate, key, server.tls_server_name or None)

    def _pem(self, label: str, file: Path, key: str, path: str | None, data: str | None) -> Pem | None:
        """Inline data wins over a file, as in kubectl. A file must be readable now and is read again later."""
        if data:
            try:
                return Pem(f"{label}: {key}-data", inline=base64.b64decode("".join(data.split()), validate=True))
            except binascii.Error as error:
                self._problems.append(f"{label}: {key}-data: {error}; it must be base64 of PEM")
        elif path:
            pem = Pem(f"{label}: {key} {path}", path=file.parent / path)
            try:
                pem.read()
            except ConfigError as error:
                self._problems.append(str(error))
            return pem
        return None

    def _credentials(self, tls: Tls) -> Credentials:
        user = self._user
        if user.auth_provider is not None:
            self._problems.append(f"{self._user_label}: auth-provider was removed from Kubernetes in 1.26; use exec instead")
        if user.impersonate:
            self._problems.append(f"{self._user_label}: as (impersonation) is not supported; use a user that has the rights")
        try:
            if user.exec is not None:
                return self._exec(user.exec, tls)
            if user.token_file:
                credentials = TokenFile(self._user_file.parent / user.token_file, fallback=user.token)
                credentials.present()
                return credentials
            if user.token:
                return static_token(user.token)
            if user.username:
                return basic(user.username, user.password or "")
        except ConfigError as error:
            self._problems.append(f"{self._user_label}: {error}")
        return anonymous()

    def _exec(self, plugin: files.Exec, tls: Tls) -> Credentials:
        # Imported only when needed, because subprocess is slow to import.
        from accelshare.kube.exec_plugin import API_VERSIONS, ExecPlugin, Program

        label = f"{self._user_label}: exec"
        if not plugin.command:
            self._problems.append(f"{label}: command is not set; it must name a program")
        if plugin.api_version not in API_VERSIONS:
            self._problems.append(f"{label}: apiVersion is {plugin.api_version!r}; it must be {' or '.join(API_VERSIONS)}")
        modes = ("Never", "IfAvailable") if plugin.api_version == API_VERSIONS[0] else ("Never", "IfAvailable", None, "")
        if plugin.interactive_mode not in modes:
            self._problems.append(
                f"{label}: interactiveMode is {plugin.interactive_mode!r};"
                " it must be Never or IfAvailable, because there is no terminal"
            )
        program = Program(
            command=plugin.command,
            args=tuple(plugin.args or ()),
            environ={**self._environ, **{variable.name: variable.value for variable in plugin.env or ()}},
            api_version=plugin.api_version,
            folder=self._user_file.parent.absolute(),
            install_hint=plugin.install_hint or "",
            cluster=self._for_plugin(tls) if plugin.provide_cluster_info else None,
        )
        return ExecPlugin(program)

    def _for_plugin(self, tls: Tls) -> Mapping[str, Any]:
        """The Cluster object of client.authentication.k8s.io, which is passed to the plugin."""
        server = self._server
        cluster = {
            "server": server.server,
            "tls-server-name": server.tls_server_name,
            "insecure-skip-tls-verify": server.insecure_skip_tls_verify or None,
            "certificate-authority-data": base64.b64encode(tls.ca.read()).decode() if tls.ca is not None else None,
            "proxy-url": server.proxy_url,
            "config": next((each.extension for each in server.extensions or () if each.name == EXEC_EXTENSION), None),
        }
        return {key: value for key, value in cluster.items() if value is not None}


def proxy_from_environment(server: str, environ: Mapping[str, str]) -> str | None:
    """The URL of the HTTP proxy for this server, or None for a direct connection, by Go's rules, because kubectl follows them.

    Not urllib's reading of NO_PROXY, which ignores CIDRs: `NO_PROXY=10.96.0.0/12` would send every request of a pod to the proxy.
    """
    parts = urlsplit(server)
    host, scheme = (parts.hostname or "").rstrip("."), parts.scheme
    proxy = _either(environ, f"{scheme}_proxy")
    if not proxy or _is_local(host):
        return None
    port = parts.port or (443 if scheme == "https" else 80)
    if any(_exempts(rule, host, port) for rule in _either(environ, "no_proxy").split(",")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _either(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name.upper()) or environ.get(name) or ""


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None


def _is_local(host: str) -> bool:
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def _exempts(rule: str, host: str, port: int) -> bool:
    rule = rule.strip().lower()
    if rule in ("", "*"):
        return rule == "*"
    address = _address(host)
    if "/" in rule:
        try:
            return address is not None and address in ipaddress.ip_network(rule, strict=False)
        except ValueError:
            return False
    if _address(rule) is None and rule.rpartition(":")[2].isdigit():
        rule, _, wanted = rule.rpartition(":")
        if int(wanted) != port:
            return False
    if address is not None:
        return address == _address(rule)
    if rule.startswith(("*.", ".")):
        return host.endswith(rule.lstrip("*"))
    return host == rule or host.endswith(f".{rule}")
