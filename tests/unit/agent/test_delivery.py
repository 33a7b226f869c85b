"""Selecting the delivery mode, and asking for a restart when another one becomes right."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from accelshare.agent.changes import Changes
from accelshare.agent.delivery import DeliverySelector, DeliveryState, RuntimeChangedError
from accelshare.agent.delivery_mode import CurrentMode
from accelshare.agent.device_plugin.leftovers import PluginLeftovers
from accelshare.agent.discovery.device_inventory import DeviceInventory
from accelshare.agent.metrics import AgentMetrics
from accelshare.agent.pod_feed import PodFeed
from accelshare.runtimes.validator_status import ValidatorState, ValidatorStatus
from accelshare.vendors.catalog import load

ON = ValidatorStatus(ValidatorState.ENABLED, "the validator is on")
OFF = ValidatorStatus(ValidatorState.OFF, "the validator is off")


class Leftovers:
    """Pods that a device plugin has served."""

    pods: tuple[str, ...] = ()

    def served(self, _resources: object) -> list[str]:
        return list(self.pods)


class Node:
    def __init__(self, requested: str = "auto") -> None:
        self.mode, self.devices, self.leftovers = CurrentMode(), DeviceInventory(), Leftovers()
        self.selector = DeliverySelector(
            requested,
            list(load()),
            current=self.mode,
            devices=self.devices,
            leftovers=cast("PluginLeftovers", self.leftovers),
            metrics=AgentMetrics(),
        )

    async def wants_restart(self) -> bool:
        waiting = asyncio.ensure_future(self.selector.until_another_mode_is_right())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if not waiting.done():
            waiting.cancel()
            return False
        with pytest.raises(RuntimeChangedError):
            waiting.result()
        return True


async def test_a_runtime_that_connects_before_the_selection_changes_nothing() -> None:
    node = Node()
    node.selector.runtime_connected(ON)
    assert node.mode.get().name == ""
    node.selector.select(ON, connected=True)
    assert (node.devices.delivery, node.devices.validated) == ("nri", True)
    assert not await node.wants_restart()


async def test_a_runtime_that_comes_back_without_its_validator_ends_nri_delivery() -> None:
    node = Node()
    node.selector.select(ON, connected=True)
    node.selector.runtime_connected(OFF)
    assert await node.wants_restart()
    assert node.mode.get().by_nri  # until the process has ended


async def test_with_the_flag_nri_stays_and_only_the_guarantee_changes() -> None:
    node = Node("nri")
    node.selector.select(ON, connected=True)
    node.selector.runtime_connected(OFF)
    assert not await node.wants_restart()
    assert (node.devices.delivery, node.devices.validated) == ("nri", False)


async def test_a_runtime_that_comes_late_corrects_what_device_plugins_deliver() -> None:
    node = Node()
    node.selector.select(OFF, connected=False)
    assert node.devices.delivery == "device-plugin"
    node.selector.runtime_connected(OFF)
    assert node.devices.delivery == "device-plugin+nri"
    assert node.mode.get().corrected_kinds
    assert not await node.wants_restart()


async def test_device_plugins_go_on_while_pods_live_that_they_served() -> None:
    node = Node()
    node.leftovers.pods = ("default/trains",)
    node.selector.select(ON, connected=True)
    assert node.devices.delivery == "device-plugin+nri"
    node.selector.runtime_connected(ON)
    assert not await node.wants_restart()


async def test_without_such_pods_a_runtime_that_comes_late_takes_over_at_the_next_start() -> None:
    node = Node()
    node.selector.select(OFF, connected=False)
    node.selector.runtime_connected(ON)
    assert await node.wants_restart()


class Feed:
    """A watch of pods that can be interrupted."""

    def __init__(self) -> None:
        self.current = True
        self.current_changed = Changes()


def test_a_node_delivers_only_while_its_agent_runs_and_sees_pods() -> None:
    devices, feed = DeviceInventory(), Feed()
    state = DeliveryState(devices, cast("PodFeed", feed))

    def set_current(current: bool) -> None:
        feed.current = current
        feed.current_changed.announce()

    steps: dict[str, Callable[[], None]] = {
        "starting": lambda: state.report("zpu", True),
        "running": state.start,
        "sees no pods": lambda: set_current(False),
        "sees pods again": lambda: set_current(True),
        "shutting down": state.stop,
    }
    delivers = {}
    for name, step in steps.items():
        step()
        delivers[name] = devices.delivers["zpu"]
    assert [name for name, is_delivering in delivers.items() if is_delivering] == ["running", "sees pods again"]
