"""Reads kubeconfig files and merges several of them, as kubectl does.

Belongs here: the shape of the file, and the file of each entry, because its relative paths start there.
Never: what an entry is used for (config.py).
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import yaml

from accelshare.kube.errors import ConfigError

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C one is ten times faster; it needs libyaml


class ExecEnv(msgspec.Struct, frozen=True):
    name: str
    value: str = ""


class Exec(msgspec.Struct, frozen=True, rename="camel"):
    command: str = ""
    api_version: str = ""
    args: list[str] | None = None
    env: list[ExecEnv] | None = None
    install_hint: str | None = None
    provide_cluster_info: bool = False
    interactive_mode: str | None = None


class User(msgspec.Struct, frozen=True, rename="kebab"):
    token: str | None = None
    token_file: str | None = msgspec.field(default=None, name="tokenFile")
    username: str | None = None
    password: str | None = None
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    exec: Exec | None = None
    auth_provider: Any = None
    impersonate: str | None = msgspec.field(default=None, name="as")


class NamedExtension(msgspec.Struct, frozen=True):
    name: str
    extension: Any = None


class KubeconfigCluster(msgspec.Struct, frozen=True, rename="kebab"):
    server: str = ""
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None
    extensions: list[NamedExtension] | None = None


class Context(msgspec.Struct, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str | None = None


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: KubeconfigCluster | None = None


class _NamedUser(msgspec.Struct):
    name: str
    user: User | None = None


class _NamedContext(msgspec.Struct):
    name: str
    context: Context | None = None


class _File(msgspec.Struct, rename={"current_context": "current-context"}):
    current_context: str | None = None
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None


T = TypeVar("T")


class Entry(msgspec.Struct, Generic[T], frozen=True):
    """One cluster, user or context, and the file that it is from."""

    value: T
    file: Path


class Kubeconfig(msgspec.Struct):
    """All files, merged."""

    files: list[Path]
    current_context: str
    clusters: dict[str, Entry[KubeconfigCluster]]
    users: dict[str, Entry[User]]
    contexts: dict[str, Entry[Context]]


def read(files: Iterable[Path]) -> Kubeconfig:
    """Merge the files: for each name, and for the current context, the first file that has it wins."""
    merged = Kubeconfig(files=list(files), current_context="", clusters={}, users={}, contexts={})
    for file in merged.files:
        content = _parse(file)
        merged.current_context = merged.current_context or content.current_context or ""
        for server in content.clusters or ():
            merged.clusters.setdefault(server.name, Entry(server.cluster or KubeconfigCluster(), file))
        for user in content.users or ():
            merged.users.setdefault(user.name, Entry(user.user or User(), file))
        for context in content.contexts or ():
            merged.contexts.setdefault(context.name, Entry(context.context or Context(), file))
    return merged


def _parse(file: Path) -> _File:
    try:
        text = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"kubeconfig {file}: {error.strerror or error}; it must be a readable file") from error
    try:
        loaded = yaml.load(text, Loader=_Loader)  # noqa: S506 – a safe loader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"kubeconfig {file}: not YAML: {error}") from error
    if loaded is None:
        return _File()
    try:
        return msgspec.convert(loaded, type=_File)
    except msgspec.ValidationError as error:
        raise ConfigError(f"kubeconfig {file}: {error}") from error
