"""A start that fails at a further node leaves nothing on the machine but that node's log."""

import re
from pathlib import Path

import pytest

from cluster.errors import ClusterError
from cluster.local import LocalCluster, configuration
from cluster.local.layout import Layout
from tests.e2e.local.machine_state import machine_state

pytestmark = pytest.mark.real


def test_nothing_is_left_of_a_start_whose_second_node_fails(root: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first node is up by then, and the second one has its namespaces, its links and a running containerd."""
    LocalCluster.take_down()
    before = machine_state()
    command = configuration.kubelet_command

    def fails_on_the_second(program: Path, layout: Layout) -> list[str]:
        return command(program, layout) if layout.first else [str(program), "--nonsense"]

    monkeypatch.setattr(configuration, "kubelet_command", fails_on_the_second)
    with pytest.raises(ClusterError, match=r"(?s)^accelshare-local-2: .*unknown flag: --nonsense") as failure:
        LocalCluster.up(say=print, fake_cards=True, nodes=2)
    log = re.search(r"the end of (\S+kubelet\.log)", str(failure.value))
    assert log is not None
    assert "unknown flag: --nonsense" in Path(log[1]).read_text()
    assert machine_state() == before
