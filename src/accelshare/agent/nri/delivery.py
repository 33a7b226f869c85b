"""Keeps the agent connected to the container runtime, and reports for which kinds the node can deliver through it.

Belongs here: the connection's life, checking the runtime's validator each time it connects, and which NRI events we subscribe to.
Never: the answers (container_handler.py).
"""

import asyncio
import contextlib
import logging
import threading
from pathlib import Path
from typing import Final

from accelshare.agent.delivery import DeliverySelector, DeliveryState
from accelshare.agent.delivery_mode import CurrentMode, Deliverer
from accelshare.agent.device_plugin.leftovers import PluginLeftovers
from accelshare.agent.discovery.device_inventory import DeviceInventory
from accelshare.agent.limits.review import LimitReview
from accelshare.agent.nri.container_handler import ContainerHandler
from accelshare.agent.nri.outcomes import OutcomeQueue
from accelshare.agent.nri.protocol import connection
from accelshare.agent.nri.protocol.lock import exclusive_lock, is_held
from accelshare.agent.nri.protocol.nri_pb2 import Event
from accelshare.agent.nri.protocol.updates import ContainerUpdates
from accelshare.agent.pinned_records import PinnedRecords
from accelshare.agent.pod_store import PodStore
from accelshare.agent.repairs import Repairs
from accelshare.runtimes.validator_status import Files, ValidatorState, ValidatorStatus, validator_status
from accelshare.runtimes.versions import asks_validators, takes_cdi
from accelshare.wire.assignment import PLUGIN

log = logging.getLogger(__name__)
INDEX: Final = 10  # among other plugins; plugins with a higher index see what we did
LOCK: Final = "accelshare.lock"
CHECK_S: Final = 1.0
FIRST_CONTACT_S: Final = 15.0  # a runtime answers within moments, or 5 s for each silent plugin before us


class NriDelivery:
    """Delivery through the container runtime's plugin interface."""

    def __init__(
        self,
        devices: DeviceInventory,
        handler: ContainerHandler,
        *,
        mode: CurrentMode,
        selector: DeliverySelector,
        state: DeliveryState,
        outcomes: OutcomeQueue,
        repairs: Repairs,
        pins: PinnedRecords,
        pods: PodStore,
        leftovers: PluginLeftovers,
        limit_review: LimitReview,
        sets_limits: bool,
        updates: ContainerUpdates,
        socket: Path,
        files: Files,
    ) -> None:
        """`sets_limits`: the agent may set limits on containers before they start."""
        self._devices = devices
        self._handler = handler
        self._mode = mode
        self._selector = selector
        self._state = state
        self._outcomes = outcomes
        self._repairs = repairs
        self._pins = pins
        self._pods = pods
        self._leftovers = leftovers
        self._limit_review = limit_review
        self._sets_limits = sets_limits
        self._updates = updates
        self._socket = socket
        self._files = files
        self._blocked: set[str] = set()  # kinds for which kubelet still asks a device plugin, as logged
        self._connected = asyncio.Event()
        self._has_lock = False  # no other agent of this node is connected
        self._validator_lock = threading.Lock()  # written on the thread that answers the runtime
        self._validator = ValidatorStatus(ValidatorState.UNKNOWN, f"no container runtime has answered at {socket}")
        devices.on_change(self._report)

    @property
    def validator(self) -> ValidatorStatus:
        """The state of the validator of the runtime that connected last."""
        with self._validator_lock:
            return self._validator

    async def connect(self) -> None:
        """Stay connected to the runtime, until cancelled."""
        async with exclusive_lock(self._socket.parent / LOCK):
            self._has_lock = True
            await connection.serve(
                self._socket,
                PLUGIN,
                INDEX,
                self._handler,
                select_events=self._configure,
                on_connected=self._on_connected,
                on_disconnected=self._on_disconnected,
                updates=self._updates,
            )

    async def first_contact(self) -> bool:
        """Whether a runtime has connected; waits for one if its socket exists.

        While another agent of this node is connected, say because it drains, nothing is known of the runtime. A device plugin
        that registered then would be remembered by kubelet for minutes.
        """
        lock = self._socket.parent / LOCK
        while not self._has_lock and self._socket.exists() and is_held(lock):  # noqa: ASYNC110 – a lock has no event
            await asyncio.sleep(CHECK_S)
        if self._socket.exists():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FIRST_CONTACT_S):
                    await self._connected.wait()
        return self._connected.is_set()

    async def run(self) -> None:
        """Report the kinds that the node delivers, until cancelled."""
        while True:
            vendors = self._devices.kinds.values()
            await self._leftovers.drop_ended_pods([name for one in vendors for name, _ in self._devices.resources(one.profile)])
            self._report()
            await asyncio.sleep(CHECK_S)

    def review_containers(self) -> None:
        """Look at containers that were there before us: report those that are not entitled to their cards, and, if NRI delivers,
        flag the pods that have their cards, replace those whose containers lack them, and check limits.
        """
        for unentitled in self._handler.unentitled():  # they run, so they are reported and not ended
            self._outcomes.put(unentitled)
        if self._mode.get().by_nri:
            for pod in self._handler.served_before():
                self._repairs.flag_assigned(pod)
            for pod, container in self._handler.lacking_cards():
                self._repairs.replace_lacking(pod, container)
            self._limit_review.request()

    def _report(self) -> None:
        for name, kind in self._devices.kinds.items() if self._mode.get().by_nri else ():
            resources = [resource for resource, _ in self._devices.resources(kind.profile)]
            blocked = [resource for resource in resources if self._leftovers.refuses(resource)]
            if blocked and name not in self._blocked:
                self._blocked.add(name)
                served = self._leftovers.served(blocked)
                until = f"until these pods end: {', '.join(served)}" if served else "until 5 minutes after the plugin has ended"
                problem = f"kubelet asks a device plugin for these resources {until}"
                log.warning("delivery kind=%s resources=%s problem=%r", name, ",".join(blocked), problem)
            elif not blocked and name in self._blocked:
                self._blocked.discard(name)
                log.info("delivery kind=%s outcome=unblocked", name)
            self._state.report(name, self._connected.is_set() and not blocked)

    def _configure(self, runtime: str, version: str) -> list[Event]:
        """The NRI events that we subscribe to. Called on the thread that answers the runtime, before any container."""
        self._handler.runtime_configured(takes_cdi=takes_cdi(runtime, version))
        validator = validator_status(runtime, version, files=self._files, socket=self._socket)
        with self._validator_lock:
            self._validator = validator
        events = [Event.CREATE_CONTAINER]
        if asks_validators(runtime, version):
            # If we die or are late while a container is created, no plugin answers this call, and the container is refused.
            events.append(Event.VALIDATE_CONTAINER_ADJUSTMENT)
        if self._sets_limits or not validator.enabled:
            # A container's cgroup exists from here on; and the container may have been created while we were away.
            events.append(Event.START_CONTAINER)
        return events

    def _on_connected(self, runtime: str, version: str) -> None:
        validator = self.validator
        log.info("nri runtime=%s version=%s validator=%s reason=%r", runtime, version, validator.enabled, validator.why)
        for pod in self._pins.check(self._handler.delivered()):
            self._pods.put(pod)
        self._connected.set()
        self._selector.runtime_connected(validator)
        if self._mode.get().deliverer is not Deliverer.UNDECIDED:
            self.review_containers()
        self._report()

    def _on_disconnected(self) -> None:
        self._connected.clear()
        self._report()
