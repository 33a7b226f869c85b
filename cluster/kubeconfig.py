"""Writes kubeconfig files with one cluster, one user and one context, all named `accelshare`."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path

import yaml

_NAME = "accelshare"


@dataclass(frozen=True, slots=True)
class Token:
    """A user with a bearer token."""

    value: str


@dataclass(frozen=True, slots=True)
class UserCertificate:
    """A user with a client certificate."""

    certificate: Path
    key: Path


def write_kubeconfig(path: Path, *, url: str, ca_file: Path, user: Token | UserCertificate) -> Path:
    """Write a kubeconfig that holds the CA and, for a certificate, the certificate and key themselves."""
    match user:
        case Token(value):
            credentials = {"token": value}
        case UserCertificate(certificate, key):
            credentials = {"client-certificate-data": _encoded(certificate), "client-key-data": _encoded(key)}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _NAME, "cluster": {"server": url, "certificate-authority-data": _encoded(ca_file)}}],
        "users": [{"name": _NAME, "user": credentials}],
        "contexts": [{"name": _NAME, "context": {"cluster": _NAME, "user": _NAME}}],
        "current-context": _NAME,
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def _encoded(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()
