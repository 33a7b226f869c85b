"""Distributes tests to pytest-xdist workers: all tests that need the machine's only kubelet or runtime go to one worker.

A test needs the machine if it uses the fixture `machine`, directly or through another fixture. Every other file is one unit of
work, whatever `--dist` is.

Workers collect tests, and the controller distributes them knowing only their names. So each worker writes the names that need the
machine to a file, whose path it gets from the controller. xdist's `--dist loadgroup` groups nothing with pytest 9.2 (its issue
1386).
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

MACHINE: Final = "machine"


class OneMachine(LoadScopeScheduling):
    """Distributes tests file by file, and the machine's tests together."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        self._needs_machine: set[str] = set()

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        self._needs_machine.update(json.loads(Path(node.workerinput[MACHINE]).read_text()))
        super().add_node_collection(node, collection)

    def _split_scope(self, nodeid: str) -> str:
        return MACHINE if nodeid in self._needs_machine else nodeid.partition("::")[0]


def prepare(node: WorkerController) -> None:
    """On the controller: create the file for this worker."""
    with tempfile.NamedTemporaryFile(prefix="needs-machine-", delete=False) as file:
        node.workerinput[MACHINE] = file.name
    node.config.add_cleanup(Path(file.name).unlink)


def write_machine_tests(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On a worker: write the file, and put the machine's tests first, because they take longest."""
    if (worker_input := getattr(config, "workerinput", None)) is None:
        return
    Path(worker_input[MACHINE]).write_text(json.dumps([item.nodeid for item in items if _needs_machine(item)]))
    items.sort(key=_needs_machine, reverse=True)


def _needs_machine(item: pytest.Item) -> bool:
    return MACHINE in getattr(item, "fixturenames", ())
