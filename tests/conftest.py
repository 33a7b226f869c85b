"""Shared by all tests: one real control plane for a whole run, or for each of its workers, and which worker runs what."""

import sys
from collections.abc import Iterator

import pytest
from xdist.remote import Producer
from xdist.workermanage import WorkerController

from cluster.control_plane import ControlPlane
from tests import workers


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    workers.tell(config, items)


@pytest.hookimpl(optionalhook=True)  # nobody asks where xdist is off
def pytest_configure_node(node: WorkerController) -> None:
    workers.prepare(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> workers.OneMachine:
    return workers.OneMachine(config, log)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Real etcd, kube-apiserver and kube-controller-manager on loopback, fresh for this run."""
    if sys.platform != "linux":
        pytest.skip(f"the real control plane is built for Linux only, this is {sys.platform}")
    with ControlPlane.start(tmp_path_factory.mktemp("control-plane"), say=print) as plane:
        yield plane
