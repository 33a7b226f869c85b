"""Shared by all tests: one real control plane for the whole run, and the names of what could not run."""

import sys
from collections.abc import Iterator

import pytest

from cluster.control_plane import ControlPlane


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Real etcd, kube-apiserver and kube-controller-manager on loopback, fresh for this run."""
    if sys.platform != "linux":
        pytest.skip(f"the real control plane is built for Linux only, this is {sys.platform}")
    with ControlPlane.start(tmp_path_factory.mktemp("control-plane"), say=print) as plane:
        yield plane
