"""Installs accelshare on the local cluster as a user does: an image built here, the chart, the manager.

Belongs here: putting image, values and chart together, and waiting until pods can ask for cards. Never: what the chart does.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from cluster.errors import ClusterError
from cluster.image import build_with_debian
from cluster.local import fake_tools
from cluster.local.layout import NODE_NAME
from cluster.local.local_cluster import LocalCluster
from cluster.waiting import wait_until
from deploy import render
from deploy.render import CHART, NAMESPACE, HelmError

RELEASE: Final = "accelshare"
STATE: Final = "accelshare-scheduler-config"
LIMIT_S: Final = 480.0


def install(local: LocalCluster, say: Callable[[str], None], *, values: Mapping[str, Any] | None = None) -> None:
    """From nothing, or from an older install, to a cluster that shares its fake cards."""
    begun = time.monotonic()
    file = provide(local, say)
    say(f"helm upgrade --install {RELEASE} {CHART.name} --namespace {NAMESPACE} --values {file}")
    upgrade(local, values or {})
    settle(local)
    say(f"accelshare is installed: {time.monotonic() - begun:.1f} s")


def provide(local: LocalCluster, say: Callable[[str], None]) -> Path:
    """The image in each node's containerd, the fake tools on each node, and the file with the values that name them."""
    built = build_with_debian(say)
    assert built.archive is not None
    say("loading the image")
    for node in local.nodes:
        node.load_image(built.archive)
        fake_tools.write(node.fakes, node.number)
    repository, _, tag = built.reference.rpartition(":")
    image = {"repository": repository, "tag": tag, "pullPolicy": "Never"}
    file = local.state / "values.json"
    names = [node.node_name for node in local.nodes]
    file.write_text(json.dumps({**fake_tools.values(local.fakes), "image": image, "nodes": {"names": names}}, indent=1))
    return file


def upgrade(local: LocalCluster, values: Mapping[str, Any]) -> None:
    """helm upgrade --install with these values laid over those of `provide`."""
    more = local.state / "more-values.json"
    more.write_text(json.dumps(values))
    files = (f"--values={local.state / 'values.json'}", f"--values={more}")
    helm(local, "upgrade", "--install", RELEASE, str(CHART), *files, "--wait", f"--timeout={LIMIT_S:.0f}s")


def settle(local: LocalCluster) -> None:
    """Wait until pods can ask for cards."""
    # helm is content with a DaemonSet of which one pod may be missing, and here there is only one.
    for what in ("daemonset/accelshare-agent", "daemonset/accelshare-scheduler-manager", "deployment/accelshare-extender"):
        local.kubectl("rollout", "status", what, f"--namespace={NAMESPACE}", "--timeout=300s")
    wait_until(lambda: _applied(local), "kube-scheduler asks the extender", limit_s=LIMIT_S, every_s=1.0)


def helm(local: LocalCluster, *arguments: str) -> str:
    """The output of helm; raises with its error text if it fails."""
    try:
        return render.helm(*arguments, f"--namespace={NAMESPACE}", kubeconfig=local.kubeconfig)
    except HelmError as error:
        raise ClusterError(f"{error}{_pods(local)}") from error


def _applied(local: LocalCluster) -> bool:
    found = json.loads(
        local.kubectl("get", "configmap", STATE, f"--namespace={NAMESPACE}", "--output=json", "--ignore-not-found") or "{}"
    )
    state = str(found.get("data", {}).get(f"node.{NODE_NAME}", ""))
    if state.startswith("failed"):
        raise ClusterError(f"kube-scheduler was not configured for the extender: {state}")
    return state == "applied"


def _pods(local: LocalCluster) -> str:
    return "\n" + local.kubectl("get", "pods", f"--namespace={NAMESPACE}", "--output=wide")
