"""What kubelet still takes for a device plugin's, on a node where the runtime is to deliver.

Belongs here: for how long kubelet would refuse a pod, whoever else could serve it. It does so while it remembers the plugin, and
for as long as one pod lives that a plugin served: such a resource it asks of a plugin only. The dead it forgets when it is asked
what it holds. Never: which way a node goes (choice.py).
"""

import socket
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path

from accelshare.agent.device_plugin import checkpoint
from accelshare.agent.device_plugin.device_ids import is_ours
from accelshare.agent.device_plugin.pod_resources import NotToldError
from accelshare.wire.node_pods import NodePod


class PluginLeftovers:
    def __init__(self, directory: Path, pods: Mapping[str, NodePod], ask: Callable[[], Awaitable[object]]) -> None:
        self._directory = directory
        self._pods = pods
        self._ask = ask
        self._forgotten: set[str] = set()  # uids of the dead of whom kubelet has let go since

    def is_anothers(self, resource: str | None) -> bool:
        """Does another device plugin serve this resource? Its device ids are not of our form, and a plugin is there that listens:
        kubelet remembers ids for a while after their plugin has gone.
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
        """The names of the pods that live and hold one of these resources from a device plugin."""
        alive = self._alive()
        return sorted(alive[uid] for uid in self._holders(resources) if uid in alive)

    def refuses(self, resource: str) -> bool:
        """Would kubelet reject a pod that asks for this and that no device plugin serves?"""
        return resource in checkpoint.registered(self._directory) or not self._forgotten.issuperset(self._holders([resource]))

    async def let_go(self, resources: Collection[str]) -> None:
        """Have kubelet forget those who have ended; it keeps them until somebody asks."""
        dead = self._holders(resources) - self._alive().keys() - self._forgotten
        if dead:
            try:
                await self._ask()
            except NotToldError:
                return
            self._forgotten |= dead

    def _holders(self, resources: Collection[str]) -> set[str]:
        held = checkpoint.held(self._directory)
        return {uid for resource in resources for uid in held.get(resource, ())}

    def _alive(self) -> dict[str, str]:
        """The names of the pods that live, by the uid that kubelet has for them."""
        return {pod.uid_at_kubelet: pod.name for pod in self._pods.values() if not pod.seen.ended}


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as attempt:
        attempt.setblocking(False)
        try:
            attempt.connect(str(path))
        except BlockingIOError:
            return True  # it has more callers than it takes at once
        except OSError:
            return False
        return True
