"""Kubeconfig files for tests."""

import base64
from pathlib import Path
from typing import Any

import yaml


def b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def write(
    path: Path,
    *,
    cluster: dict[str, Any] | None = None,
    user: dict[str, Any] | None = None,
    current: str = "main",
    **more: Any,
) -> Path:
    """A file with one cluster, one user and one context, all named 'main'."""
    whole = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": current,
        "clusters": [{"name": "main", "cluster": {"server": "https://api.test:6443", **(cluster or {})}}],
        "users": [{"name": "main", "user": user or {}}],
        "contexts": [{"name": "main", "context": {"cluster": "main", "user": "main"}}],
        **more,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(whole))
    return path
