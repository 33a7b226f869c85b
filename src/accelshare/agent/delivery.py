"""What both ways of delivery share: the selection of one of them, and the kinds that the node delivers now.

Belongs here: when the mode is decided, and ending the process when another mode becomes right. Never: which mode is right
(delivery_mode.py), how a container gets its cards (device_plugin/, nri/).
"""

import asyncio
import logging
from collections.abc import Collection
from typing import Never

from accelshare.agent.container_cards import correctable
from accelshare.agent.delivery_mode import AUTO, CurrentMode, Deliverer, DeliveryMode, decide
from accelshare.agent.device_plugin.leftovers import PluginLeftovers
from accelshare.agent.discovery.device_inventory import DeviceInventory
from accelshare.agent.metrics import AgentMetrics
from accelshare.agent.pod_feed import PodFeed
from accelshare.runtimes.validator_status import ValidatorStatus
from accelshare.vendors.profile import Profile

log = logging.getLogger(__name__)


class DeliveryState:
    """For which kinds the node can deliver cards now, as the inventory shows it.

    A node whose agent is starting, sees no pods, or is shutting down delivers nothing, whatever its delivery reports.
    """

    def __init__(self, devices: DeviceInventory, pod_feed: PodFeed) -> None:
        self._devices = devices
        self._pod_feed = pod_feed
        self._reported: dict[str, bool] = {}
        self._running = False
        pod_feed.current_changed.subscribe(self._show)

    def report(self, kind: str, delivers: bool) -> None:
        self._reported[kind] = delivers
        self._show()

    def start(self) -> None:
        """All parts of the agent run."""
        self._running = True
        self._show()

    def stop(self) -> None:
        """The agent is shutting down."""
        self._running = False
        self._show()

    def _show(self) -> None:
        able = self._pod_feed.current and self._running
        for kind, delivers in list(self._reported.items()):  # each change of the inventory makes the delivery report again
            self._devices.set_delivers(kind, delivers and able)


class RuntimeChangedError(Exception):
    """The mode that was decided at the start is not right any more; the next start decides again."""


class DeliverySelector:
    """Decides the mode at the start and looks at it again whenever a runtime connects."""

    def __init__(
        self,
        requested: str,
        profiles: Collection[Profile],
        *,
        current: CurrentMode,
        devices: DeviceInventory,
        leftovers: PluginLeftovers,
        metrics: AgentMetrics,
    ) -> None:
        self._requested = requested
        self._profiles = profiles
        self._current = current
        self._devices = devices
        self._leftovers = leftovers
        self._metrics = metrics
        self._restart: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def uses_nri(self) -> bool:
        """Whether the flags allow to connect to the runtime at all."""
        return self._requested != Deliverer.DEVICE_PLUGIN.value

    def select(self, validator: ValidatorStatus, *, connected: bool) -> DeliveryMode:
        """Decide the mode of this process."""
        mode = self._decide(validator, connected=connected)
        self._set(mode)
        log.info("delivery mode=%s validated=%s reason=%r", mode.name, mode.validated, mode.reason)
        if mode.by_nri and not mode.validated:
            log.warning("delivery mode=nri problem='containers may start without their card while the agent is away'")
        return mode

    def runtime_connected(self, validator: ValidatorStatus) -> None:
        """A runtime has connected, perhaps after a restart with another configuration."""
        self._metrics.validated.set(validator.enabled)
        current = self._current.get()
        if current.deliverer is Deliverer.UNDECIDED:
            return
        mode = self._decide(validator, connected=True)
        if mode.deliverer is current.deliverer:
            self._set(mode)
        elif not self._restart.done():
            self._restart.set_result(f"the container runtime has changed, and {mode.name} must deliver now: {validator.why}")

    async def until_another_mode_is_right(self) -> Never:
        """Raise RuntimeChangedError as soon as another deliverer is right than the one that was selected."""
        raise RuntimeChangedError(f"restarting: {await self._restart}")

    def _decide(self, validator: ValidatorStatus, *, connected: bool) -> DeliveryMode:
        resources = [resource for profile in self._profiles for resource, _ in self._devices.resources(profile)]
        ask = self._requested == AUTO and validator.enabled and not self._current.get().by_nri
        served = self._leftovers.served(resources) if ask else []
        if served:
            log.warning("delivery mode=device-plugin waiting_for_pods=%s", ",".join(served))
        return decide(
            self._requested,
            validator=validator,
            connected=connected,
            served_pods=served,
            correctable_kinds=[profile.name for profile in self._profiles if correctable(profile)],
        )

    def _set(self, mode: DeliveryMode) -> None:
        self._current.set(mode)
        self._devices.set_delivery(mode.name, validated=mode.validated)
