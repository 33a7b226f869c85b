"""Hooks and fixtures of all tests: which tests are real, how workers share them, and one real control plane for each worker."""

import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.workermanage import WorkerController

from cluster.control_plane import ControlPlane
from tests import workers

# A shell that starts us in the background, and cron, have us and every process that a test starts ignore SIGINT. Tests interrupt
# what they start, so it is put back; a handler of our own becomes the default action in a child.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("accelshare", deadline=None)  # speed is measured in bench/; a busy machine fails no test
settings.load_profile("accelshare")

# Fixtures and folders that need root or programs that `make test-real` builds.
REAL_FIXTURES = {"control_plane", "machine", "plain_machine", "throwaway_machine"}
REAL_FOLDERS = ("tests/e2e/", "tests/contract/chart/", "tests/contract/test_prometheus.py")
VIRTUAL_FOLDER = "tests/vm/"
NODES_FOLDER = "tests/e2e/nodes/"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long-runs", action="store_true", help="ten rounds of 50 pods in the tests that kill processes, instead of one of 25"
    )
    parser.addoption("--nodes", action="store_true", help="also the tests on a cluster of three nodes, which take minutes")
    parser.addoption(
        "--coscheduling", action="store_true", help="also the tests with the coscheduling plugin, which is built first"
    )
    parser.addoption(
        "--extender-flag",
        action="append",
        default=[],
        metavar="FLAG",
        help="for every extender on the control plane; repeatable",
    )
    parser.addoption("--write-pictures", action="store_true", help="write the dashboard's pictures into docs/images")


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    """How often a test kills each process."""
    return 10 if request.config.getoption("--long-runs") else 1


@pytest.fixture
def extender_flags(request: pytest.FixtureRequest) -> list[str]:
    """What the run was asked to give to every extender, such as --promises=8."""
    return list(request.config.getoption("--extender-flag"))


@pytest.fixture
def rush_size(request: pytest.FixtureRequest) -> int:
    """How many pods of one rush a real node gets at once."""
    return 50 if request.config.getoption("--long-runs") else 25


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(REAL_FOLDERS) or REAL_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.real)
        if item.nodeid.startswith(VIRTUAL_FOLDER):
            item.add_marker(pytest.mark.vm)
        if item.nodeid.startswith(NODES_FOLDER) and not config.getoption("--nodes"):
            item.add_marker(pytest.mark.skip(reason="tests on three nodes run with `make test-nodes`, or with --nodes"))
    workers.write_machine_tests(config, items)


def pytest_runtest_setup(item: pytest.Item) -> None:
    workers.give_way(item)


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
