"""The kubeconfig file: its shape, and several of them merged into one as kubectl does.

Belongs here: Kubernetes' spellings, and for each entry the folder it was written in, which its relative paths start from.
Never: what to do with an entry (that is `config`).
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import yaml

from accelshare.kube.errors import ConfigError

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C one is ten times faster, where libyaml is there


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


class Server(msgspec.Struct, frozen=True, rename="kebab"):
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


class _NamedServer(msgspec.Struct):
    name: str
    cluster: Server | None = None


class _NamedUser(msgspec.Struct):
    name: str
    user: User | None = None


class _NamedContext(msgspec.Struct):
    name: str
    context: Context | None = None


class _File(msgspec.Struct, rename={"current_context": "current-context"}):
    current_context: str | None = None
    clusters: list[_NamedServer] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None


T = TypeVar("T")


class Entry(msgspec.Struct, Generic[T], frozen=True):
    """One named thing of a kubeconfig, with the file that says so."""

    value: T
    file: Path


class Kubeconfig(msgspec.Struct):
    """All files together."""

    files: list[Path]
    current_context: str
    clusters: dict[str, Entry[Server]]
    users: dict[str, Entry[User]]
    contexts: dict[str, Entry[Context]]


def read(files: Iterable[Path]) -> Kubeconfig:
    """The files merged: for each name, and for the current context, the first file that has it wins."""
    whole = Kubeconfig(files=list(files), current_context="", clusters={}, users={}, contexts={})
    for file in whole.files:
        said = _parse(file)
        whole.current_context = whole.current_context or said.current_context or ""
        for server in said.clusters or ():
            whole.clusters.setdefault(server.name, Entry(server.cluster or Server(), file))
        for user in said.users or ():
            whole.users.setdefault(user.name, Entry(user.user or User(), file))
        for context in said.contexts or ():
            whole.contexts.setdefault(context.name, Entry(context.context or Context(), file))
    return whole


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
