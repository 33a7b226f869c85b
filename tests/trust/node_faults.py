"""The kinds of faults on a real node. Each strikes, lasts, and leaves everything at work again.

Belongs here: the table of kinds. Never: when they strike, what is right meanwhile (node_run.py).
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from accelshare.kube.errors import Conflict, KubeError, NotFound
from cluster.errors import ClusterError
from cluster.local import LocalCluster
from tests.e2e.node.real_node import RealNode
from tests.proxy import Proxy
from tests.trust.clock_shift import ClockShift
from tests.trust.faults import JUMPS_S

UNHEALTHY: Final = "/api/v1/namespaces/kube-system/configmaps"
GARBAGE: Final = ("all", "-1", "0,1,two", "9" * 4000, ",,,,", "0x1")
SIZE: Final = "4m"  # of a small file system
CHECKPOINTS: Final = Path("/var/lib/kubelet/device-plugins")
CDI_FILE: Final = "accelshare-nvidia.json"
NVIDIA: Final = "/dev/nvidia"


@dataclass(frozen=True, slots=True)
class NodeParts:
    """A real node, the proxy between its agent and the API server, the agent's clock and its small file systems."""

    node: RealNode
    proxy: Proxy
    clock: ClockShift
    logs: Path  # of the agent
    cdi: Path  # files that the agent writes for NVIDIA's cards
    checkpoints: Path  # of kubelet's device manager

    async def agent_is_up(self) -> None:
        """It delivers again; one that ended is started, as kubelet would."""

        async def up() -> bool:
            if self.node.agent is None or not self.node.agent.running:
                self.node.begin_agent()
            try:
                return await self.node.is_up(self.node.agent, self.node.agent_port)
            except AssertionError:  # it ended meanwhile
                return False

        await self.node.until(up, "the agent delivers again")


Strike = Callable[[NodeParts, float, Random], Awaitable[None]]


async def kill_agent(parts: NodeParts, lasts_s: float, _chance: Random) -> None:
    assert parts.node.agent is not None
    parts.node.agent.kill()
    await asyncio.sleep(lasts_s / 4)


async def stop_agent(parts: NodeParts, _lasts_s: float, _chance: Random) -> None:
    assert parts.node.agent is not None
    await asyncio.to_thread(parts.node.agent.stop, 60)


async def pause_agent(parts: NodeParts, lasts_s: float, _chance: Random) -> None:
    agent = parts.node.agent
    assert agent is not None
    agent.pause()
    try:
        await asyncio.sleep(lasts_s)
    finally:
        agent.resume()


async def kill_kubelet(parts: NodeParts, _lasts_s: float, _chance: Random) -> None:
    await asyncio.to_thread(parts.node.local.restart_kubelet)


async def pause_kubelet(parts: NodeParts, lasts_s: float, _chance: Random) -> None:
    parts.node.local.kubelet.pause()
    try:
        await asyncio.sleep(lasts_s)
    finally:
        parts.node.local.kubelet.resume()


async def kill_containerd(parts: NodeParts, _lasts_s: float, _chance: Random) -> None:
    await asyncio.to_thread(parts.node.local.restart_containerd)


async def pause_containerd(parts: NodeParts, lasts_s: float, _chance: Random) -> None:
    parts.node.local.containerd.pause()
    try:
        await asyncio.sleep(lasts_s)
    finally:
        parts.node.local.containerd.resume()


async def kill_extender(parts: NodeParts, lasts_s: float, _chance: Random) -> None:
    assert parts.node.extender is not None
    parts.node.extender.kill()
    await asyncio.sleep(lasts_s / 4)
    await parts.node.start_extender()


async def cut_agent(parts: NodeParts, lasts_s: float, _chance: Random) -> None:
    await parts.proxy.cut()
    await asyncio.sleep(lasts_s)
    parts.proxy.restore()


async def stall_agent(parts: NodeParts, lasts_s: float, _chance: Random) -> None:
    parts.proxy.stall()
    await asyncio.sleep(lasts_s)
    await parts.proxy.cut()
    parts.proxy.restore()


async def slow_agent(parts: NodeParts, lasts_s: float, chance: Random) -> None:
    parts.proxy.slow(chance.uniform(0.05, 0.5))
    await asyncio.sleep(lasts_s)
    parts.proxy.restore()


async def tear_agent(parts: NodeParts, lasts_s: float, chance: Random) -> None:
    parts.proxy.tear(chance.randint(1, 8))
    await asyncio.sleep(lasts_s)
    parts.proxy.restore()


async def jump_agent_clock(parts: NodeParts, lasts_s: float, chance: Random) -> None:
    """Certificates may be outdated or not valid yet by such a clock: then the agent reaches nobody until it is right again."""
    try:
        parts.clock.move(chance.choice((1, -1)) * chance.choice(JUMPS_S))
        await asyncio.sleep(lasts_s)
    finally:
        parts.clock.move(0)


@contextlib.asynccontextmanager
async def _full(parts: NodeParts, directory: Path) -> AsyncIterator[None]:
    inside, ballast = parts.node.local.call_inside, directory / "ballast"
    await asyncio.to_thread(inside, "sh", "-c", f"dd if=/dev/zero of={ballast} bs=4k 2>/dev/null; true")
    try:
        yield
    finally:
        await asyncio.to_thread(inside, "rm", ballast)


async def fill_log_disk(parts: NodeParts, lasts_s: float, _chance: Random) -> None:
    async with _full(parts, parts.logs):
        await asyncio.sleep(lasts_s)


async def fill_cdi_disk(parts: NodeParts, lasts_s: float, _chance: Random) -> None:
    """The file is gone, as after a reboot, and a new agent finds no room for it. When there is room, the file is there again."""
    assert parts.node.agent is not None
    await asyncio.to_thread(parts.node.local.call_inside, "rm", "--force", parts.cdi / CDI_FILE)
    async with _full(parts, parts.cdi):
        parts.node.agent.kill()
        await parts.agent_is_up()
        await asyncio.sleep(lasts_s)
    await parts.node.until(lambda: _cdi_cards(parts) == [0, 1, 2, 3], "the CDI file names NVIDIA's cards")


async def fill_checkpoint_disk(parts: NodeParts, lasts_s: float, _chance: Random) -> None:
    """kubelet cannot write which device ids a pod has, and rejects pods whose cards come from device plugins. The extender then
    pauses the node; as the runbook says, the agent is restarted when there is room again.
    """
    assert parts.node.agent is not None
    async with _full(parts, parts.checkpoints):
        await asyncio.sleep(lasts_s)
    parts.node.agent.kill()


def _cdi_cards(parts: NodeParts) -> list[int]:
    """The numbers of the device files that the CDI file names; empty if it cannot be read now."""
    try:
        content = json.loads(parts.node.local.call_inside("cat", parts.cdi / CDI_FILE))
    except (ValueError, ClusterError):
        return []
    paths = [node["path"] for device in content["devices"] for node in device["containerEdits"].get("deviceNodes", [])]
    return sorted({int(path.removeprefix(NVIDIA)) for path in paths if path.removeprefix(NVIDIA).isdigit()})


async def reboot(parts: NodeParts, _lasts_s: float, _chance: Random) -> None:
    """All processes of the node end, also etcd's and the API server's containers. Its files are there when it comes back."""
    node, local = parts.node, parts.node.local
    assert node.agent is not None
    node.agent.kill()
    await asyncio.to_thread(local.kill_kubelet)
    await asyncio.to_thread(_kill_containers, local)
    await asyncio.to_thread(local.restart_containerd)
    await asyncio.to_thread(local.start_kubelet)
    node.begin_agent()

    async def answers() -> bool:
        with contextlib.suppress(KubeError):  # one that has just started knows no roles yet, and forbids all
            return bool(await node.pods())
        return False

    await node.until(answers, "the API server answers again")


def _kill_containers(local: LocalCluster) -> None:
    for task in local.ctr("tasks", "list", "--quiet").split():
        with contextlib.suppress(ClusterError):  # it has just ended, say with the sandbox that was killed before it
            local.ctr("tasks", "kill", "--signal", "SIGKILL", task)


async def garble_configmap(parts: NodeParts, lasts_s: float, chance: Random) -> None:
    name = f"unhealthy-gcu-{parts.node.local.node_name}"
    with contextlib.suppress(Conflict):
        await parts.node.create(UNHEALTHY, {"metadata": {"name": name}, "data": {"gcus": chance.choice(GARBAGE)}})
    try:
        await asyncio.sleep(lasts_s)
    finally:
        with contextlib.suppress(NotFound):
            await parts.node.client.request("DELETE", f"{UNHEALTHY}/{name}")


# With device plugins, kubelet rejects a pod that it finds after a reboot before the plugin has registered, as with any plugin.
ONLY_BY_NRI: Final = frozenset({"node: reboot"})
KINDS: Final[Mapping[str, Strike]] = {
    "agent: SIGKILL": kill_agent,
    "agent: SIGTERM": stop_agent,
    "agent: SIGSTOP, SIGCONT": pause_agent,
    "kubelet: SIGKILL": kill_kubelet,
    "kubelet: SIGSTOP, SIGCONT": pause_kubelet,
    "containerd: SIGKILL": kill_containerd,
    "containerd: SIGSTOP, SIGCONT": pause_containerd,
    "extender: SIGKILL": kill_extender,
    "agent to API server: connections cut": cut_agent,
    "agent to API server: connections stalled": stall_agent,
    "agent to API server: connections slowed": slow_agent,
    "agent to API server: answers torn": tear_agent,
    "agent's clock jumped": jump_agent_clock,
    "the agent's log: disk full": fill_log_disk,
    "the agent's CDI files: disk full": fill_cdi_disk,
    "kubelet's checkpoint of device ids: disk full": fill_checkpoint_disk,
    "node: reboot": reboot,
    "ConfigMap of unhealthy cards: garbage": garble_configmap,
}
WEIGHTS: Final = {"agent: SIGKILL": 4, "kubelet: SIGKILL": 3, "extender: SIGKILL": 2}


@contextlib.contextmanager
def small_file_system(local: LocalCluster, directory: Path) -> Iterator[Path]:
    """A directory that fills up soon, for processes inside the cluster."""
    directory.mkdir()
    _mount(local, directory)
    try:
        yield directory
    finally:
        local.call_inside("umount", "--lazy", directory)


@contextlib.contextmanager
def small_checkpoint_disk(local: LocalCluster) -> Iterator[Path]:
    """The directory of kubelet's device manager on a small file system. It is empty: kubelet knows no device plugin any more."""
    local.kill_kubelet()
    _mount(local, CHECKPOINTS)
    local.start_kubelet()
    try:
        yield CHECKPOINTS
    finally:
        local.kill_kubelet()
        local.call_inside("umount", "--lazy", CHECKPOINTS)
        local.start_kubelet()


def _mount(local: LocalCluster, directory: Path) -> None:
    local.call_inside("mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", directory)
