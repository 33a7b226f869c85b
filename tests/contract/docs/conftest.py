"""Fixtures: a control plane for the docs' tests, and the machine on which they run commands."""

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from cluster.components import DEFAULT_CONTROLLERS
from cluster.control_plane import ControlPlane
from tests.contract.docs.machine import Machine, possible
from tests.e2e.scheduling_cluster import SchedulingCluster, open_scheduling_cluster

KINDS = "deployments,daemonsets,jobs,cronjobs,services,configmaps,secrets"
# What controllers, and nobody else, keep in kube-system.
OF_THE_CLUSTER = (
    "kube-root-ca.crt",
    "extension-apiserver-authentication",
    "kube-apiserver-legacy-service-account-token-tracking",
)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """As for all tests, and it looks after DaemonSets too."""
    if sys.platform != "linux":
        pytest.skip(f"the real control plane is built for Linux only, this is {sys.platform}")
    controllers = (*DEFAULT_CONTROLLERS, "daemonset-controller")
    with ControlPlane.start(tmp_path_factory.mktemp("docs-plane"), say=print, controllers=controllers) as plane:
        yield plane


@pytest.fixture
async def scheduling_cluster(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[SchedulingCluster]:
    """An empty cluster, which a page's commands leave as empty."""
    async with open_scheduling_cluster(control_plane, tmp_path) as opened:
        yield opened
        left = control_plane.kubectl("get", KINDS, "--namespace=kube-system", "--output=name").split()
        if names := [name for name in left if name.rpartition("/")[2] not in OF_THE_CLUSTER]:
            control_plane.kubectl("delete", "--namespace=kube-system", "--wait=false", *names)


@pytest.fixture
def plain_machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine without a cluster."""
    if why := possible():
        pytest.skip(why)
    with Machine(tmp_path / "docs") as made:
        yield made


@pytest.fixture
def machine(plain_machine: Machine) -> Machine:
    """The same for commands that start a container runtime or build an image: by this name, tests/workers.py runs them alone."""
    return plain_machine


@pytest.fixture
def throwaway_machine(tmp_path: Path, control_plane: ControlPlane) -> Iterator[Machine]:
    """A machine whose kubectl leads to the control plane."""
    if why := possible():
        pytest.skip(why)
    environment = {"KUBECONFIG": str(control_plane.kubeconfig)}
    with Machine(tmp_path / "docs", seen=[control_plane.directory], environment=environment) as made:
        yield made
