"""Creates, waits for, reads and deletes pods of the local cluster with kubectl."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from cluster.local import LocalCluster
from cluster.waiting import wait_until

ROOT = Path(__file__).parents[3]
SLEEP = ["sh", "-c", "echo begun; trap exit TERM; while :; do sleep 1; done"]


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m cluster` with these arguments, run to its end."""
    return subprocess.run([sys.executable, "-m", "cluster", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def pod(name: str, *, command: list[str] | None = None, labels: dict[str, str] | None = None, **spec: object) -> dict[str, Any]:
    """A pod of busybox that sleeps, or does this."""
    container = {"name": "main", "image": LocalCluster.test_image, "command": command or SLEEP}
    content = {"terminationGracePeriodSeconds": 1, "containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels or {}}, "spec": content}


def create(local: LocalCluster, *objects: dict[str, Any]) -> None:
    local.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))


def ready(local: LocalCluster, *names: str) -> None:
    local.kubectl("wait", "--for=condition=Ready", "--timeout=300s", *(f"pod/{name}" for name in names))


def read(local: LocalCluster, kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(local.kubectl("get", kind, name, "--output=json"))
    return found


def container_id(local: LocalCluster, name: str) -> str:
    return str(read(local, "pod", name)["status"]["containerStatuses"][0]["containerID"])


def delete(local: LocalCluster, *names: str) -> None:
    local.kubectl("delete", "pod", "--ignore-not-found", *names)
    wait_until(lambda: not set(local.kubectl("get", "pods", "--output=name").split()) & {f"pod/{n}" for n in names}, "pods gone")
