"""One local cluster for all tests of this directory; the machine as it was before it."""

import os
import sys
from collections.abc import Iterator

import pytest

from cluster.local import LocalCluster
from cluster.local.layout import Layout
from tests.e2e.local.traces import Traces, look


@pytest.fixture(scope="session")
def root_on_linux() -> None:
    if sys.platform != "linux":
        pytest.skip(f"the local cluster runs real containers, so it needs Linux; this is {sys.platform}")
    if os.geteuid() != 0:
        pytest.skip("the local cluster makes namespaces, cgroups and network links, so it needs root")


@pytest.fixture(scope="module")
def nothing_up(root_on_linux: None) -> Traces:
    """The machine without a cluster of ours."""
    if Layout().state.exists():
        pytest.skip("a local cluster is up already, and this test needs the machine without one: `make down` first")
    return look()


@pytest.fixture(scope="module")
def local(root_on_linux: None) -> Iterator[LocalCluster]:
    """A running cluster; one that was up before is used and stays up."""
    with LocalCluster.up(say=print) as cluster:
        yield cluster
