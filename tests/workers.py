"""Distributes tests to pytest-xdist workers: all tests that need the machine's only kubelet or runtime go to one worker.

A test needs the machine if it uses the fixture `machine`, directly or through another fixture. Every other file is one unit of
work, whatever `--dist` is; the docs' files are one together, and so are those of queues: they share a control plane of their own.

The machine's tests take longest and wait for containers, so all other workers give way to theirs. The longest of the other files
begin first, so that no worker has one left when the others have ended.

Workers collect tests, and the controller distributes them knowing only their names. So each worker writes the names that need the
machine to a file, whose path it gets from the controller. xdist's `--dist loadgroup` groups nothing with pytest 9.2 (its issue
1386).
"""

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

MACHINE: Final = "machine"
DOCS: Final = "tests/contract/docs/"
QUEUES: Final = "tests/e2e/queues/"
NOTHING_UP: Final = "nothing_up"  # a fixture that ends the local cluster, which tests before it leave to each other
LESS_IMPORTANT: Final = 3  # the niceness of real tests that do not need the machine; at 5 they starve on a slow one
# Those that take longest, by the times that tests/__main__.py prints. All others follow as they are collected.
LONGEST_FIRST: Final = (
    DOCS,
    QUEUES,
    "tests/e2e/install/test_helm.py",
    "tests/e2e/test_old_schedulers.py",
    "tests/e2e/install/test_scripts.py",
    "tests/e2e/test_managing_killed.py",
    "tests/e2e/test_rush.py",
    "tests/e2e/test_scheduler_config.py",
    "tests/e2e/test_failover.py",
    "tests/e2e/test_trust.py",
    "tests/contract/test_prometheus.py",
)


class OneMachine(LoadScopeScheduling):
    """Distributes tests file by file, and the machine's tests together."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        self._needs_machine: set[str] = set()

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        self._needs_machine.update(json.loads(Path(node.workerinput[MACHINE]).read_text()))
        super().add_node_collection(node, collection)

    def _split_scope(self, nodeid: str) -> str:
        if nodeid in self._needs_machine:
            return MACHINE
        return next((folder for folder in (DOCS, QUEUES) if nodeid.startswith(folder)), nodeid.partition("::")[0])


def prepare(node: WorkerController) -> None:
    """On the controller: create the file for this worker."""
    with tempfile.NamedTemporaryFile(prefix="needs-machine-", delete=False) as file:
        file.write(b"[]")  # a worker that cannot collect, for instance because a path does not exist, writes nothing
        node.workerinput[MACHINE] = file.name
    node.config.add_cleanup(Path(file.name).unlink)


def write_machine_tests(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On a worker: write the file, and put the tests in order: the machine's, the longest files, all others."""
    if (worker_input := getattr(config, "workerinput", None)) is None:
        return
    Path(worker_input[MACHINE]).write_text(json.dumps([item.nodeid for item in items if _needs_machine(item)]))
    items.sort(key=_turn)


def give_way(item: pytest.Item) -> None:
    """On a worker, before a real test: let the machine's tests on another worker have the processor first.

    For good: a worker that has ended the machine's tests has only such tests left.
    """
    real = item.get_closest_marker("real") is not None
    if hasattr(item.config, "workerinput") and real and not _needs_machine(item):
        os.setpriority(os.PRIO_PROCESS, 0, max(LESS_IMPORTANT, os.getpriority(os.PRIO_PROCESS, 0)))


def _turn(item: pytest.Item) -> tuple[bool, int]:
    if _needs_machine(item):
        return False, int(NOTHING_UP in getattr(item, "fixturenames", ()))
    place = next((place for place, path in enumerate(LONGEST_FIRST) if item.nodeid.startswith(path)), len(LONGEST_FIRST))
    return True, place


def _needs_machine(item: pytest.Item) -> bool:
    return MACHINE in getattr(item, "fixturenames", ())
