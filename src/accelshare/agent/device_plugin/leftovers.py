"""Finds leftovers of device plugins: resources that kubelet still requests from a device plugin while NRI must deliver.

Belongs here: how long kubelet would reject a pod that no device plugin serves. It does so while it knows the plugin, and while
a pod lives that a plugin served. It drops ended pods when a client lists PodResources. Never: which mode is right
(delivery_mode.py).
"""

import socket
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path

from accelshare.agent.device_plugin import checkpoint
from accelshare.agent.device_plugin.device_ids import is_ours
from accelshare.agent.device_plugin.pod_resources import PodResourcesError
from accelshare.wire.node_pods import NodePod


class PluginLeftovers:
    def __init__(self, directory: Path, pods: Mapping[str, NodePod], list_holdings: Callable[[], Awaitable[object]]) -> None:
        """`list_holdings` calls kubelet's PodResources, which makes kubelet drop ended pods."""
        self._directory = directory
        self._pods = pods
        self._list_holdings = list_holdings
        self._dropped: set[str] = set()  # uids of ended pods that kubelet has dropped since

    def is_served_by_others(self, resource: str | None) -> bool:
        """Whether another device plugin serves this resource: its device ids are not of our form, and some other plugin listens
        (kubelet keeps ids for a while after their plugin has gone).
        """
        if resource is None or not any(map(_listens, self._sockets_of_others())):
            return False
        return not all(map(is_ours, checkpoint.registered(self._directory).get(resource, ())))

    def _sockets_of_others(self) -> list[Path]:
        ours = ("kubelet.sock", "accelshare-")
        try:
            return [path for path in self._directory.iterdir() if path.is_socket() and not path.name.startswith(ours)]
        except OSError:
            return []

    def served(self, resources: Collection[str]) -> list[str]:
        """The names of living pods that hold one of these resources from a device plugin."""
        alive = self._alive()
        return sorted(alive[uid] for uid in self._holders(resources) if uid in alive)

    def refuses(self, resource: str) -> bool:
        """Whether kubelet would reject a pod that requests this resource without a device plugin."""
        return resource in checkpoint.registered(self._directory) or not self._dropped.issuperset(self._holders([resource]))

    async def drop_ended_pods(self, resources: Collection[str]) -> None:
        """Make kubelet drop the pods that have ended; it keeps them until a client lists PodResources."""
        ended = self._holders(resources) - self._alive().keys() - self._dropped
        if ended:
            try:
                await self._list_holdings()
            except PodResourcesError:
                return
            self._dropped |= ended

    def _holders(self, resources: Collection[str]) -> set[str]:
        return {one.uid for one in checkpoint.allocations(self._directory) if one.resource in resources}

    def _alive(self) -> dict[str, str]:
        """The names of living pods by the uid that kubelet has for them."""
        return {pod.uid_at_kubelet: pod.name for pod in self._pods.values() if not pod.seen.ended}


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as attempt:
        attempt.setblocking(False)
        try:
            attempt.connect(str(path))
        except BlockingIOError:
            return True  # its backlog is full
        except OSError:
            return False
        return True
