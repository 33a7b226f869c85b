"""accelshare on the local cluster, as a user installs it: an image built here, the chart, kube-scheduler told by the manager.

Belongs here: putting image, values and chart together, and waiting until pods can ask for cards. Never: what the chart does.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from cluster.build import binaries
from cluster.errors import ClusterError
from cluster.image import build_with_debian
from cluster.local import fake_tools
from cluster.local.layout import NODE_NAME
from cluster.local.local_cluster import LocalCluster
from cluster.waiting import wait_until

CHART: Final = Path(__file__).parents[2] / "deploy/chart/accelshare"
RELEASE: Final = "accelshare"
NAMESPACE: Final = "kube-system"
STATE: Final = "accelshare-scheduler-config"
LIMIT_S: Final = 300.0


def install(local: LocalCluster, say: Callable[[str], None], *, values: Mapping[str, Any] | None = None) -> None:
    """From nothing, or from an older install, to a cluster that shares its fake cards."""
    begun = time.monotonic()
    built = build_with_debian(say)
    assert built.archive is not None
    say("loading the image")
    local.load_image(built.archive)
    fakes = local.state / "fakes"
    fake_tools.write(fakes)
    repository, _, tag = built.reference.rpartition(":")
    wanted = {
        **fake_tools.values(fakes),
        "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
        "nodes": {"names": [NODE_NAME]},
        **(values or {}),
    }
    file = local.state / "values.json"
    file.write_text(json.dumps(wanted, indent=1))
    say(f"helm upgrade --install {RELEASE} {CHART.name} --namespace {NAMESPACE} --values {file}")
    helm(local, "upgrade", "--install", RELEASE, str(CHART), f"--values={file}", "--wait", f"--timeout={LIMIT_S:.0f}s")
    # helm is content with a DaemonSet of which one pod may be missing, and here there is only one.
    for what in ("daemonset/accelshare-agent", "daemonset/accelshare-scheduler-manager", "deployment/accelshare-extender"):
        local.kubectl("rollout", "status", what, f"--namespace={NAMESPACE}", "--timeout=60s")
    wait_until(lambda: _applied(local), "kube-scheduler asks the extender", limit_s=LIMIT_S, every_s=1.0)
    say(f"accelshare is installed: {time.monotonic() - begun:.1f} s")


def helm(local: LocalCluster, *arguments: str) -> str:
    """What helm prints; raises with its words if it fails."""
    program = binaries(["helm"])["helm"]
    surroundings = {
        "HOME": str(local.state),
        "KUBECONFIG": str(local.kubeconfig),
        "PATH": os.environ.get("PATH", os.defpath),
    }
    done = subprocess.run(
        [program, *arguments, f"--namespace={NAMESPACE}"], env=surroundings, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ClusterError(f"helm {arguments[0]} ended with {done.returncode}: {done.stderr.strip()}{_pods(local)}")
    return done.stdout


def _applied(local: LocalCluster) -> bool:
    found = json.loads(
        local.kubectl("get", "configmap", STATE, f"--namespace={NAMESPACE}", "--output=json", "--ignore-not-found") or "{}"
    )
    state = str(found.get("data", {}).get(f"node.{NODE_NAME}", ""))
    if state.startswith("failed"):
        raise ClusterError(f"kube-scheduler could not be told of the extender: {state}")
    return state == "applied"


def _pods(local: LocalCluster) -> str:
    return "\n" + local.kubectl("get", "pods", f"--namespace={NAMESPACE}", "--output=wide")
