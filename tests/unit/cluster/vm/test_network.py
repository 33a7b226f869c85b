"""The virtual node's network never reaches the machine's own."""

import pytest

from cluster.errors import ClusterError
from cluster.vm import network


def test_no_tap_is_made_in_the_machines_own_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> str:
        raise AssertionError("a command was run")

    monkeypatch.setattr(network, "_own_namespace", lambda: False)
    monkeypatch.setattr(network, "run", refuse)
    monkeypatch.setattr(network, "run_json", refuse)
    with pytest.raises(ClusterError, match="network namespace"):
        network.make_tap()
