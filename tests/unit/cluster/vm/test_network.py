"""The virtual node's network never reaches the machine's own."""

from collections.abc import Sequence
from typing import Any

import pytest

from cluster.errors import ClusterError
from cluster.vm import network
from cluster.vm.layout import TAP

LOOPBACK = {"ifname": "lo", "flags": ["LOOPBACK"]}
TUNNEL = {"ifname": "sit0", "flags": ["NOARP"]}  # some kernels make one in each namespace
OURS = {"ifname": TAP, "flags": ["BROADCAST", "UP"]}
ETHERNET = {"ifname": "eth0", "flags": ["BROADCAST", "UP", "LOWER_UP"]}


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    ran: list[Sequence[str]] = []
    monkeypatch.setattr(network, "run", ran.append)
    return ran


def links(monkeypatch: pytest.MonkeyPatch, *found: dict[str, Any]) -> None:
    monkeypatch.setattr(network, "run_json", lambda _command: list(found))


def test_no_tap_is_made_in_the_machines_own_network(monkeypatch: pytest.MonkeyPatch, commands: list[Sequence[str]]) -> None:
    links(monkeypatch, LOOPBACK, ETHERNET)
    with pytest.raises(ClusterError, match="eth0"):
        network.make_tap()
    assert commands == []


def test_in_a_new_namespace_the_tap_is_made_once(monkeypatch: pytest.MonkeyPatch, commands: list[Sequence[str]]) -> None:
    links(monkeypatch, LOOPBACK, TUNNEL)
    network.make_tap()
    assert ["ip", "tuntap", "add", TAP, "mode", "tap"] in commands
    commands.clear()
    links(monkeypatch, LOOPBACK, TUNNEL, OURS)
    network.make_tap()
    assert commands == []
