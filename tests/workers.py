"""Which tests may run side by side when pytest has several workers: those that use what a machine has once are one unit of work.

Belongs here: telling xdist. Never: which tests they are. A test says so by the fixture `machine`, its own or that of a fixture of
its own. Any other file is a unit too, whatever `--dist` says.

Workers collect, and the controller deals out, knowing names only; so each worker is given a file in which to say which names need
the machine. xdist's own way, `--dist loadgroup`, groups nothing with pytest 9.2 (its issue 1386).
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
    """Deals out file by file, and the machine's tests together."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        self._needs_machine: set[str] = set()

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        self._needs_machine.update(json.loads(Path(node.workerinput[MACHINE]).read_text()))
        super().add_node_collection(node, collection)

    def _split_scope(self, nodeid: str) -> str:
        return MACHINE if nodeid in self._needs_machine else nodeid.partition("::")[0]


def prepare(node: WorkerController) -> None:
    """On the controller: the file for this worker."""
    with tempfile.NamedTemporaryFile(prefix="needs-machine-", delete=False) as file:
        node.workerinput[MACHINE] = file.name
    node.config.add_cleanup(Path(file.name).unlink)


def tell(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On a worker: write the file, and put the machine's tests first, because together they take longest."""
    if (told := getattr(config, "workerinput", None)) is None:
        return
    Path(told[MACHINE]).write_text(json.dumps([item.nodeid for item in items if _needs_machine(item)]))
    items.sort(key=_needs_machine, reverse=True)


def _needs_machine(item: pytest.Item) -> bool:
    return MACHINE in getattr(item, "fixturenames", ())
