"""An audit log of what ServiceAccounts ask an API server for: its policy and flags. No I/O."""

from __future__ import annotations

from pathlib import Path

import yaml


def policy() -> str:
    """Who asked for what, without contents; nothing of anybody else."""
    rules = [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}]
    content = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": rules}
    return yaml.safe_dump(content)


def policy_file(directory: Path) -> Path:
    return directory / "policy.yaml"


def log_file(directory: Path) -> Path:
    return directory / "audit.log"


def flags(directory: Path) -> dict[str, str]:
    """For an API server that sees this directory."""
    return {"audit-policy-file": str(policy_file(directory)), "audit-log-path": str(log_file(directory))}
