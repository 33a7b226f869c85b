"""The image runs in a real cluster under the strictest pod security."""

import shutil

import pytest

from accelshare import __version__
from cluster.image import build_with_debian
from cluster.local import LocalCluster
from tests.e2e.local.kubectl_steps import create, delete

pytestmark = pytest.mark.real
TIGHT = {
    "runAsNonRoot": True,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def pod(name: str, reference: str, *arguments: str) -> dict[str, object]:
    container = {
        "name": "main",
        "image": reference,
        "imagePullPolicy": "Never",
        "args": list(arguments),
        "securityContext": TIGHT,
    }
    spec = {"restartPolicy": "Never", "containers": [container], "automountServiceAccountToken": False}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def test_the_image_is_imported_and_runs(local: LocalCluster) -> None:
    """By the name that the chart uses, with neither a registry nor a right."""
    if shutil.which("apt-get") is None:
        pytest.skip("a base image of Debian's packages needs Debian or Ubuntu")
    built = build_with_debian(print)
    assert built.archive is not None
    local.load_image(built.archive)
    create(local, pod("image-version", built.reference, "--version"))
    local.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=300s", "pod/image-version")
    assert local.kubectl("logs", "image-version") == f"accelshare {__version__}\n"
    delete(local, "image-version")
