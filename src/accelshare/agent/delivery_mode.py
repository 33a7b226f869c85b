"""Which way cards reach containers on this node: chosen at the start, kept for the life of the process.

Belongs here: the choice, who must know of it, and the end of the process when a runtime that came back makes another way the
right one. Never: how a way delivers.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Final

from accelshare.agent.delivery import Delivery
from accelshare.agent.device_plugin.allocator import Allocator
from accelshare.agent.device_plugin.delivery import DevicePluginDelivery
from accelshare.agent.device_plugin.leftovers import PluginLeftovers
from accelshare.agent.device_plugin.reconcile import Reconcile
from accelshare.agent.discovery.device_inventory import DeviceInventory
from accelshare.agent.nri.answers import Answers, correctable
from accelshare.agent.nri.delivery import NriDelivery
from accelshare.runtimes.validator_status import Verdict
from accelshare.vendors.profile import Profile

log = logging.getLogger(__name__)
FIRST_CONTACT_S: Final = 15.0  # a runtime that is there answers within moments, or 5 s for each plugin before us that is silent


class RuntimeChangedError(Exception):
    """What was decided at the start is not right any more; the next start decides anew."""


class DeliveryMode:
    def __init__(
        self,
        wish: str,
        nri: NriDelivery,
        device_plugin: DevicePluginDelivery,
        *,
        socket: Path,
        answers: Answers,
        allocator: Allocator,
        reconcile: Reconcile,
        devices: DeviceInventory,
        kubelet: PluginLeftovers,
    ) -> None:
        self._wish = wish
        self._nri = nri
        self._socket = socket
        self._answers = answers
        self._allocator = allocator
        self._reconcile = reconcile
        self._devices = devices
        self._kubelet = kubelet
        self._profiles: Collection[Profile] = ()
        self._resources: list[str] = []
        self._changed_its_mind = asyncio.Event()
        self.way: Delivery = device_plugin

    @property
    def by_runtime(self) -> bool:
        return self.way is self._nri

    async def make(self, start: Callable[[Awaitable[None]], object], profiles: Collection[Profile]) -> None:
        """The strongest that this node offers, or what was wished for."""
        if self._wish != DevicePluginDelivery.name:
            start(self._nri.connect())
            if self._socket.exists():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._nri.connected.wait(), FIRST_CONTACT_S)
        verdict = self._nri.verdict
        self._profiles = profiles
        self._resources = [resource for profile in profiles for resource, _ in self._devices.resources(profile)]
        if self._wish == NriDelivery.name or (self._wish == "auto" and self._may_deliver(verdict)):
            self._by_runtime(verdict)
        elif self._wish == "auto":
            self._by_device_plugin_corrected()
        else:
            self._devices.set_delivery(DevicePluginDelivery.name, insists=False)
        log.info("delivery way=%s insists=%s why=%r", self._devices.delivery, self._devices.insists, verdict.why)
        if self.by_runtime and not verdict.insists:
            problem = f"containers may be made without their card while the agent is away: {verdict.why}"
            log.warning("delivery way=nri problem=%r", problem)
        if self._wish == "auto":
            start(self._unless_changed())

    def judged(self, verdict: Verdict) -> None:
        """What a runtime promises that has just come, perhaps after a restart, perhaps later than we."""
        if self._answers.manner == "starting":
            return
        if self._wish == "auto" and (verdict.insists if self.by_runtime else self._may_deliver(verdict)) != self.by_runtime:
            self._changed_its_mind.set()
        elif self.by_runtime:
            self._devices.set_delivery(NriDelivery.name, insists=verdict.insists)
        elif self._wish == "auto":
            self._by_device_plugin_corrected()

    def _may_deliver(self, verdict: Verdict) -> bool:
        """It insists, and no pod lives that a device plugin served: kubelet would reject every other that asks for the same."""
        served = self._kubelet.served(self._resources) if verdict.insists else []
        if served:
            problem = f"kubelet's device plugins go on here until these pods have ended: {', '.join(served)}"
            log.warning("delivery problem=%r", problem)
        return verdict.insists and not served

    def _by_runtime(self, verdict: Verdict) -> None:
        self.way = self._nri
        self._answers.manner = "delivers"
        self._devices.set_delivery(NriDelivery.name, insists=verdict.insists)

    def _by_device_plugin_corrected(self) -> None:
        """kubelet delivers; where a runtime listens, variables are made equal to the record."""
        self._answers.manner = "corrects"
        way = DevicePluginDelivery.name
        if self._nri.connected.is_set():
            kinds = frozenset(profile.name for profile in self._profiles if correctable(profile))
            self._allocator.by_record = self._reconcile.by_record = kinds
            way = f"{DevicePluginDelivery.name}+{NriDelivery.name}"
        self._devices.set_delivery(way, insists=False)

    async def _unless_changed(self) -> None:
        await self._changed_its_mind.wait()
        raise RuntimeChangedError(
            f"the container runtime has changed ({self._nri.verdict.why}), and with it the right way of delivery: starting anew"
        )
