"""Adds an extender to kubeadm's kube-scheduler for tests, by editing its static pod, and restores it.

The manifest is replaced in one rename, because kubelet reads whatever it finds.
"""

from __future__ import annotations

import ssl
import urllib.request
from collections.abc import Mapping
from typing import Any, Final

from cluster.local import cgroups, configuration, processes
from cluster.local.layout import Layout
from cluster.local.processes import Identity
from cluster.waiting import wait_until

_MANIFEST: Final = "/etc/kubernetes/manifests/kube-scheduler.yaml"
_ORIGINAL: Final = "/etc/kubernetes/kube-scheduler.original.yaml"
_CONFIGURATION: Final = "/etc/kubernetes/scheduler-configuration.yaml"
_HEALTH: Final = "https://127.0.0.1:10259/readyz"
_LIMIT_S: Final = 300.0


def configure(layout: Layout, extenders: list[Mapping[str, Any]], wanted: Mapping[str, object]) -> None:
    """Returns when the scheduler runs with it."""
    original = layout.covering(_ORIGINAL)
    if not original.exists():
        original.write_text(layout.covering(_MANIFEST).read_text())
    text = configuration.scheduler(extenders, wanted)
    layout.covering(_CONFIGURATION).write_text(text)
    _replace(layout, configuration.with_scheduler_configuration(original.read_text(), _CONFIGURATION, text))


def restore(layout: Layout) -> None:
    """kubeadm's manifest, unchanged."""
    original = layout.covering(_ORIGINAL)
    if original.exists():
        _replace(layout, original.read_text())
        original.unlink()
        layout.covering(_CONFIGURATION).unlink()


def _replace(layout: Layout, manifest: str) -> None:
    before = _process()
    target = layout.covering(_MANIFEST)
    if target.read_text() == manifest:
        return
    fresh = layout.covering("/etc/kubernetes/kube-scheduler.new.yaml")
    fresh.write_text(manifest)
    fresh.chmod(0o600)
    fresh.replace(target)
    wait_until(lambda: _process() not in (None, before) and _serves(), "the new kube-scheduler is ready", limit_s=_LIMIT_S)


def _process() -> Identity | None:
    """The kube-scheduler in the cluster's cgroup."""
    return next((process for process in cgroups.members() if processes.name(process.pid) == "kube-scheduler"), None)


def _serves() -> bool:
    """Not the pod's condition: kubeadm's probe starts after ten seconds."""
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE  # it signs a certificate for itself
    try:
        with urllib.request.urlopen(_HEALTH, timeout=10, context=unverified) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
