"""A run on a real node: pods with a card come, each beside one without; faults strike; containers must see their cards.

Belongs here: the order of a run, and what a node's pods must show. Never: the kinds of faults (node_faults.py), the rules of
records (history.py).

What Kubernetes itself loses under a fault, it loses with or without a card. Only the difference is accelshare's.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable, Collection
from pathlib import Path
from random import Random
from typing import Final

from accelshare.kube.errors import KubeError
from cluster.errors import ClusterError
from cluster.https import free_port
from cluster.local import LocalCluster
from tests.e2e.node.real_node import (
    GCU,
    RESOURCES,
    RealNode,
    agent_behind_proxy,
    open_real_node,
    recorded,
)
from tests.trust.api_watch import watch_api
from tests.trust.clock_shift import ClockShift
from tests.trust.history import Finding, History, Object
from tests.trust.node_faults import KINDS, ONLY_BY_NRI, WEIGHTS, NodeParts, small_checkpoint_disk, small_file_system
from tests.trust.node_outcome import NodeOutcome
from tests.trust.plan import Pace, PlannedFault, draw_faults

Say = Callable[[str], None]
DEVICE_PLUGIN: Final = "device plugin"
NRI: Final = "NRI"
SMALL_LOGS: Final = ("--log-file-mib=1", "--log-files=1")
FLAGS: Final = {DEVICE_PLUGIN: ("--delivery=device-plugin",), NRI: ()}
PACE: Final = Pace(most_between_s=1.0, most_lasting_s=5.0)
EVERY_S: Final = 5.0  # progress
SETTLE_EVERY: Final = 4  # faults
SETTLE_LIMIT_S: Final = 480.0
MOST_REJECTED: Final = 5  # pods for each kill with device plugins: kubelet rejects for good whom it admits while nobody serves
# Of the plugin. Those with a full disk kill the agent, too.
INTERRUPTIONS: Final = ("agent: SIG", "kubelet: SIG", "the agent's CDI files", "kubelet's checkpoint")
ADMISSION: Final = "UnexpectedAdmissionError"


class NodeRun:
    def __init__(self, parts: NodeParts, history: History, outcome: NodeOutcome, say: Say) -> None:
        self._parts = parts
        self._node = parts.node
        self._history = history
        self._outcome = outcome
        self._say = say
        self._alive: list[str] = []  # names with a card
        self._ran: set[str] = set()
        self._doing = "starting"

    async def play(self, plan: list[PlannedFault], pods: int) -> None:
        reporting = asyncio.create_task(self._report())
        try:
            await self._play(plan, pods)
        finally:
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            failed = f"{len(self._outcome.failed_with_card)} failed with a card, {len(self._outcome.failed_without)} without"
            self._say(f"  … {self._doing}; {self._outcome.pods} pods with a card so far, {failed}")

    async def _play(self, plan: list[PlannedFault], pods: int) -> None:
        chance = Random(f"{self._outcome.seed}/node pods")
        for fault in plan:
            wave = pods * (fault.number + 1) // len(plan) - pods * fault.number // len(plan)
            coming = await self._wave(wave, chance)
            await self._some_bound(coming, chance.randint(1, len(coming)) if coming else 0)
            self._doing = f"{fault.number + 1}/{len(plan)} {fault.kind}"
            self._say(f"{self._doing}; {len(self._alive)} pods with a card")
            await KINDS[fault.kind](self._parts, fault.lasts_s, Random(fault.seed))
            await self._parts.agent_is_up()
            self._outcome.faults[fault.kind] = self._outcome.faults.get(fault.kind, 0) + 1
            if (fault.number + 1) % SETTLE_EVERY == 0 or fault.number + 1 == len(plan):
                await self._settle(chance)

    async def _wave(self, size: int, chance: Random) -> list[str]:
        coming = [f"c{number}" for number in range(self._outcome.pods, self._outcome.pods + size)]
        self._outcome.pods += size
        self._alive += coming
        for name in coming:
            await self._node.pod(name, {GCU: chance.choice((1, 2, 2, 4))})
            await self._node.pod(_beside(name), {})
        return coming

    async def _some_bound(self, coming: list[str], count: int) -> None:
        """So that the fault strikes in the middle."""

        async def bound() -> bool:
            pods = await self._node.pods()
            return sum(name in pods and "nodeName" in pods[name]["spec"] for name in coming) >= count

        await self._node.until(bound, f"{count} of {len(coming)} pods are bound")

    async def _settle(self, chance: Random) -> None:
        """Every pod runs or has failed; each container sees its card; half of the pods leave."""
        self._doing = "waiting until every pod runs or has failed"
        pods: dict[str, Object] = {}

        async def settled() -> bool:
            nonlocal pods
            pods = await self._node.pods()
            names = [*self._alive, *map(_beside, self._alive)]
            return all(name in pods and _settled(pods[name]) for name in names)

        try:
            await self._node.until(settled, "every pod runs or has failed", SETTLE_LIMIT_S)
        except ClusterError as error:
            for name in (name for name in self._alive if name not in pods or not _settled(pods[name])):
                self._find("does not run", f"pod {name}: {pods.get(name, {}).get('status')}; {error}", name)
            raise
        for name in list(self._alive):
            await self._judge(name, pods)
        leaving = chance.sample(self._alive, len(self._alive) // 2)
        self._alive = [name for name in self._alive if name not in leaving]
        for name in leaving:
            for each in (name, _beside(name)):
                self._history.release(each)
                await self._node.delete(each)

    async def _judge(self, name: str, pods: dict[str, Object]) -> None:
        plain = pods[_beside(name)]
        if plain["status"]["phase"] == "Failed":
            self._outcome.failed_without.setdefault(_beside(name), _why(plain))
        elif visible := await self._node.sees(_beside(name)):
            self._find("another's card", f"{_beside(name)} requests no card and sees {visible}", name)
        if pods[name]["status"]["phase"] == "Failed":
            if name not in self._outcome.failed_with_card and name in self._ran:
                self._find("failed after it ran", f"{name}: {_why(pods[name])}", name)
            self._outcome.failed_with_card.setdefault(name, _why(pods[name]))
            return
        self._ran.add(name)
        self._outcome.checked += 1
        sees, cards = await self._node.sees(name), [f"gcu{index}" for index in recorded(pods[name], "enflame")]
        if sees != cards:
            rule = "another's card" if sees else "without its card"
            self._find(rule, f"{name} has {cards} in its record and sees {sees}", name)

    def judge_failed(self) -> None:
        """Pods with a card that failed, beyond what failed without."""
        outcome = self._outcome
        others = {name: why for name, why in outcome.failed_with_card.items() if ADMISSION not in why}
        if outcome.delivery == NRI and outcome.more_with_card > 0:
            self._find("failed", f"with a card {outcome.failed_with_card}, without {outcome.failed_without}")
        elif len(others) > len(outcome.failed_without):
            self._find("failed", f"with a card {others}, without {outcome.failed_without}")
        kills = sum(count for kind, count in outcome.faults.items() if kind.startswith(INTERRUPTIONS))
        if outcome.more_with_card > MOST_REJECTED * kills:
            self._find("failed", f"{outcome.more_with_card} pods were rejected in {kills} interruptions")

    def _find(self, rule: str, text: str, name: str = "") -> None:
        history = next((str(pod) for pod in self._history.pods.values() if pod.name == name), "")
        self._outcome.findings.append(Finding(rule, text, history))


def _beside(name: str) -> str:
    return f"plain-{name}"


def _settled(pod: Object) -> bool:
    status = pod["status"]
    ready = all(container["ready"] for container in status.get("containerStatuses", []))
    assigned = "false" not in [
        value for key, value in (pod["metadata"].get("annotations") or {}).items() if key.endswith("assigned")
    ]
    return status["phase"] == "Failed" or (status["phase"] == "Running" and ready and assigned)


def _why(pod: Object) -> str:
    return f"{pod['status'].get('reason')}: {str(pod['status'].get('message'))[:200]}"


def play_both_ways(seed: int, only: Collection[str] = (), *, faults: int, pods: int, say: Say) -> list[NodeOutcome]:
    """On the local cluster of this machine, which is started if it is not up, and taken down if it was not.

    `only`: these kinds of faults; a way of delivery that has none of them is left out.
    """
    plans = {delivery: _draw(seed, delivery, only, faults) for delivery in (NRI, DEVICE_PLUGIN)}
    was_up = all(LocalCluster.parts().values())
    local = LocalCluster.up(say, fake_cards=True)
    port = free_port()
    local.scheduler_config(f"http://127.0.0.1:{port}/accelshare", RESOURCES, wanted={"percentageOfNodesToScore": 100})
    try:
        return [asyncio.run(_play(local, port, delivery, seed, plan, pods, say)) for delivery, plan in plans.items() if plan]
    finally:
        if was_up:
            local.restore_scheduler()
        else:
            LocalCluster.take_down(say)


def _draw(seed: int, delivery: str, only: Collection[str], faults: int) -> list[PlannedFault]:
    possible = [kind for kind in KINDS if delivery == NRI or kind not in ONLY_BY_NRI]
    weights = {kind: WEIGHTS.get(kind, 1) for kind in possible if not only or kind in only}
    return draw_faults(seed, weights, faults, PACE) if weights else []


async def _play(
    local: LocalCluster, port: int, delivery: str, seed: int, plan: list[PlannedFault], pods: int, say: Say
) -> NodeOutcome:
    began = time.monotonic()
    history = History()
    outcome = NodeOutcome(delivery, seed)
    say(f"{delivery}: {len(plan)} faults, {pods} pods with a card and as many without")
    with tempfile.TemporaryDirectory(prefix="accelshare-trust-") as name:
        directory = Path(name)
        clock = ClockShift(directory, "agent")
        with (
            small_file_system(local, directory / "logs") as logs,
            small_file_system(local, directory / "cdi") as cdi,
            small_checkpoint_disk(local) as checkpoints,
        ):
            flags = (*FLAGS[delivery], f"--cdi-directory={cdi}", f"--log-file={logs / 'agent.log'}", *SMALL_LOGS)
            opened = open_real_node(local, directory, port, *flags, variables=clock.variables, cdi=True)
            async with opened as node, agent_behind_proxy(node, directory) as proxy:
                await node.show_agent()
                async with watch_api(node.client, history, lambda: time.monotonic() - began):
                    run = NodeRun(NodeParts(node, proxy, clock, logs, cdi, checkpoints), history, outcome, say)
                    try:
                        await run.play(plan, pods)
                    except (ClusterError, KubeError, AssertionError) as error:
                        outcome.findings.append(Finding("ended early", f"{error}"))
                    run.judge_failed()
                    await _release_all(node, history)
    outcome.findings += history.findings
    outcome.versions = history.versions
    outcome.took_s = time.monotonic() - began
    return outcome


async def _release_all(node: RealNode, history: History) -> None:
    """What is left is deleted with the node's clean-up."""
    for name in await node.pods():
        history.release(name)
